"""What a new user gets wrong: each mistake ends in one message, with its exit code and without a traceback.

docs/dev/mistakes.md has the same table: `python -m tests.unit.test_mistakes >docs/dev/mistakes.md` writes it.
"""

from __future__ import annotations

import re
import shlex
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import paramiko
import pytest
from paramiko.common import AUTH_FAILED

from pacemark.__main__ import main
from tests.system.support import ROOT, pacemark
from tests.unit import kubeapi, sshd

SLURM = """\
site: lab
slurm:
  gpu: h100
  account: me
  partition: batch
  stage: /lustre/me/pacemark
  ssh: {host: 127.0.0.1, port: PORT, user: me, key: KEY, known_hosts: HOSTS, config: /none}
"""
JOBSET = """\
site: lab
jobset:
  gpu: h100
  kubeconfig: KUBECONFIG
  recipes: {llama3_gke: {values: {image: registry.test/nemo, bucket: logs}}}
"""
JOBSET_ALONE = JOBSET.replace(
    "  recipes: {llama3_gke: {values: {image: registry.test/nemo, bucket: logs}}}\n", ""
)
PLAN = """\
site: this-machine
cases: [llama3/70b-fp8-512gpus]
"""
ONE = "suites/llama3 -k '70b and fp8 and 512'"
GKE = "suites/llama3_gke -k '70b and fp8 and 128'"


@dataclass(frozen=True)
class Mistake:
    """What is wrong, what was typed behind `pytest`, parts of what is said, and the exit code.

    Of the site file or the acceptance plan, if there is one, `old` is replaced by `new`. `server` is what answers at its address, and
    `environment` what is set.
    """

    what: str
    typed: str
    said: tuple[str, ...]
    status: int = 4
    site: str = ""
    old: str = ""
    new: str = ""
    server: str = ""
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        assert self.old in self.site
        return self.site.replace(self.old, self.new) if self.old else self.site


def option(what: str, typed: str, *said: str) -> Mistake:
    return Mistake(what, typed, said)


def file(what: str, old: str, new: str, *said: str, typed: str = ONE, site: str = SLURM) -> Mistake:
    return Mistake(what, f"{typed} --site site.yaml", said, site=site, old=old, new=new)


def plan(what: str, old: str, new: str, *said: str, more: str = "") -> Mistake:
    typed = f"suites {more} --acceptance acceptance.yaml".replace("  ", " ")
    return Mistake(what, typed, said, site=PLAN, old=old, new=new)


def contact(what: str, server: str, *said: str, old: str = "", new: str = "", kind: str = "") -> Mistake:
    kind = kind or (JOBSET if server in KUBERNETES else SLURM)
    typed = GKE if kind is JOBSET else ONE
    return Mistake(what, f"{typed} --site site.yaml", said, 1, site=kind, old=old, new=new, server=server)


KUBERNETES = ("no API", "401", "403", "not TLS", "no API of that name")

MISTAKES = [
    # The command line
    option("no site file", ONE, "llama3 runs on a cluster: give it with --site FILE"),
    option("a site file that is not there", f"{ONE} --site my.yaml", "my.yaml: no such file"),
    option("a folder for the site file", f"{ONE} --site suites", "suites: cannot be read: it is no regular file"),
    option("a suite that is not there", "suites/lama3", "file or directory not found: suites/lama3"),
    option("an option that is not there", f"{ONE} --sight my.yaml", "unrecognized arguments: --sight"),
    option("an expression that is none", "suites/llama3 -k '70b and and fp8'", "Wrong expression passed to '-k'"),
    option("a backend for --backend", f"{ONE} --backend slurm", "invalid choice: 'slurm'"),
    option("a log without --backend replay", f"{ONE} --from log.out", "--backend replay and --from PATH go together"),
    option("a path that cannot be looked at", f"{ONE} --backend replay --from {'1' * 300}", "1111: File name too long"),
    option("a site file to write that cannot be looked at", f"suites --init-site slurm://login --site {'1' * 300}", "1111: File name too long"),
    option("a log that is not there", f"{ONE} --backend replay --from log.out", "--from log.out: no such file or folder"),
    option("a pipe for a log", f"{ONE} --backend replay --from /dev/null", "--from /dev/null: is neither a file nor a folder"),
    option("a folder without a log", f"{ONE} --backend replay --from docs --gate", "no log of llama3/70b-fp8-512gpus below ", "name the log itself with --from"),
    option("a folder without a log for many cases", "suites/nemotron4 --backend replay --from docs", "no log of nemotron4/", "Nor is there one of the other "),
    option("one log for many cases", "suites/llama3 --backend replay --from README.md", "is one log, but 34 cases are selected; choose its case with -k or -m"),
    option("a check of one log for many cases", "suites/llama3 --check --backend replay --from README.md", "is one log, but 34 cases are selected; choose its case with -k or -m"),
    option("a run that is not there", f"{ONE} --resume monday", "no run 'monday' in"),
    option("a run to cancel that is not there", "suites --cancel monday", "no run 'monday' in"),
    option("a variable that is not set", "suites --cancel ''", "--cancel is empty; is a variable not set?"),
    option("a command on runs beside an option of a session", "suites --sweep --check", "--sweep does nothing else: it does not go together with --check"),
    option("two commands on runs", "suites --list-runs --sweep", "--list-runs does nothing else: it does not go together with --sweep"),
    option("--sweep that shall only look", "suites --sweep --plan", "--sweep does nothing else: it does not go together with --plan"),
    option("--cancel beside --resume", "suites --cancel monday --resume monday", "--cancel does nothing else: it does not go together with --resume"),
    option("--resume of a replay", "suites/llama3 --resume monday --backend replay --from .", "--resume goes on with a run's jobs, and a replay has none"),
    option("--isolate of a replay", "suites/llama3 --isolate 3 --backend replay --from .", "--isolate runs a case again: a log that exists cannot be run again"),
    option("--check of something else than a suite", "tests --check", "--check is about suites: name `suites`, or what is in it"),
    option("--check beside --collect-only", f"{ONE} --check --collect-only", "--check asks the cluster, and --collect-only asks nothing: leave one out"),
    option("--check beside --plan", f"{ONE} --check --plan", "--check asks the cluster and runs nothing: it does not go together with --plan"),
    option("a budget that is no number", f"{ONE} --isolate much", "'much' is no number of GPU-hours above 0, such as 12 or 0.5"),
    option("a negative number", f"{ONE} --retry-infrastructure -1", "--retry-infrastructure counts: it cannot be negative"),
    option("an option without the one that it is about", f"{ONE} --exclude-failed-nodes", "--exclude-failed-nodes is about further tries: give --retry-infrastructure N too"),
    option("nodes that are no list", f"{ONE} --exclude-nodes 'gpu[017'", "'gpu[017' is no list of nodes, such as gpu[017-018] or gpu017,gpu042"),
    option("nodes of this machine", "suites/proxy -k tiny --exclude-nodes gpu017", "--exclude-nodes: local has no node gpu017 for these cases"),
    option("nodes without a screening", "suites/proxy --nodes gpu[001-016]", "--nodes is about suites/node: name that"),
    option("nodes of a replay", f"{ONE} --exclude-nodes gpu017 --backend replay --from .", "--exclude-nodes is about jobs, and a log that exists has run"),
    option("two options that contradict each other", f"{ONE} --repeat-undecided --strict-last", "give one of them"),
    option("a variant that no recipe has", "suites/gpt3_aks --variant shrap --plan", "--variant shrap: none of these recipes has it; known: checkpoint, sharp"),
    option("a release that is not there", f"{ONE} --plan --release 99.01", "llama3 has no release 99.01; it has 24.11"),
    option("an earlier run that is not there", f"{ONE} --compare nowhere", "--compare nowhere: no run 'nowhere' in "),
    option("a property that cases do not have", "suites/llama3 -m 'case(gpu=16)'", "a case has no gpu; did you mean 'gpus'?"),
    option("an address without its kind", "suites --init-site login.example.com", "--init-site login.example.com"),
    option("a session without a part of Pacemark", f"{ONE} -p no:pacemark-worker", "-p no:pacemark-worker: Pacemark does not work without it: leave that out"),
    option("own numbers that are not there", f"{ONE} --plan --site-baselines mine", "/mine: no such folder"),
    option("recording without a site", f"{ONE} --record-baselines", "recorded baselines belong to a site: name it with --site FILE"),
    # The acceptance plan
    option("a plan that is not there", "suites --acceptance plan.yaml", "plan.yaml: no such file"),
    option("scaling of a single scale", "suites/proxy -k tiny --scaling 0.05", "--scaling: no two of the selected cases differ in their number of GPUs alone"),
    option("a share that is none", "suites --scaling 3", "'3' is no share above 0, up to 0.2, such as 0.05"),
    plan("an option that the plan decides", "", "", "--repeat changes what the acceptance plan asks for: leave it out", more="--repeat 3"),
    plan("a case that there is not", "512gpus", "500gpus", "cases: no case is llama3/70b-fp8-500gpus; did you mean 'llama3/70b-fp8-"),
    plan("another site", "site: this-machine", "site: lab", "the acceptance plan is of site lab, and without --site the site is this-machine: nothing was run"),
    plan("another type of GPU", "512gpus]", "512gpus]\ngpu: h200", "acceptance.yaml: gpu: the plan asks for h200, and by the site file llama3 runs on h100"),
    plan("a type of GPU as it is no log's", "llama3/70b-fp8-512gpus]", "proxy/8b-8l-bf16-1gpus]\ngpu: NVIDIA H100", "acceptance.yaml: gpu: nvidia h100: write h100"),
    plan("a type of GPU for a case on a CPU", "llama3/70b-fp8-512gpus]", "proxy/tiny-fp32-1gpus]\ngpu: h100", "acceptance.yaml: gpu: the plan asks for h100, and by the site file proxy runs on cpu"),
    plan("a plan that the site cannot run", "", "", "acceptance.yaml: cases: the site cannot run llama3/70b-fp8-512gpus: llama3 runs on a cluster: give it with --site FILE"),
    plan("an unknown key of the plan", "cases:", "case:", "acceptance.yaml:2: case: unknown key; did you mean 'cases'?"),
    plan("a pattern without its number", "512gpus", "*", "number: say how many cases these are, because `cases` has a pattern"),
    plan("another number of cases", "512gpus]", "*]\nnumber: 5", "number: the plan says 5 cases, and `cases` selects 6"),
    plan("a number where the plan has keys", "512gpus]", "512gpus]\nrepeats: 3", "acceptance.yaml:3: repeats: expected keys with values (at_most, always), got 3"),
    plan("one case that is no list", "[llama3/70b-fp8-512gpus]", "llama3/70b-fp8-512gpus", "acceptance.yaml:2: cases: expected a list, such as [a, b], got 'llama3/70b-fp8-512gpus'"),
    plan("numbers without what they are judged with", "512gpus]", "512gpus]\nnumbers: {llama3/70b-fp8-512gpus: 10}", "acceptance.yaml:3: numbers: say `tolerance` too"),
    plan("a tolerance that judges nothing", "512gpus]", "512gpus]\ntolerance: {slower: 0.5}", "tolerance.slower: must be 0.2 or less, got 0.5"),
    # The site file
    file("an unknown key", "account:", "acount:", "site.yaml:4: slurm.acount: unknown key; did you mean 'account'?", "site.yaml:2: slurm.account: missing; this key is required"),
    file("a wrong type", "  gpu: h100\n", "  gpu: h100\n  gpus_per_node: eight\n", "site.yaml:4: slurm.gpus_per_node: expected a whole number, got 'eight'"),
    file("a time without quotes", "  gpu: h100\n", "  gpu: h100\n  time_limit: 1:30:00\n", "site.yaml:4: slurm.time_limit: ", "(YAML reads this as a number: put it in quotes)"),
    file("a recipe that is misspelt", "  gpu: h100\n", "  gpu: h100\n  recipes: {lama3: {}}\n", "site.yaml:4: slurm.recipes.lama3: no recipe has this name; did you mean 'llama3'?", typed=f"{ONE} --plan"),
    file("a recipe that is judged from logs alone", "gpu: h100", "gpu: gb300", "megatron_bridge release 26.08 cannot be run, only judged from logs: judge its logs with --backend replay --from PATH", typed="suites/megatron_bridge"),
    file("a recipe of another kind of cluster", "  gpu: h100\n", "  gpu: h100\n  recipes: {llama3: {}}\n", "site.yaml:4: jobset.recipes.llama3: llama3 runs on slurm, not on jobset", typed=f"{GKE} --plan", site=JOBSET_ALONE),
    file("a value that no recipe knows", "  gpu: h100\n", "  gpu: h100\n  recipes: {proxy: {values: {imagee: a}}}\n", "site.yaml:4: slurm.recipes.proxy.values.imagee: means nothing to proxy; did you mean 'image'?", typed=f"{ONE} --plan"),
    file("the same on Kubernetes", "bucket: logs", "bukket: logs", "site.yaml:5: jobset.recipes.llama3_gke.values.bukket: means nothing to llama3_gke; did you mean 'bucket'?", typed=f"{GKE} --plan", site=JOBSET),
    file("a dtype that is misspelt", "  gpu: h100\n", "  gpu: h100\n  dtypes: [BF16]\n", "site.yaml:4: slurm.dtypes.0: must be 'fp8', 'fp8_cs', 'fp8_block', 'mxfp8', 'nvfp4', 'bf16', 'fp16' or 'fp32', got 'BF16'; did you mean 'bf16'?"),
    file("a number in quotes", "  gpu: h100\n", '  gpu: h100\n  gpus_per_node: "8"\n', "site.yaml:4: slurm.gpus_per_node: expected a whole number, got '8' (write it without quotes)"),
    file("a number of a million digits", "  gpu: h100\n", f"  gpu: h100\n  max_gpus: {'1' * 1_000_000}\n", "site.yaml:4: a number of 1,000,000 digits, where 100 are the most"),
    file("a time in other units", "  gpu: h100\n", '  gpu: h100\n  time_limit: "1h"\n', "site.yaml:4: slurm.time_limit: expected hours:minutes:seconds, such as \"00:30:00\", got '1h'"),
    file("an account with a space", "account: me", "account: me too", "site.yaml:4: slurm.account: expected the name of one account, without spaces, got 'me too'"),
    file("a name that YAML reads as a truth value", "partition: batch", "partition: no", "site.yaml:5: slurm.partition: expected text, got False (YAML reads yes, no, on and off as true and false: put it in quotes)"),
    file("a stage below ~", "/lustre/me/pacemark", "~/me", "site.yaml:6: slurm.stage: expected a whole path on the cluster, such as /lustre/me/pacemark, without ~, $, spaces and quotes, got '~/me'"),
    file("a host with its user", "host: 127.0.0.1", "host: me@login", "site.yaml:7: slurm.ssh.host: expected a host name or an address alone: the user and the port have keys of their own, `user` and `port`, got 'me@login'"),
    file("a key that is given twice", "  gpu: h100\n", "  gpu: h100\n  gpu: h200\n", "site.yaml:4: gpu: given twice; keep one"),
    file("a bracket that is never closed", "site: lab\n", "site: [\n", "site.yaml:", "not valid YAML"),
    file("an empty file", SLURM, "", "site.yaml: expected `key: value` lines, found none"),
    file("a type of GPU that is not known", "gpu: h100", "gpu: H800", "site.yaml:3: slurm.gpu: no table has the GPU 'h800'", "did you mean 'h200'?"),
    file("a network by another name than NCCL's", "  gpu: h100\n", "  gpu: h100\n  network: InfiniBand\n", "site.yaml:4: slurm.network: NCCL prints no network of the name 'InfiniBand'; did you mean 'IB'?"),
    file("a part of a node's GPUs", "  gpu: h100\n", "  gpu: h100\n  gres: \"gpu:4\"\n", "site.yaml:4: slurm.gres: asks for 4 GPUs of a node, and `gpus_per_node` is 8"),
    Mistake("a time limit that is too short", f"{ONE} --plan --site site.yaml", ("too short for 70b-fp8-512gpus of llama3: `slurm.time_limit` (site.yaml:4) ends a job after 5 minutes, less than the estimate: raise it",), 0, site=SLURM, old="  gpu: h100\n", new="  gpu: h100\n  time_limit: \"5\"\n"),
    Mistake("a case that another release has", "suites/llama3 -k 'fp8_cs and 70b' --plan", ("-k 'fp8_cs and 70b' selects none of 34 case(s); release 26.08.00 has llama3/70b-fp8_cs-",), 5),
    file("a variable that makes the case another one", "  gpu: h100\n", "  gpu: h100\n  environment: {DTYPE: bf16}\n", "slurm.environment sets DTYPE, which llama3 sets itself; take it out"),
    file("a site of another kind of cluster", "", "", "llama3_gke needs a `jobset:` section, which site 'lab' does not have", typed=GKE),
    file("a value that is missing", "image: registry.test/nemo, ", "", "llama3_gke: ", "(recipes.llama3_gke.values.image) is not set\n    mend: ", typed=GKE, site=JOBSET),
    file("a kubeconfig that is not there", "KUBECONFIG", "/home/me/kubeconfig", "/home/me/kubeconfig cannot be used: no such file", "mend: set `kubeconfig` and `context` in the site file", typed=GKE, site=JOBSET),
    file("a context that is not there", "  gpu: h100\n", "  gpu: h100\n  context: prod\n", "context prod: kubeconfig cannot be used: ", "Expected object with name prod in", typed=GKE, site=JOBSET),
    Mistake("a screening without the recipe that it runs", "suites/node --site site.yaml --plan", ("suites/node runs the recipe proxy, which site lab would run on local: add `recipes: {proxy: {}}` to its section `slurm`",), site=SLURM),
    Mistake("a screening of a cluster that does not answer", "suites/node --site site.yaml --collect-only", ("suites/node has a test for each node, and the nodes cannot be asked for: ssh me@127.0.0.1:PORT: no connection", "--collect-only and --plan need nobody to be asked with --nodes HOSTLIST"), site=SLURM, old="  gpu: h100\n", new="  gpu: h100\n  recipes: {proxy: {}}\n", server="none"),
    # What this machine lacks
    Mistake("no token", f"{ONE} --site site.yaml", ("llama3: HF_TOKEN is not set where pytest runs\n    mend: export HF_TOKEN=...",), site=SLURM, environment=(("HF_TOKEN", ""),)),
    Mistake("a token that is cut off", f"{ONE} --site site.yaml", ("llama3: HF_TOKEN has 4 characters; one under 8 cannot be kept out of logs", "with the whole token"), site=SLURM, environment=(("HF_TOKEN", "hf_1"),)),
    # The first contact
    contact("a host name that is not known", "none", "ssh me@nosuch.invalid:PORT: the name nosuch.invalid cannot be resolved: ", "mend: correct `slurm.ssh.host` (site.yaml:7); `ssh me@nosuch.invalid -p PORT` must work from here", old="host: 127.0.0.1", new="host: nosuch.invalid"),
    contact("a port at which nobody listens", "none", "ssh me@127.0.0.1:PORT: no connection to port PORT of 127.0.0.1: Connection refused", "mend: correct `slurm.ssh.host` (site.yaml:7) and `slurm.ssh.port` (site.yaml:7)"),
    contact("a user or a key that is refused", "refuses", "ssh me@127.0.0.1:PORT: the login was refused (keys refused: 1)", "mend: see `slurm.ssh.user` (site.yaml:7) and `slurm.ssh.key` (site.yaml:7)"),
    contact("a port that is no SSH server's", "403", "what listens at port PORT of 127.0.0.1 does not greet as an SSH server does", "mend: correct `slurm.ssh.host` (site.yaml:7) and `slurm.ssh.port` (site.yaml:7)", kind=SLURM),
    contact("the public key for the private one", "sshd", "key.pub is a public key: name the file of the private one, which has no .pub at its end", old="KEY", new="KEY.pub"),
    contact("a host key that is not known", "sshd", "its host key is not known and is never added unseen", "mend: ssh-keyscan -p PORT 127.0.0.1 >> /none", old="HOSTS", new="/none"),
    contact("a server that is not there", "no API", "the Kubernetes API: http://127.0.0.1:PORT: no connection: [Errno 111] Connection refused", "mend: `kubectl get namespaces` must work from here; `jobset.kubeconfig` (site.yaml:4) and `jobset.context` (site.yaml:2) choose the cluster and the user"),
    contact("the name of a server that is not known", "no API of that name", "Failed to resolve 'nosuch.invalid'"),
    contact("credentials that are refused", "401", "the credentials of the kubeconfig are refused: GET ", "401: Unauthorized", "mend: `kubectl get namespaces` must work"),
    contact("a user who may not ask", "403", "this user may not ask: GET ", "403: nobody may", "mend: see docs/rbac/, and which user `jobset.kubeconfig` (site.yaml:4) and `jobset.context` (site.yaml:2) choose: `kubectl auth whoami`"),
]  # fmt: skip


class Refusing(sshd.Server):
    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return AUTH_FAILED


@pytest.fixture
def port(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    """The port of the server that the mistake is about; where there is none, one at which nobody listens."""
    server = request.node.callspec.params["mistake"].server
    with ExitStack() as over:
        if server in ("sshd", "refuses"):
            kind = Refusing if server == "refuses" else sshd.Server
            yield over.enter_context(sshd.serving(tmp_path, kind)).port
            return
        if server in ("401", "403"):
            api = kubeapi.Server()
            over.callback(api.close)
            body = b'{"message": "Unauthorized"}' if server == "401" else b'{"message": "nobody may"}'
            api.answer = lambda authorization: (int(server), body)
            yield int(api.url.rpartition(":")[2])
            return
        # It is bound, so that no other program gets it, and nobody listens.
        bound = over.enter_context(socket.socket())
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


# Of `python -m pacemark`: the folder has one file, site.yaml.
COMMANDS = [
    Mistake("a run to bundle that is not there", "bundle monday", ("no run 'monday' in results; there is none at all",), 2),
    Mistake("a bundle that is not there", "verify run.zip", ("run.zip: there is no such file",), 2),
    Mistake("another file as a bundle", "verify site.yaml", ("site.yaml: is no whole ZIP file", "NOT VERIFIED"), 1),
    Mistake("a key that is not there", "verify run.zip --key buyer.pub", ("buyer.pub: cannot be read: No such file or directory",), 2),
    Mistake("another file as a key", "verify run.zip --key site.yaml", ("site.yaml: is no public key in PEM without a password; make one: openssl genpkey",), 2),
    Mistake("another file as the certificates of an authority", "verify run.zip --tsa site.yaml", ("site.yaml: is no certificate in PEM",), 2),
    Mistake("a signature without a key", "sign run.zip", ("the following arguments are required: --key",), 2),
    Mistake("a signature of what is not there", "sign run.zip --key buyer.pem", ("run.zip: No such file or directory",), 2),
    Mistake("a time stamp of what is not there", "stamp run.zip --request run.tsq", ("run.zip: No such file or directory",), 2),
]  # fmt: skip


@pytest.mark.parametrize("mistake", COMMANDS, ids=[mistake.what for mistake in COMMANDS])
def test_a_mistake_in_a_command_is_told_in_words(
    mistake: Mistake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "site.yaml").write_text(SLURM)
    monkeypatch.chdir(tmp_path)
    try:
        status: object = main(shlex.split(mistake.typed))
    except SystemExit as ended:
        status = ended.code
    said = "".join(capsys.readouterr())
    assert status == mistake.status, said
    for part in mistake.said:
        assert part in said
    assert [path.name for path in tmp_path.iterdir()] == ["site.yaml"]


@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.what for mistake in MISTAKES])
def test_a_mistake_is_told_in_words(mistake: Mistake, port: int, tmp_path: Path) -> None:
    host = "nosuch.invalid" if mistake.server == "no API of that name" else "127.0.0.1"
    kubeapi.kubeconfig(tmp_path / "kubeconfig", f"http://{host}:{port}")
    text = mistake.text.replace("KUBECONFIG", str(tmp_path / "kubeconfig"))
    text = text.replace("KEY", str(tmp_path / "key")).replace("HOSTS", str(tmp_path / "known_hosts"))
    name = "acceptance.yaml" if mistake.site is PLAN else "site.yaml"
    (tmp_path / name).write_text(text.replace("PORT", str(port)))
    if (tmp_path / "key").exists():
        public = paramiko.PKey.from_path(tmp_path / "key")
        (tmp_path / "key.pub").write_text(f"{public.get_name()} {public.get_base64()} me@here\n")
    typed = [str(tmp_path / word) if word == name else word for word in shlex.split(mistake.typed)]
    if mistake.server:
        typed += ["-p", "tests.unit.sshd"]
    result = pacemark(*typed, results=tmp_path / "results", env=dict(mistake.environment))
    out = result.out.replace(f"{tmp_path}/", "").replace(str(port), "PORT")
    assert result.status == mistake.status, out
    for part in mistake.said:
        assert part in out, out
    assert "Traceback" not in out
    assert "INTERNALERROR" not in out
    # Nothing is left of a session that never began.
    assert result.status != 4 or not list((tmp_path / "results").glob("*"))


def page() -> str:
    """docs/dev/mistakes.md."""
    rows = [
        f"| {_cell(mistake.what)} | {_change(mistake)} | `{program} {_cell(mistake.typed)}` | "
        f"{_cell(' ... '.join(part.strip() for part in mistake.said))} | {mistake.status} |"
        for program, mistakes in (("pytest", MISTAKES), ("python -m pacemark", COMMANDS))
        for mistake in mistakes
    ]
    return "\n".join([HEAD, *rows, ""])


HEAD = """\
# Mistakes, and what is said

Each line was typed, by `tests/unit/test_mistakes.py`, and ended with this exit code and without a traceback.
Exit code 4 is a usage error: nothing was asked and nothing is recorded. If a cluster cannot be reached, the
cases are *infrastructure* in the record, and the exit code is 1. What the machine itself lacks is told before
any cluster is asked.

| mistake | in the site file or plan | typed | said | exit code |
| --- | --- | --- | --- | --- |"""


def _change(mistake: Mistake) -> str:
    new = mistake.new.removeprefix("  gpu: h100\n").strip()
    if mistake.old and not new:
        return "nothing" if mistake.old == mistake.site else f"without `{_cell(mistake.old).rstrip(',')}`"
    return f"`{_cell(new)}`" if new else ""


def _cell(text: str) -> str:
    short = re.sub(r"1{20,}", "1...", text.strip())
    return re.sub(r"\s*\n\s*", "<br>", short).replace("|", "\\|")


def test_the_page_has_the_table() -> None:
    assert (ROOT / "docs" / "dev" / "mistakes.md").read_text() == page()


if __name__ == "__main__":
    sys.stdout.write(page())
