"""What docs/dev/architecture.md says of adding things, done: each of these tests adds one without touching a file of the product."""

from __future__ import annotations

import importlib
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.backends.base import Backend, LogPiece, LogPlace
from fixtures.backends.section import BACKENDS, Machine, Registered
from fixtures.fleet.controller import Fleet
from fixtures.fleet.state import Policy
from fixtures.runs.ledger import Ledger
from fixtures.runs.planned import PlannedJob, job_of
from fixtures.served import make_backends
from fixtures.site import THIS_MACHINE, load_site
from plugins.base.errors import ConfigError, SubmitError
from plugins.judging import kinds, validity
from plugins.judging.evidence import Evidence
from plugins.judging.judgement import Conclusion
from plugins.judging.validity.run import TimedRun
from plugins.judging.verdicts import Verdict
from plugins.logs import Step
from plugins.logs.formats import read
from plugins.logs.line_parser import LineParser
from plugins.logs.marks import MARKS, Mark
from plugins.logs.registry import FORMATS, Format
from plugins.recipes.cases import Case, Recipe
from plugins.recipes.expansion import load_recipe
from plugins.recipes.recipe_file import read_recipe
from plugins.record.folder import LOG, SENT
from plugins.record.job import JobRef, JobState, Phase
from plugins.record.lines import JOBS_LOG
from plugins.record.outcome import outcome_of
from plugins.record.verdict import Kind
from tests.unit import examples
from tests.unit.chosen import choices

STEP_TIME = 10.07


class Toy(LineParser):
    """`toy step 7 took 10.07 s for 1024 sequences, loss 11.9`."""

    hints = (b"toy step ",)

    def read_line(self, line: str, *, ended: bool) -> None:
        found = re.search(
            r"toy step (\d{1,9}) took (\d{1,9}\.\d+) s for (\d{1,9}) sequences, loss (\d{1,9}\.\d+)$", line
        )
        if found and ended:
            self.add(
                Step(
                    int(found[1]), float(found[2]), resolution=0.005, gbs=int(found[3]), loss=float(found[4])
                )
            )


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS, "toy", Format(f"{__name__}:Toy", times_saves=True))


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(("factor", "kind"), [(1.0, Kind.PASSED), (1.1, Kind.TOO_SLOW)])
def test_a_log_format_is_a_parser_and_a_line_of_the_registry(
    factor: float, kind: Kind, tmp_path: Path
) -> None:
    folder = tmp_path / "llama3"
    shutil.copytree(examples.ROOT / "suites" / "llama3", folder)
    recipe = folder / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("log: nemo2", "log: toy"))
    case = load_recipe(folder).case(examples.case().id)
    assert case is not None
    assert read_recipe(folder).log == "toy"

    log = read(
        "toy",
        [
            f"toy step {i} took {factor * STEP_TIME:.2f} s for {case.gbs} sequences, loss {12 - i / 50:.2f}\n".encode()
            for i in range(50)
        ],
    )
    found = examples.judged(
        case, examples.outcome(), log, examples.baseline()
    )  # fmt: skip
    assert found.verdict.kind is kind, found.verdict.headline


THROTTLED = "gpu001: clocks event reasons: SW Thermal Slowdown (980 MHz)"


@pytest.mark.parametrize("registered", [True, False])
def test_a_check_of_a_line_is_a_mark(registered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = r"clocks event reasons: \w+ Thermal Slowdown"
    mark = Mark("throttling", "clocks were throttled", (b"clocks event reasons: ",), pattern)
    if registered:
        monkeypatch.setitem(MARKS, mark.kind, mark)
    lines = examples.nemo2_text(examples.times()).splitlines()
    found = verdict_on("\n".join([*lines[:30], THROTTLED, *lines[30:], ""]))
    invalid = Verdict(Kind.INVALID, (f"clocks were throttled: {THROTTLED}",))
    assert found == invalid if registered else found.kind is Kind.PASSED, found.headline


def test_a_check_of_a_run_is_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    def loss_falls(run: TimedRun) -> Iterator[str]:
        first, last = run.log.steps[0].loss, run.log.steps[-1].loss
        if first is not None and last is not None and last > first / 2:
            yield "the loss did not fall to half"

    monkeypatch.setattr(validity, "CHECKS", (*validity.CHECKS, loss_falls))
    found = verdict_on(examples.nemo2_text(examples.times()))
    assert found == Verdict(Kind.INVALID, ("the loss did not fall to half",))


class FirstStep:
    """A kind of case that is judged by the time of its first step alone."""

    def takes(self, case: Case) -> bool:
        return case.variant == "first-step"

    def problems(self, evidence: Evidence, /) -> list[str]:
        return [] if evidence.log.steps[0].seconds else ["its first step has no time"]

    def left_lines(self, _: Evidence, /) -> list[str]:
        return []

    def judge(self, evidence: Evidence) -> Conclusion:
        kind = Kind.PASSED if evidence.log.steps[0].seconds == STEP_TIME else Kind.TOO_SLOW
        return Conclusion(Verdict(kind, ("the first step",)))


@pytest.mark.parametrize(("seconds", "kind"), [(STEP_TIME, Kind.PASSED), (20.0, Kind.TOO_SLOW)])
def test_a_kind_of_case_is_a_module_and_a_line_of_the_table(
    seconds: float, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinds, "KINDS", (FirstStep(), *kinds.KINDS))
    log = read("nemo2", [examples.nemo2_text(examples.times(s0=seconds)).encode()])
    case = replace(examples.case(), variant="first-step")
    found = examples.judged(case, examples.outcome(), log, examples.baseline())
    assert found.verdict == Verdict(kind, ("the first step",))


def verdict_on(text: str) -> Verdict:
    log = read("nemo2", [text.encode()])
    return examples.judged(
        examples.case(),
        examples.outcome(),
        log,
        examples.baseline(),
    ).verdict


class ToySection(Machine):
    """What a site says of its toy cluster."""

    queue: str


class ToyBackend(Backend):
    """Jobs that are over at once, with a whole log: what is abstract in `Backend`, and no more."""

    def __init__(self, section: ToySection, recipes: Sequence[Recipe]) -> None:
        self.queue = section.queue
        self.recipes = [recipe.name for recipe in recipes]
        self.jobs: dict[str, JobRef] = {}

    def check(self, case: Case) -> list[str]:
        assert case.recipe in self.recipes
        return []

    def plan(self, case: Case, name: str, excluded: tuple[str, ...] = ()) -> str:
        return f"toysub --queue {self.queue} --name {name}\n"

    def submit(self, case: Case, name: str, excluded: tuple[str, ...] = ()) -> JobRef:
        self.jobs[name] = JobRef(case.recipe, case.id, name, f"toy-{len(self.jobs) + 1}", "")
        return self.jobs[name]

    def find(self, job: JobRef, *, to_end: bool = False) -> JobRef | None:
        return self.jobs.get(job.name)

    def poll(self, jobs: Sequence[JobRef]) -> dict[JobRef, JobState]:
        return {job: JobState(Phase.SUCCEEDED, "DONE") for job in jobs}

    def read_log(self, job: JobRef, place: LogPlace, wanted: Sequence[bytes]) -> LogPiece:
        data = b"" if place.offset else examples.nemo2_text(examples.times()).encode()
        return LogPiece(data, LogPlace("log", place.offset + len(data)))

    def cancel(self, jobs: Sequence[JobRef]) -> None:
        raise AssertionError("all is over at once")


def make(site: str, section: ToySection, recipes: Sequence[Recipe], source: Path | None) -> ToyBackend:
    assert source is None
    return ToyBackend(section, recipes)


@pytest.fixture
def toy_backend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Recipe:
    """A recipe of it."""
    monkeypatch.setitem(BACKENDS, "toy", Registered(f"{__name__}:ToySection", __name__, contract="program"))
    folder = tmp_path / "llama3"
    shutil.copytree(examples.ROOT / "suites" / "llama3", folder)
    recipe = folder / "recipe.yaml"
    text = recipe.read_text().replace("backend: slurm", "backend: toy")
    recipe.write_text(text[: text.index("\nvariants:")] + "\nprogram: train.py\n")
    return load_recipe(folder)


def test_a_backend_is_a_module_and_a_line_of_the_registry(toy_backend: Recipe, tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text("site: toys\ntoy: {gpu: h100, queue: fast}\n")
    site = load_site(path)
    backends = make_backends(site, [toy_backend], None)
    section = site.section("toy")
    assert isinstance(section, ToySection)
    case = toy_backend.case(examples.case().id)
    assert case is not None

    results = tmp_path / "results"
    results.mkdir()
    ledger = Ledger.create(results / JOBS_LOG, "run-1", site.site)
    planned = PlannedJob(case, "toy", job_of("run-1", case.recipe, case.id), toy_backend.file.log)
    ledger.plan([planned])
    fleet = Fleet(results, ledger, [planned], backends, {"toy": section}, Policy())
    fleet.start()
    while not (entry := ledger.entry(case.key)) or entry.status != "ended":
        assert fleet.running
        fleet.wait(0.1)
    fleet.stop()
    assert (entry.ref.id, entry.failure, entry.message) == ("toy-1", "", "")
    assert (results / case.key / SENT).read_text() == f"toysub --queue fast --name {planned.ref.name}\n"
    log = read(toy_backend.file.log, [(results / case.key / LOG).read_bytes()])
    outcome = outcome_of(entry, results / case.key, "h100")
    found = examples.judged(case, outcome, log, examples.baseline())
    assert found.verdict.kind is Kind.PASSED, found.verdict.headline


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("toy: {gpu: h100}", r"site\.yaml:2: toy\.queue: missing; this key is required"),
        ("toys: {gpu: h100, queue: fast}", "did you mean 'toy'"),
    ],
)
@pytest.mark.usefixtures("toy_backend")
def test_a_mistake_in_the_section_of_a_new_backend_is_told(said: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(f"site: toys\n{said}\n")
    with pytest.raises(ConfigError, match=message):
        load_site(path)


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ("tony", "llama3/recipe.yaml: backend: no backend 'tony'; did you mean 'toy'?"),
        ("replay", "backend: no backend 'replay'; known here: jobset, local, pytorchjob, slurm, toy"),
        ("slurm", "backend: slurm runs a recipe that has `launch`; this one has `program`"),
        ("[toy, slurm]", "backend: slurm runs a recipe that has `launch`; this one has `program`"),
        ("[toy, tony]", "backend: no backend 'tony'; did you mean 'toy'?"),
        ("[]", "backend: must have 1 or more values"),
    ],
)
def test_a_recipe_that_no_backend_runs_is_refused(
    toy_backend: Recipe, backend: str, message: str, tmp_path: Path
) -> None:
    recipe = tmp_path / "other"
    recipe.mkdir()
    text = (toy_backend.folder / "recipe.yaml").read_text()
    (recipe / "recipe.yaml").write_text(text.replace("backend: toy", f"backend: {backend}"))
    with pytest.raises(ConfigError, match=re.escape(message)):
        choices(THIS_MACHINE).choice(read_recipe(recipe))


@pytest.mark.parametrize("name", BACKENDS)
def test_a_backend_can_do_what_its_section_promises(name: str) -> None:
    known = BACKENDS[name]
    section = known.section.model_construct(gpu="h100")
    module = importlib.import_module(known.module)
    own = [found for found in vars(module).values() if isinstance(found, type) and issubclass(found, Backend)]
    promised = {
        **dict.fromkeys(("examine", "discard", "keeping"), section.examines),
        "on_nodes": section.chooses_nodes,
    }
    for method, can in promised.items():
        made = {
            getattr(found, method) is not getattr(Backend, method) for found in own if found is not Backend
        }
        assert made == {can}, method


def test_a_backend_without_a_method_says_so_in_words(toy_backend: Recipe) -> None:
    backend = ToyBackend(ToySection(gpu="h100", queue="fast"), [toy_backend])
    job = JobRef("llama3", "8b-bf16-8gpus", "name", "1", "")
    with pytest.raises(SubmitError, match="ToyBackend cannot look at what a job left on the cluster"):
        backend.examine(toy_backend.cases[0], job)
    with pytest.raises(SubmitError, match="ToyBackend cannot choose the nodes of a job"):
        backend.on_nodes("gpu001")
