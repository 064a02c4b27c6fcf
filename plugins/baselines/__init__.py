"""Baselines: their files, the baseline store, and the versions of programs that they were measured with."""
