"""`python -m tests.golden`: writes anew what must not change."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests.golden import faults, sessions


def main() -> None:
    rows = [row for name in faults.RUNS for row in faults.rows(name)]
    faults.STORED.write_text("\n".join([*rows, ""]))
    for name in sessions.SESSIONS:
        shutil.rmtree(sessions.STORED / name, ignore_errors=True)
        with tempfile.TemporaryDirectory() as folder:
            for path, text in sessions.run(name, Path(folder)).items():
                stored = sessions.STORED / name / path
                stored.parent.mkdir(parents=True, exist_ok=True)
                stored.write_text(text)


if __name__ == "__main__":
    main()
