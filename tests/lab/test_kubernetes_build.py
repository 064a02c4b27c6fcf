"""Building the Kubernetes lab's programs, with a `go` that only pretends: what is whole, and what is said if not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.k8s import build, programs

# Knows `version`, `build`, `mod download` and `list -m`; each build is noted, and `broken` fails.
GO = """\
#!/bin/bash
case "$1" in
version) echo "go version go{version} linux/amd64";;
build)
    echo "${{@: -1}}" >> {folder}/built
    [[ "${{@: -1}}" == *{broken}* ]] && {{ echo "{says}" >&2; exit 1; }}
    while [ "$1" != -o ]; do shift; done
    echo program > "$2";;
list) echo {folder}/modules/"${{@: -1}}";;
esac
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With an empty cache, the modules' manifests, and nothing but `go` in the places where one is looked for."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(programs.ASSETS, raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(build, "PLACES", "")
    for program in programs.PROGRAMS:
        root = tmp_path / "modules" / program.module
        for name in (*program.manifests, *(edit[0] for edit in program.edits)):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            old = [edit[1] for edit in program.edits if edit[0] == name]
            (root / name.replace("*", "kind")).write_text("\n".join(old))
    return tmp_path


def make_go(folder: Path, *, version: str = "1.26.0", broken: str = "nothing", says: str = "") -> None:
    go = folder / "go"
    go.write_text(GO.format(folder=folder, version=version, broken=broken, says=says))
    go.chmod(0o755)


def built(folder: Path) -> list[str]:
    return (folder / "built").read_text().split()


def test_it_is_built_once(folder: Path) -> None:
    make_go(folder)
    assert programs.missing_parts()
    home = build.build()
    assert home.is_relative_to(folder / "cache" / "pacemark")
    assert not programs.missing_parts()
    assert {path.name for path in (home / "bin").iterdir()} == {program.name for program in programs.PROGRAMS}
    assert {path.name for path in home.iterdir()} == {"bin", "manifests"}
    assert [path.name for path in programs.manifests("jobset")] == ["kind.yaml", "manifests.yaml"]
    assert not (folder / "cache" / "pacemark" / "go").exists()
    assert build.build() == home
    assert len(built(folder)) == len(programs.PROGRAMS)


def test_half_a_build_is_not_taken_for_a_whole_one(folder: Path) -> None:
    make_go(folder, broken="kueue", says="kueue.go:1: syntax error")
    with pytest.raises(build.BuildError, match=r"kueue.*\nkueue\.go:1: syntax error"):
        build.build()
    assert programs.missing_parts()
    make_go(folder)
    assert (build.build() / "bin" / "kueue").exists()


def test_two_builds_at_once_build_once(folder: Path) -> None:
    make_go(folder)
    repository = Path(build.__file__).parents[3]
    code = "from tests.lab.k8s.build import build; build()"
    environment = {**os.environ, "PYTHONPATH": str(repository)}
    python = str(Path(sys.base_prefix) / "bin" / "python3")
    both = [subprocess.Popen([python, "-c", code], env=environment, cwd=repository) for _ in range(2)]
    assert [one.wait(300) for one in both] == [0, 0]
    assert len(built(folder)) == len(programs.PROGRAMS)
