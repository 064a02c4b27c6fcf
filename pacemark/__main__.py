"""Reads the command line. Exit code 2: it, or a file that it names, is wrong; the message says what to do."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from pacemark import bundle, compare, isolate, sign, stamp, verify
from plugins.errors import ConfigError
from plugins.words import shown


class Command(Protocol):
    """What a module of a command has."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, options: argparse.Namespace) -> int:
        """Do it. Returns the exit code. Raises ConfigError, or OSError of a file that was named."""


_COMMANDS: dict[str, Command] = {
    "compare": compare,
    "isolate": isolate,
    "bundle": bundle,
    "sign": sign,
    "stamp": stamp,
    "verify": verify,
}


def main(arguments: Sequence[str] | None = None) -> int:
    program = "python -m pacemark" if Path(sys.argv[0]).name == "__main__.py" else "pacemark"
    parser = argparse.ArgumentParser(prog=program, allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in _COMMANDS.items():
        command = commands.add_parser(name, help=module.HELP, description=module.HELP, allow_abbrev=False)
        module.add_arguments(command)
    options = parser.parse_args(arguments)
    try:
        return _COMMANDS[options.command].run(options)
    except ConfigError as error:
        wrong = str(error)
    except OSError as error:
        wrong = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    except KeyboardInterrupt:
        wrong = "interrupted"
    print(f"error: {shown(wrong)}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
