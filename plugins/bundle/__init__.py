"""The bundle of a run: its archive, its statement with the signatures, and what is found of it."""
