"""The lab's configuration files: slurm.conf, gres.conf, sshd_config.

One host plays all nodes (Slurm's "multiple slurmd" set-up): each slurmd has its own name, port, spool folder,
pid file and log, told apart by %n.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


LEAF = 16
"""Nodes of a leaf switch."""


@dataclass(frozen=True)
class Settings:
    """What the files depend on.

    `min_job_age`: seconds that Slurm remembers a finished job, 2 or more; `slurmd_timeout`: after which a node
    that does not answer is down; `slurmdbd_port`: 0 for a cluster without accounting.
    """

    root: Path
    nodes: int
    slurmctld_port: int
    slurmd_port: int
    slurmdbd_port: int
    min_job_age: int
    slurmd_timeout: int


def slurm_conf(s: Settings) -> str:
    """slurm.conf for a controller and `nodes` nodes of 8 GPUs on this host."""
    host = socket.gethostname().partition(".")[0]
    last_port = s.slurmd_port + s.nodes - 1
    ports = f"{s.slurmd_port}-{last_port}"
    return f"""\
ClusterName=pacemark
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={s.slurmctld_port}
# Listen on loopback only.
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
CredType=cred/munge
# cred_expire is also how long a requeued job waits before it starts again. Default: 120 s, also if below 5. On a busy machine
# a step may begin seconds after its credential was made.
AuthInfo=socket={s.root}/munge/socket,cred_expire=10
StateSaveLocation={s.root}/state
SlurmdSpoolDir={s.root}/spool/%n
SlurmctldPidFile={s.root}/run/slurmctld.pid
SlurmdPidFile={s.root}/run/slurmd.%n.pid
SlurmctldLogFile={s.root}/log/slurmctld.log
SlurmdLogFile={s.root}/log/slurmd.%n.log
SlurmctldDebug=info
SlurmdDebug=error
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
{_accounting(s)}
JobCompType=jobcomp/filetxt
JobCompLoc={s.root}/log/jobcomp.txt
SelectType=select/cons_tres
TopologyPlugin=topology/tree
SelectTypeParameters=CR_CPU_Memory
PropagateResourceLimits=NONE
ReturnToService=2
JobRequeue=1
TreeWidth=64
# Quick: start, end and forget a job within about a second.
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
PriorityType=priority/basic
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
EpilogMsgTime=100
Prolog={s.root}/bin/prolog
Epilog={s.root}/bin/epilog
KillWait=2
CompleteWait=0
InactiveLimit=0
MinJobAge={s.min_job_age}
# Also how long a command tries a controller that is down. On a busy machine one that is well may answer after seconds.
MessageTimeout=10
SlurmctldTimeout=300
SlurmdTimeout={s.slurmd_timeout}
MaxArraySize=1001
GresTypes=gpu
NodeName=gpu[001-{s.nodes:03d}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{ports}] \
CPUs=16 RealMemory=1000 Gres=gpu:8 State=UNKNOWN
PartitionName=batch Nodes=ALL Default=YES MaxTime=2:00:00 State=UP
PartitionName=small Nodes=ALL MaxNodes=2 MaxTime=0:30:00 State=UP
# A job here takes the nodes of others, which go back into the queue, or end if they may not be requeued.
PartitionName=urgent Nodes=ALL PriorityTier=10 MaxTime=0:30:00 State=UP
"""


def topology_conf(s: Settings) -> str:
    """topology.conf: leaf switches of `LEAF` nodes below one spine."""
    firsts = range(1, s.nodes + 1, LEAF)
    lines = [
        f"SwitchName=leaf{number} Nodes=gpu[{first:03d}-{min(first + LEAF - 1, s.nodes):03d}]"
        for number, first in enumerate(firsts)
    ]
    return "\n".join([*lines, f"SwitchName=spine Switches=leaf[0-{len(firsts) - 1}]"]) + "\n"


def _accounting(s: Settings) -> str:
    if not s.slurmdbd_port:
        return """\
# No slurmdbd: sacct has nothing to say here, as on many real clusters.
AccountingStorageType=accounting_storage/none"""
    return f"""\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={s.slurmdbd_port}
# For slurmdbd this is where munged listens.
AccountingStoragePass={s.root}/munge/socket
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu"""


def slurmdbd_conf(s: Settings) -> str:
    """slurmdbd.conf for a database that is reached over its socket: that is what "localhost" means to its client."""
    host = socket.gethostname().partition(".")[0]
    return f"""\
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={s.slurmdbd_port}
# Listen on loopback only.
CommunicationParameters=NoInAddrAny
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={s.root}/munge/socket
PidFile={s.root}/run/slurmdbd.pid
LogFile={s.root}/log/slurmdbd.log
DebugLevel=info
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
"""


def gres_conf(s: Settings) -> str:
    """gres.conf: 8 GPUs on each node, the same 8 device files for all of them; nothing opens them."""
    return f"AutoDetect=off\nName=gpu File={s.root}/dev/nvidia[0-7]\n"


def sshd_config(root: Path, port: int, environment: Mapping[str, str]) -> str:
    """sshd_config: loopback, keys only, no SFTP; `environment` is what each session gets."""
    # Only the first SetEnv line counts, so all variables stand on one.
    variables = " ".join(f'"{name}={value}"' for name, value in environment.items())
    return f"""\
ListenAddress 127.0.0.1:{port}
HostKey {root}/ssh/host_key
PidFile {root}/run/sshd.pid
AuthorizedKeysFile {root}/ssh/authorized_keys
AuthenticationMethods publickey
PubkeyAuthentication yes
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
# The key file lies below /tmp, which others may write to; this lab is nobody's way in but its owner's.
StrictModes no
UsePAM no
UseDNS no
# It then says at the end of a connection how many bytes went over it.
LogLevel VERBOSE
PrintMotd no
MaxStartups 200:30:400
MaxSessions 200
SetEnv {variables}
"""
