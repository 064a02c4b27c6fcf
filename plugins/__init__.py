"""How a run is judged and told. Nothing here imports `fixtures`: judging a log needs no cluster."""
