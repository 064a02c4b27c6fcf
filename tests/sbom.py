"""`make sbom`: a release's bill of materials, in CycloneDX. It lists every package that a session may install.

It is made of the locks alone, so that a commit's is always the same.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests import locks
from tests.locks import Locked

# Read, not imported: what a session needs is not installed for this.
_SOURCE = tomllib.loads((locks.ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["version"]
VERSION = re.findall(_SOURCE["pattern"], (locks.ROOT / _SOURCE["path"]).read_text(), re.MULTILINE)[0]
_PROJECT = f'[project]\nname = "pacemark"\nversion = "{VERSION}"\nlicense = "Apache-2.0"\n'


def stated(bill: dict[str, Any]) -> set[tuple[str, str, frozenset[str]]]:
    """The packages of a bill: name, version, hashes."""
    return {
        (
            component["name"],
            component.get("version", ""),
            frozenset(
                f"{value['alg'].replace('-', '').lower()}:{value['content']}"
                for reference in component.get("externalReferences", [])
                for value in reference.get("hashes", [])
            ),
        )
        for component in bill.get("components", [])
    }


def differences(bill: dict[str, Any], packages: Iterable[Locked]) -> list[str]:
    """Names of packages that a bill and the locks do not tell alike."""
    told = {(package.name, package.version, package.hashes) for package in packages}
    return sorted({name for name, _, _ in told ^ stated(bill)})


def _bill(packages: Iterable[Locked]) -> bytes:
    lines = [
        " ".join(
            (f"{package.name}=={package.version}", *(f"--hash={value}" for value in sorted(package.hashes)))
        )
        for package in packages
    ]
    committed = subprocess.run(
        ["git", "-C", locks.ROOT, "log", "-1", "--format=%ct"], capture_output=True, text=True, check=False
    )
    epoch = {"SOURCE_DATE_EPOCH": committed.stdout.strip()} if committed.stdout.strip() else {}
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as project:
        project.write(_PROJECT)
        project.flush()
        # Without -W it warns that the locks tell no graph of who needs whom.
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "cyclonedx_py",
            "requirements",
            "--pyproject",
            project.name,
        ]
        options = [
            "--spec-version",
            "1.6",
            "--output-format",
            "JSON",
            "--output-reproducible",
            "--validate",
            "-",
        ]
        return subprocess.run(
            [*command, *options],
            input="\n".join(lines).encode(),
            stdout=subprocess.PIPE,
            env=os.environ | epoch,
            check=True,
        ).stdout


def main() -> None:
    packages = sorted({package for lock in locks.RUN for package in locks.locked(lock)})
    written = _bill(packages)
    if different := differences(json.loads(written), packages):
        sys.exit(
            f"make sbom: what was written and the locks differ in {', '.join(different)}: nothing was kept"
        )
    path = Path(f"pacemark-{VERSION}.cdx.json")
    path.write_bytes(written)
    print(f"{path}: {len(packages)} packages")


if __name__ == "__main__":
    main()
