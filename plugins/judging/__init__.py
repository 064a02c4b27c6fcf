"""From a log and a baseline to a verdict."""
