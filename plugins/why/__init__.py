"""Why a run is slower than its published cell: what differs, and what such a difference has cost elsewhere. Pure."""
