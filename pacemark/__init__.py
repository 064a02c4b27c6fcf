"""Commands on runs that have ended: they need no site and no cluster. `python -m pacemark --help`."""
