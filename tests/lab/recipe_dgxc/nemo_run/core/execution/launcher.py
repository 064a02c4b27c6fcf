"""The template of a task's command line, which is not looked at here."""

from types import SimpleNamespace

SlurmTemplate = SimpleNamespace
