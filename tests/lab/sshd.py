"""A login node on loopback: an sshd of the lab's own, with keys that nobody else has."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.lab import config
from tests.lab.daemons import Daemon, LabError
from tests.lab.ports import claim_block

HOST = "127.0.0.1"
BANNER = "Welcome to the lab\n"
PROGRAMS = ("sshd", "ssh-keygen")


def missing_programs(names: tuple[str, ...], hint: str) -> list[str]:
    """Which of these programs this machine lacks, in words; `hint` says how they come."""
    return [
        f"the program {name} ({hint})"
        for name in names
        if shutil.which(name, path=config.SYSTEM_PATH) is None
    ]


def make_home(root: Path) -> None:
    """A user's home, as on a site: the profile puts the tools on the PATH, and every shell prints a banner and asks."""
    ask = "read -r -p 'Your password expires tomorrow. Change it now? ' answer"
    (root / "home" / ".bashrc").write_text(f"printf %s {shlex.quote(BANNER)}\n")
    (root / "home" / ".bash_profile").write_text(f"echo Welcome\n{ask}\nexport PATH={root}/bin:$PATH\n")


def make_sshd(root: Path, port: int, environment: Mapping[str, str]) -> Daemon:
    """Keys and configuration in `root`/ssh, and the daemon, not started; each session gets `environment`.

    Beside the keys lies the `known_hosts` of a client.
    """
    folder = root / "ssh"
    for key in (folder / "host_key", folder / "client_key"):
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "pacemark-lab", "-f", str(key)]
        done = subprocess.run(argv, env={"PATH": config.SYSTEM_PATH}, capture_output=True, text=True)
        if done.returncode != 0:
            raise LabError(f"{' '.join(argv)}: exit code {done.returncode}: {done.stderr.strip()}")
    shutil.copy(folder / "client_key.pub", folder / "authorized_keys")
    (folder / "known_hosts").write_text(f"[{HOST}]:{port} {(folder / 'host_key.pub').read_text()}")
    (folder / "sshd_config").write_text(config.sshd_config(root, port, environment))
    if os.geteuid() == 0:
        # As root sshd insists on its privilege separation folder, which a package's boot script makes elsewhere.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    # By its full path, as sshd demands.
    program = shutil.which("sshd", path=config.SYSTEM_PATH) or "sshd"
    argv = [program, "-D", "-e", "-f", str(folder / "sshd_config")]
    return Daemon("sshd", argv, environment, root / "log" / "sshd.out")


@dataclass
class Login:
    """How to reach an sshd of the lab's."""

    host: str
    port: int
    user: str
    key: Path
    known_hosts: Path


@contextlib.contextmanager
def few_sessions(root: Path, user: str, sessions: int) -> Iterator[Login]:
    """A second sshd of a lab, which allows so many sessions on a connection (`MaxSessions`), while the block runs."""
    folder, block = root / "ssh", claim_block(1)
    (own,) = re.findall(rf"^ListenAddress {HOST}:(\d+)$", (folder / "sshd_config").read_text(), re.MULTILINE)
    to = Login(HOST, block.base, user, folder / "client_key", folder / f"known_hosts_{block.base}")
    to.known_hosts.write_text((folder / "known_hosts").read_text().replace(f":{own} ", f":{to.port} "))
    text = (folder / "sshd_config").read_text().replace(f"{HOST}:{own}\n", f"{HOST}:{to.port}\n")
    # Of two values the first one counts.
    path = folder / f"sshd_config_{to.port}"
    path.write_text(f"MaxSessions {sessions}\n{text.replace('sshd.pid', f'sshd_{to.port}.pid')}")
    program = shutil.which("sshd", path=config.SYSTEM_PATH) or "sshd"
    with subprocess.Popen([program, "-D", "-e", "-f", str(path)], stderr=subprocess.PIPE) as daemon:
        try:
            assert daemon.stderr is not None
            # It has said so once it listens. What it says later fits into the pipe.
            daemon.stderr.readline()
            yield to
        finally:
            daemon.terminate()
            block.release()
