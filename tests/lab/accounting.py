"""The Slurm lab with accounting: slurmdbd and a MariaDB of its own, with an account, and QOS as tests want them.

    with AccountingLab() as lab:
        qos = lab.qos("MaxTRESPerJob=gres/gpu=4")
        ...                                     # account: {ACCOUNT}, qos: {qos}

The database lies in the lab's root, is reached over a unix socket only, and is nobody's but root's.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from tests.lab import config, slurm
from tests.lab.daemons import Daemon, LabError
from tests.lab.slurm import SlurmLab
from tests.lab.sshd import missing_programs

INSTALL_HINT = "apt-get install -y --no-install-recommends slurmdbd mariadb-server-core"
PROGRAMS = ("slurmdbd", "mariadbd", "sacctmgr")

# What makes a datadir: mariadb-install-db would, but it calls programs of two more packages.
_SYSTEM_TABLES = Path("/usr/share/mysql/mysql_system_tables.sql")

ACCOUNT = "lab_acct"


def missing_parts() -> list[str]:
    """What this machine lacks for the lab with accounting, in words; empty if it can be run."""
    missing = [*slurm.missing_parts(), *missing_programs(PROGRAMS, INSTALL_HINT)]
    if not _SYSTEM_TABLES.exists():
        missing.append(f"the file {_SYSTEM_TABLES} ({INSTALL_HINT})")
    return missing


class AccountingLab(SlurmLab):
    """A small cluster whose jobs slurmdbd keeps, and whose controller forgets them, and silent nodes, after seconds."""

    accounting = True

    def __init__(self, nodes: int = 8) -> None:
        super().__init__(nodes=nodes, min_job_age=5, slurmd_timeout=20)
        self._made = 0

    def qos(self, *limits: str, allowed: bool = True) -> str:
        """A new QOS with these limits, as sacctmgr takes them; `allowed`: the lab's user may use it.

        A limit on GPUs needs a controller that is up: it names to slurmdbd what it counts.
        """
        self._made += 1
        name = f"qos{self._made}"
        self._manage("add", "qos", name, *limits)
        if allowed:
            self._manage("modify", "user", self.user, "set", f"qos+={name}")
        return name

    def stop_slurmdbd(self) -> None:
        """kill -9: sacct fails from here on, the controller keeps for later what it has to tell."""
        slurmdbd = self._daemons["slurmdbd"]
        if slurmdbd.process is not None:
            slurmdbd.process.kill()
            slurmdbd.process.wait()

    def start_slurmdbd(self) -> None:
        """(Again) answer sacct, sacctmgr and the controller."""
        self._daemons["slurmdbd"].start()
        self._wait(
            "slurmdbd",
            lambda: "normal" in self._try("sacctmgr", "-nP", "list", "qos"),
            time.monotonic() + slurm.PATIENCE,
        )

    def mend(self) -> None:
        """Start again what a test has stopped, slurmdbd too, and take every node back into service."""
        if self._daemons["slurmdbd"].pid is None:
            self.start_slurmdbd()
        super().mend()

    def _prepare(self) -> None:
        if missing := missing_parts():
            raise LabError("the Slurm lab with accounting needs " + "; ".join(missing))
        super()._prepare()

    def _configure(self, settings: config.Settings) -> None:
        super()._configure(settings)
        conf = self.root / "slurmdbd.conf"
        conf.touch(mode=0o600)
        conf.write_text(config.slurmdbd_conf(settings))

    def _define(self) -> list[Daemon]:
        folder = self.root / "mariadb"
        mariadbd = self._daemon(
            "mariadbd", "mariadbd", "--no-defaults", f"--datadir={folder}/data", f"--socket={folder}/socket",
            f"--pid-file={folder}/pid", "--user=root", "--skip-networking", "--skip-grant-tables",
            "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0",
        )  # fmt: skip
        # Where the client library looks for "localhost".
        slurmdbd = self._daemon("slurmdbd", "slurmdbd", "-D", env={"MYSQL_UNIX_PORT": f"{folder}/socket"})
        return [mariadbd, slurmdbd, *super()._define()]

    def _start_accounting(self, deadline: float) -> None:
        folder = self.root / "mariadb"
        # Whoever reaches the socket may do anything.
        folder.mkdir(mode=0o700)
        (folder / "data" / "mysql").mkdir(parents=True)
        mariadbd = self._daemons["mariadbd"]
        tables = "USE mysql;\n" + _SYSTEM_TABLES.read_text()
        made = subprocess.run(
            [*mariadbd.argv, "--bootstrap"],
            env=self.environment,
            input=tables,
            capture_output=True,
            text=True,
            timeout=300,
        )
        if made.returncode != 0:
            raise LabError(f"mariadbd --bootstrap: exit code {made.returncode}:\n{made.stderr[-2000:]}")
        mariadbd.start()
        self._wait("mariadbd", (folder / "socket").exists, deadline)
        self.start_slurmdbd()
        # The user is root, whom Slurm holds to its QOS and account like anybody else.
        self._manage("add", "cluster", "pacemark")
        self._manage("add", "account", ACCOUNT, "cluster=pacemark")
        self._manage("add", "user", self.user, f"account={ACCOUNT}", f"defaultaccount={ACCOUNT}")

    def _manage(self, *words: str) -> None:
        self.run("sacctmgr", "--immediate", *words)
