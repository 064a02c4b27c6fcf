"""Where NeMo-Run keeps its experiments."""

from __future__ import annotations

import os


def get_nemorun_home() -> str:
    return os.environ["NEMORUN_HOME"]


def set_nemorun_home(folder: str) -> None:
    os.environ["NEMORUN_HOME"] = folder
