"""How hypothesis runs here: the same examples each time, and nothing written into the checkout."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis.configuration import set_hypothesis_home_dir

set_hypothesis_home_dir(Path(tempfile.gettempdir()) / "pacemark-hypothesis")
settings.register_profile("pacemark", deadline=None, derandomize=True, database=None, max_examples=100)
settings.load_profile("pacemark")
