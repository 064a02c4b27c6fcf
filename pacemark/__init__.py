"""Commands on runs that have ended: they need no site and no cluster. `python -m pacemark --help`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple


class Command(NamedTuple):
    """A command of the command line. `run` returns the exit code; it raises ConfigError, or OSError of a named file."""

    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
