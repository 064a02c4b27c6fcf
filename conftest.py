"""Loads the plugins, nothing else."""

pytest_plugins = [
    "plugins.suite",
    "fixtures.options",
    "fixtures.housekeeping",
    "fixtures.session",
    "fixtures.record_baselines",
]
