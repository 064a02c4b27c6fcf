"""What Slurm takes, asked in real bash of stand-ins that print what Slurm 22.05 with accounting printed in the lab."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from fixtures.backends.base import Findings
from fixtures.backends.shell import Answer
from fixtures.backends.slurm.answers import LoginNode
from fixtures.backends.slurm.inventory import other_gpus
from fixtures.backends.slurm.preflight import Limits, long_waits
from fixtures.backends.slurm.section import Slurm
from fixtures.backends.ssh.connection import SshConnection
from plugins.base.errors import Denied, Unreachable
from tests.unit import examples
from tests.unit.backends.slurm.login import KEYS, Login

CASES = {nodes: examples.case(f"8b-bf16-{8 * nodes}gpus") for nodes in (1, 2, 4, 8)}
TAKEN = "sbatch: Job 98 to start at 2026-11-28T20:37:20 using 32 processors on nodes gpu[001-002] in partition batch"
LATER = "sbatch: Job 19 to start at 2027-02-26T20:57:26 using 128 processors on nodes gpu[001-008] in partition batch"
UNFIT = "allocation failure: Requested node configuration is not available"
POLICY = "allocation failure: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
BATCH = {**KEYS, "account": "kid", "partition": "batch", "stage": "/s", "gres": "gpu:8"}

# Prints the file of its answers that is named after its options, with the status in that file's first line.
SBATCH = """\
nodes= jobs=1 later=
for word; do
    case $word in --nodes=*) nodes=${word#*=} ;; --array=1-*) jobs=${word#*-*-*-} ;; --begin=*) later=-later ;; esac
done
echo "$* QOS=$SBATCH_QOS GRES=$SBATCH_GRES" >>"${0%/*}/calls"
file=${0%/*}/$nodes-$jobs$later
[ -e "$file" ] || file=${0%/*}/usual
tail -n +2 "$file" >&2
exit "$(head -n 1 "$file")"\
"""


class Site(Login):
    """A login node of which a test says what sbatch answers."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(root, monkeypatch)
        for tool, bash in {"sbatch": SBATCH, "scontrol": "", "sacctmgr": ""}.items():
            self.tool(tool, bash)
        self.says(TAKEN, 0)
        self.keys: dict[str, Any] = {}

    def says(self, text: str, status: int, nodes: int = 0, jobs: int = 1, later: str = "") -> None:
        """Let sbatch say this to a question; to all others without `nodes`."""
        name = f"{nodes}-{jobs}{later}" if nodes else "usual"
        (self.tools / name).write_text(f"{status}\n{text}\n")

    @cached_property
    def limits(self) -> Limits:
        section = Slurm.model_validate({**BATCH, **self.keys})
        return Limits(LoginNode("lab", section, SshConnection(section.ssh)))

    def ask(self, *nodes: int) -> Findings:
        return self.limits.findings([CASES[count] for count in nodes])

    def refused(self, *nodes: int) -> str:
        (missing,) = self.ask(*nodes).missing
        return missing

    @property
    def calls(self) -> list[str]:
        return sorted((self.tools / "calls").read_text().splitlines())


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


def test_each_scale_and_the_jobs_at_once_are_asked_once_a_session(site: Site) -> None:
    site.keys = {"qos": "gpu", "time_limit": "01:00:00", "reservation": "accept"}
    findings = site.ask(2, 2, 1)
    assert (findings.missing, findings.remarks) == ([], [])
    taken = (
        "Slurm takes 8b-bf16-16gpus, 8b-bf16-16gpus on 2 node(s), 8b-bf16-8gpus on 1 node(s), 3 jobs at once"
    )
    assert findings.ready == [taken]
    asked = "--test-only --exclusive --mem=0 --account=kid --partition=batch --time=01:00:00"
    calls = [
        f"{asked} --nodes=1 --array=1-3 --wrap=true QOS=gpu GRES=gpu:8",
        f"{asked} --nodes=1 --wrap=true QOS=gpu GRES=gpu:8",
        f"{asked} --nodes=2 --wrap=true QOS=gpu GRES=gpu:8",
    ]
    assert site.calls == calls
    assert site.ask(1, 2, 2) == site.ask(1, 2, 2)
    assert site.calls == calls


def test_what_slurm_refuses_is_told_in_its_words_with_the_cases_and_what_to_do(site: Site) -> None:
    site.says(f"sbatch: error: QOSMaxGRESPerJob\n{POLICY}", 1, nodes=4)
    site.says(f"sbatch: error: QOSMaxGRESPerJob\n{POLICY}", 1, nodes=8)
    assert site.ask(8, 4, 2).ready == ["Slurm takes 8b-bf16-16gpus on 2 node(s), 3 jobs at once"]
    assert site.refused(8, 4, 2).startswith(
        "Slurm refuses 8b-bf16-64gpus on 8 node(s), 8b-bf16-32gpus on 4 node(s): sbatch: error: QOSMaxGRESPerJob / "
        f"{POLICY}\n    mend: set `max_gpus` (now not set), `time_limit` (now 00:30:00), `qos` (now not set) or "
    )
    assert site.ask(8, 4, 2).remarks == []


def test_nodes_that_somebody_has_reserved_for_a_while_refuse_no_case(site: Site) -> None:
    site.says(UNFIT, 1, nodes=8)
    site.says(LATER, 0, nodes=8, later="-later")
    assert site.ask(8).ready == ["Slurm takes 8b-bf16-64gpus on 8 node(s)"]
    assert "--begin=now+90days" in site.calls[0]


@pytest.mark.parametrize(
    "keys", [{"reservation": "accept"}, {"environment": {"SBATCH_RESERVATION": "accept"}}]
)
def test_a_job_in_a_reservation_is_not_asked_for_after_its_end(site: Site, keys: dict[str, Any]) -> None:
    site.keys = keys
    site.says(UNFIT, 1, nodes=8)
    site.says(LATER, 0, nodes=8, later="-later")
    refused = site.refused(8)
    assert refused.startswith(f"Slurm refuses 8b-bf16-64gpus on 8 node(s): {UNFIT}\n    mend: set `max_gpus`")


def test_fewer_jobs_at_once_than_a_session_submits_are_told(site: Site) -> None:
    site.keys = {"limits": {"jobs_in_flight": 2}}
    site.says(f"sbatch: error: QOSMaxSubmitJobPerUserLimit\n{POLICY}", 1, nodes=1, jobs=2)
    refused = site.refused(4, 2, 1)
    assert refused.startswith("Slurm refuses 2 jobs at once: sbatch: error: QOSMaxSubmitJobPerUserLimit / ")
    assert "\n    mend: set `jobs_in_flight` of `limits` (now 2) in the site file; see " in refused


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("allocation failure: Socket timed out on send/recv operation", 1),
        ("allocation failure: Unable to contact slurm controller (connect failure)", 1),
        ("sbatch: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\nsbatch: fatal: Could not establish a configuration source", 1),
        # What job_submit/lua prints, with the error that it gives.
        ("sbatch: error: ask for fewer nodes\nallocation failure: Unspecified error", 1),
        ("allocation failure: Access/permission denied", 1),
        # A reservation that begins later.
        ("allocation failure: Invalid time specified", 1),
        ("allocation failure: Requested nodes are busy", 1),
        ("sbatch: unrecognized option '--test-only'\nTry \"sbatch --help\" for more information", 255),
        ("timeout: failed to run command 'sbatch': No such file or directory", 127),
        ("", 124),
        ("Submitted nothing", 0),
        (UNFIT, 0),
    ],
)  # fmt: skip
def test_an_answer_that_is_no_clear_refusal_refuses_no_case(site: Site, text: str, status: int) -> None:
    site.keys = {"reservation": "accept"}
    site.says(text, status, nodes=2)
    findings = site.ask(2, 1)
    assert findings.missing == []
    said = text.replace("\n", " / ")
    assert findings.remarks == [
        f"whether Slurm takes 8b-bf16-16gpus on 2 node(s) is not known: sbatch says {said}"
    ]


@pytest.mark.parametrize(
    ("error", "raised"), [(Unreachable("lab: no answer within 60 s"), False), (Denied("lab: refused"), True)]
)
def test_only_a_cluster_that_denies_access_ends_the_check(
    site: Site, monkeypatch: pytest.MonkeyPatch, error: Unreachable, raised: bool
) -> None:
    def fail(self: SshConnection, script: str, **how: object) -> Answer:
        raise error

    monkeypatch.setattr(SshConnection, "run", fail)
    if raised:
        with pytest.raises(Denied):
            site.ask(1, 2)
    else:
        remark = "Slurm could not be asked what it takes: lab: no answer within 60 s"
        assert site.ask(1, 2) == Findings([], [], [remark])


@pytest.mark.parametrize(
    ("listed", "keys", "said"),
    [
        ("gpu:8(S:0-1)\n(null)", {}, []),
        ("gpu:H100:8,nvme:1", {"gres": "gpu:h100:8"}, []),
        ("gpu:h100:4\ngpu:h100:8", {"gres": "gpu:8"}, []),
        ("(null)\na banner", {}, []),
        ("gpu:h100:4,gpu:a100:4", {}, []),
        ("gpu:h100:4\ngpu:2", {}, ["no node of the partition batch has 8 GPUs; they have 2 or 4"]),
    ],
)
def test_gpus_that_no_node_has_are_told(listed: str, keys: dict[str, Any], said: list[str]) -> None:
    section = Slurm.model_validate({**BATCH, "gres": None, **keys})
    assert [text.partition("\n")[0] for text in other_gpus(listed, section)] == said


# What may let a case wait for hours. A partition in the form of `scontrol --oneliner`, rows of sacctmgr behind what they are of:
# GrpTRES, GrpTRESRunMins, MaxTRESPU, MaxTRESPA.

NAMES = {2: "of-2", 8: "of-8"}


def waits(text: str, **keys: Any) -> list[str]:
    section = Slurm.model_validate({**BATCH, **keys})
    return [line.partition(". If it holds")[0] for line in long_waits(text, section, NAMES)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("PartitionName=batch AllowGroups=ALL State=DOWN TotalCPUs=64", ["partition batch is down: its jobs wait until it is up"]),
        ("PartitionName=batch AllowGroups=ALL State=UP TotalCPUs=64", []),
        ("QOS|qos1|cpu=64,gres/gpu=32|||", ["GrpTRES gres/gpu=32 of QOS qos1 is less than what of-8 needs"]),
        ("QOS|qos1|||gres/gpu=8,node=4|", ["MaxTRESPU gres/gpu=8 of QOS qos1 is less than what of-2, of-8 needs", "MaxTRESPU node=4 of QOS qos1 is less than what of-8 needs"]),
        ("QOS|qos1||||node=4", ["MaxTRESPA node=4 of QOS qos1 is less than what of-8 needs"]),
        ("QOS|qos1||gres/gpu=1000||", ["GrpTRESRunMins gres/gpu=1000 of QOS qos1 is less than what of-8 needs"]),
        ("account|lab_acct|gres/gpu=16|||\nuser|root|node=8|||", ["GrpTRES gres/gpu=16 of account lab_acct is less than what of-8 needs"]),
        ("QOS|qos1|gres/gpu=64,node=8|gres/gpu=1920|gres/gpu=64|mem=1", []),
        ("QOS|normal||||\naccount|root||||\nbanner|of|node=1|||\nQOS|cut|node=1", []),
    ],
)  # fmt: skip
def test_a_limit_of_several_jobs_that_one_exceeds_alone_is_remarked_on(text: str, said: list[str]) -> None:
    assert waits(text) == said


def test_only_what_a_job_asks_for_is_compared() -> None:
    assert waits("QOS|qos1|gres/gpu=1,gres/gpu:h100=1|||", gres=None) == []
    assert len(waits("QOS|qos1|gres/gpu:h100=1|||", gres="gpu:h100:8")) == 1
    assert waits("QOS|qos1|gres/gpu:a100=1|||", gres="gpu:h100:8") == []


def test_the_rows_are_those_of_the_jobs_own_qos_and_accounts(site: Site) -> None:
    site.tool(
        "scontrol",
        'case $* in *config) echo "ClusterName             = lab" ;; *) echo "PartitionName=batch QoS=part State=UP" ;; esac',
    )
    site.tool(
        "sacctmgr",
        """case $* in
    *"show qos where name=part,usual format="*) echo 'part||||'; echo 'usual|gres/gpu=8|||' ;;
    *"clusters=lab account=kid user=$(id -un) format=DefaultQOS"*) echo usual ;;
    *"clusters=lab account=kid user=$(id -un)"*) echo 'me||' ;;
    *"account=kid user= "*) echo 'lab_acct|kid||' ;;
    *"account=lab_acct user= "*) echo 'root|lab_acct|node=1|' ;;
    *"account=root user= "*) echo '|root||' ;;
    *) exit 1 ;;
esac""",
    )
    told = [remark.partition(" is less")[0] for remark in site.ask(2).remarks]
    assert told == ["GrpTRES gres/gpu=8 of QOS usual", "GrpTRES node=1 of account lab_acct"]
