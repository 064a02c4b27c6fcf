"""Runs tests of the Slurm lab on other releases of Slurm: `python -m tests.lab.debian 24.11 tests/system -m promise`.

Each release is that of a Debian, which debootstrap puts into a folder in a minute or two, once. pytest runs in that folder by
chroot, with the folder's Python. What it needs of this machine is mounted there: in a mount namespace of its own, so that the
mounts end with it.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

from tests.lab.fixtures import REQUIRE

RELEASES = {"24.11": "trixie", "26.05": "forky"}
"""Releases of Slurm, each with the Debian that has it."""

PACKAGES = (
    "python3", "python3-venv", "slurm-wlm", "munge", "openssh-server", "openssh-client", "zstd", "git", "ca-certificates", "procps",
)  # fmt: skip
MIRROR = "http://deb.debian.org/debian"
# All Debians are made alike; an older debootstrap does not know the names of newer ones.
_SCRIPT = "/usr/share/debootstrap/scripts/sid"
REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = Path("~/.cache/pacemark").expanduser()

# What pip and the tests use of this machine: its devices and processes, names of hosts, and whom it trusts.
_MOUNTED = ("/dev", "/proc", "/sys", "/etc/hosts", "/etc/resolv.conf", "/etc/ssl/certs", str(REPOSITORY))
_VENV = "/opt/pacemark"


class Missing(Exception):
    """What is needed to make or to enter a Debian's folder is not there."""


def make_root(release: str) -> Path:
    """The folder of this release's Debian, with its packages. Raises Missing."""
    packages = ",".join(PACKAGES)
    root = CACHE / f"debian-{release}-{zlib.crc32(packages.encode()):x}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "debian.lock").open("w") as lock:
        # Another checkout may make it at this moment.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            _bootstrap(release, root, packages)
    return root


def _bootstrap(release: str, root: Path, packages: str) -> None:
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        raise Missing(f"Slurm {release} needs root and debootstrap: apt-get install -y debootstrap")
    made = root.with_name(f"{root.name}.part")
    command = [
        "debootstrap",
        "--variant=minbase",
        f"--include={packages}",
        *(RELEASES[release], str(made), MIRROR, _SCRIPT),
    ]
    # A mirror may fail for a moment.
    for _ in range(3):
        shutil.rmtree(made, ignore_errors=True)
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode == 0:
            made.rename(root)
            return
    raise Missing(f"Slurm {release}: debootstrap failed:\n{done.stdout[-2000:]}")


def run_in(root: Path, command: str) -> int:
    """The exit code of a command of bash in a folder with a Debian. It runs in this checkout, with this environment."""
    lines = ["set -e"]
    for path in _MOUNTED:
        inside = root / path.lstrip("/")
        if Path(path).is_dir():
            inside.mkdir(parents=True, exist_ok=True)
        else:
            inside.touch()
        lines.append(f"mount --rbind {shlex.quote(path)} {shlex.quote(str(inside))}")
    inner = f"cd {shlex.quote(str(REPOSITORY))} && {command}"
    lines.append(f"exec chroot {shlex.quote(str(root))} bash -c {shlex.quote(inner)}")
    environment = {
        **os.environ,
        "HOME": "/root",
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    }
    argv = ["unshare", "--mount", "--propagation", "private", "bash", "-c", "\n".join(lines)]
    return subprocess.run(argv, env=environment).returncode


def main() -> int:
    """Run pytest with the arguments behind the release, in that release's Debian."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.debian", description=main.__doc__)
    parser.add_argument("release", choices=RELEASES)
    options, arguments = parser.parse_known_args()
    try:
        root = make_root(options.release)
    except Missing as missing:
        print(missing, file=sys.stderr)
        return int(os.environ.get(REQUIRE) == "1")
    install = f"{_VENV}/bin/pip install -q --require-hashes --only-binary :all: -r tests/requirements.lock"
    tests = f"{_VENV}/bin/python -m pytest -p no:cacheprovider {shlex.join(arguments)}"
    # Debian's testing gets newer releases: then another one would pass for this one.
    release = f"slurmctld -V && slurmctld -V | grep -qF ' {options.release}.'"
    other = f"echo 'this is not Slurm {options.release}: see RELEASES in tests/lab/debian.py' >&2; exit 1"
    return run_in(root, f"{release} || {{ {other}; }}; python3 -m venv {_VENV} && {install} && {tests}")


if __name__ == "__main__":
    sys.exit(main())
