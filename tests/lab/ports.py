"""Free TCP ports on loopback for a lab, such that several labs can run at once."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field

from tests.lab.daemons import LabError

# Below the kernel's range for outgoing connections (32768 and up), where srun and ssh clients get theirs.
_FIRST, _LAST, _BLOCK = 18000, 32000, 300


@dataclass
class Block:
    """Consecutive ports from `base` on."""

    base: int
    _claim: socket.socket = field(repr=False)

    def release(self) -> None:
        """Let another lab have the block."""
        self._claim.close()


@dataclass
class Ports:
    """A block of ports: one for slurmctld, sshd and slurmdbd each, and one for each node from `slurmd` on."""

    block: Block

    @property
    def slurmctld(self) -> int:
        return self.block.base

    @property
    def sshd(self) -> int:
        return self.block.base + 1

    @property
    def slurmdbd(self) -> int:
        return self.block.base + 2

    @property
    def slurmd(self) -> int:
        return self.block.base + 3

    def release(self) -> None:
        """Let another lab have them."""
        self.block.release()


def claim(nodes: int) -> Ports:
    """Ports for a Slurm of so many nodes."""
    return Ports(claim_block(nodes + 3))


def claim_block(count: int) -> Block:
    """Take the first block of which no other lab and no other program has a port; of at most 300 ports.

    The claim is a socket with a name in the kernel (no file): it ends with this process, however that ends.
    """
    for base in range(_FIRST, _LAST, _BLOCK):
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0pacemark-lab-{base}")
        except OSError:
            name.close()
            continue
        if all(_free(base + offset) for offset in range(count)):
            return Block(base, name)
        name.close()
    raise LabError(f"no {count} free ports in a row between {_FIRST} and {_LAST}")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        # As the daemons do it: a connection of an earlier lab in TIME_WAIT is no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
