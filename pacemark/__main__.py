"""Reads the command line. Exit code 2: it, or a file that it names, is wrong; the message says what to do."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pacemark import bundle, judge, runs, why
from plugins.base.errors import ConfigError
from plugins.base.words import shown
from plugins.reports.checkout import VERSION

_COMMANDS = {**judge.COMMANDS, **why.COMMANDS, **runs.COMMANDS, **bundle.COMMANDS}


def main(arguments: Sequence[str] | None = None) -> int:
    program = "python -m pacemark" if Path(sys.argv[0]).name == "__main__.py" else "pacemark"
    parser = argparse.ArgumentParser(prog=program, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"pacemark {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in _COMMANDS.items():
        words = command.help
        command.add_arguments(commands.add_parser(name, help=words, description=words, allow_abbrev=False))
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
