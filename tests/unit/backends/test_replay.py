"""Replay finds the one right log, says why, and never guesses."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import shlex
import subprocess
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from backports import zstd

from fixtures.backends.base import LogPlace
from fixtures.backends.log_finder import Found, LogFinder, NoLogError
from fixtures.backends.replay import ReplayBackend
from plugins.base.errors import SubmitError
from plugins.recipes.expansion import load_recipe
from plugins.recipes.recipe_file import log_rule
from plugins.record.case import CaseRecord
from plugins.record.job import Job, JobRef
from plugins.record.stored import write_case
from plugins.record.verdict import Kind
from plugins.sources import files
from tests.printed.megatron_bridge import STATED, text_of
from tests.system.support import pacemark
from tests.unit import examples
from tests.unit.logs import test_contents
from tests.unit.sources import upstream

CASE = "70b-fp8-512gpus"


def log(root: Path, task: str = "70b_fp8_512", job: int = 7, restart: int = 0, *, write: bool = True) -> Path:
    name = f"pretrain_llama3.1_{task}"
    folder = root / "experiments" / name / f"{name}_1744400000" / name
    path = folder / f"log-acct_x-x.{name}_{job}_{restart}.out"
    if write:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    return path


def find(source: Path, gpu: str = "") -> Found:
    """The log of the case below this folder, or in this file."""
    return LogFinder(examples.llama3(), source).find(examples.case(CASE), gpu)


def refusal(source: Path, gpu: str = "") -> str:
    with pytest.raises(SubmitError) as caught:
        find(source, gpu)
    return str(caught.value)


def test_the_tree_of_the_recipe_is_searched_by_its_rule(tmp_path: Path) -> None:
    # Profiles and traces are no logs of the case.
    tasks = ["70b_bf16_512", "70b_fp8_64", "70b_fp8_5120", "70b_fp8_512_nsys", "70b_fp8_512_nccltrace"]
    for task in tasks:
        log(tmp_path, task)
    assert f"no log of llama3/{CASE} below" in refusal(tmp_path)
    right = log(tmp_path)
    (right.parent / "sbatch_acct_x-x.pretrain_llama3.1_70b_fp8_512_7.out").touch()
    source = find(tmp_path)
    assert (source.path, source.job, source.restart) == (right, "7", 0)
    assert source.reason == f"judged from {right}: job 7"
    last = [log(tmp_path, restart=number) for number in (9, 10)][-1]
    assert find(tmp_path).path == last
    assert "restart 10, its last" in find(tmp_path).reason


def test_a_folder_that_cannot_be_listed_may_have_the_last_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log(tmp_path, restart=0)
    examples.close_folder(tmp_path / "experiments" / "moved", monkeypatch)
    assert refusal(tmp_path) == (
        f"{tmp_path}/experiments/moved may have the log of llama3/{CASE}, and cannot be read (Permission denied): "
        "name the log itself with --from"
    )


@pytest.mark.parametrize(
    ("folders", "jobs"), [((".", "."), (7, 8)), (("a", "b"), (7, 7))], ids=["two jobs", "copies of one log"]
)
def test_two_jobs_are_not_guessed_between(
    folders: tuple[str, str], jobs: tuple[int, int], tmp_path: Path
) -> None:
    paths = [log(tmp_path / folder, job=job) for folder, job in zip(folders, jobs, strict=True)]
    words = refusal(tmp_path)
    assert "2 logs could be that of" in words
    assert all(str(path) in words for path in paths)
    assert "--from" in words


def collected(root: Path, case_id: str = CASE, **known: Any) -> Path:
    """What a session keeps of a case: its log and its record."""
    folder = root / "llama3" / case_id
    folder.mkdir(parents=True)
    (folder / "log.txt").write_text("")
    facts = {"verdict": Kind.PASSED, "release": "25.04", "configuration": {"gpu": "h100"}, **known}
    empty = CaseRecord.unjudged(Job(ref=JobRef("llama3", case_id, "a")), "")
    write_case(folder, replace(empty, **facts))
    return folder / "log.txt"


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("known", "words"),
    [
        (
            {"configuration": {"gpu": "gb200"}},
            " is of gb200, and would be judged as h100: give a site file with replay: {gpu: gb200}",
        ),
        ({"release": "24.11"}, " is of release 24.11, not of 25.04: give --release 24.11"),
        ({"case_id": "70b-bf16-512gpus"}, " is by its folder a log of llama3/70b-bf16-512gpus, not of "),
    ],
)
def test_a_log_that_pacemark_collected_is_not_judged_as_what_it_is_not(
    known: dict[str, Any], words: str, whole: bool, tmp_path: Path
) -> None:
    """Its lines do not tell the type of GPU, the release and the dtype; the session that collected it did."""
    path = collected(tmp_path, **known)
    if whole and "case_id" in known:
        words = f"no log of llama3/{CASE} below"
    assert words in refusal(tmp_path if whole else path, "h100")


def test_a_log_that_took_the_place_of_the_jobs_own_is_not_judged(tmp_path: Path) -> None:
    path = collected(tmp_path)
    path.with_name("log.own.txt").write_text("NCCL INFO Using network Socket\n")
    for source in (tmp_path, path):
        assert " took the place of the job's own log " in refusal(source, "h100")


def test_a_collected_log_that_names_its_gpus_needs_no_site_file(tmp_path: Path) -> None:
    recipe = load_recipe(examples.ROOT / "suites" / "proxy")
    case = recipe.case("8b-8l-bf16-2gpus")
    assert case is not None
    folder = tmp_path / case.key
    folder.mkdir(parents=True)
    (folder / "log.txt").touch()
    empty = CaseRecord.unjudged(Job(ref=JobRef(case.recipe, case.id, "a")), "")
    write_case(folder, replace(empty, configuration={"gpu": "h200"}))
    assert LogFinder(recipe, tmp_path).find(case, "h100").path == folder / "log.txt"


@pytest.mark.parametrize("verdict", [Kind.PASSED, Kind.TOO_SLOW, Kind.INFRASTRUCTURE, Kind.LOST])
def test_the_fault_that_a_collected_log_ended_with_is_remarked(verdict: Kind, tmp_path: Path) -> None:
    path = collected(tmp_path / "run", verdict=verdict, headline=f"{verdict}: the words of the record")
    for source in (path, tmp_path / "run", tmp_path):
        words = f"Pacemark collected {path}, with the verdict: {verdict}: the words of the record"
        assert find(source, "h100").fault == (words if verdict in ("infrastructure", "lost") else "")
    path.with_name("case.json").write_text("{")
    assert find(path, "h100").fault == ""


def test_a_rule_of_two_forms_holds_as_a_whole() -> None:
    rule = log_rule(r"run-{gpus}_(?P<job>\d+)\.(?:out|log)|(?:{gpus})\.txt", {"gpus": "5+1"})
    assert rule.search("logs/run-5+1_7.out")
    for other in ("logs/my-run-5+1_7.out", "logs/run-5+1_7.out.gz", "logs/15+1.txt", "logs/run-551_7.out"):
        assert rule.search(other) is None


def test_a_single_file_is_taken_at_its_word_unless_its_name_says_another_case(tmp_path: Path) -> None:
    (tmp_path / "log.out").touch()
    source = find(tmp_path / "log.out")
    assert (source.path, source.job) == (tmp_path / "log.out", "")
    words = "by its name a log of llama3/70b-bf16-512gpus, not of llama3/70b-fp8"
    assert words in refusal(log(tmp_path, "70b_bf16_512"))


@pytest.mark.parametrize(
    ("recipe", "release", "gpu", "case_id", "log"),
    [
        ("llama3", "24.11", "h100", "405b-proxy-bf16-96gpus", "results/24.11/bf16/405b/96/log-nemo_llama3.1_405b_96_77.out"),
        ("nemotron4", "24.11", "h100", "340b-fp8-128gpus", "results/24.11/fp8/340b/128/log-nemotron4_340b_128_77.out"),
        ("maxtext_llama2", "25.01", "h100", "70b-bf16-64gpus", "results/25.01/bf16/70b/64/log-maxtext_llama2_70b_64_77.out"),
        ("llama3", "25.03", "h100", "8b-fp8-8gpus", "results/25.02/fp8/8b/8/log-nemo_llama3.1_8b_8_77.out"),
        ("llama3", "25.05", "gb200", "405b-bf16-256gpus", "log-acct-x.pretrain_llama31_405b_bf16_gpus256_tp4_pp8_cp2_vp8_mbs1_gbs128_77_0.out"),
        ("nemotron4", "25.04", "h100", "15b-fp8-16gpus", "log-acct-x.pretrain_nemotron4_15b_fp8_16_77_0.out"),
        ("nemotron4", "25.05", "gb200", "340b-strong-fp8-128gpus", "log-acct-x.pretrain_nemotron4_340b_fp8_gpus128_tp8_pp4_cp1_vp12_mbs1_gbs512_77_0.out"),
    ],
)  # fmt: skip
def test_a_log_of_another_release_belongs_to_one_case(
    tmp_path: Path, recipe: str, release: str, gpu: str, case_id: str, log: str
) -> None:
    # What stands beside results is of another run.
    for name in (log, re.sub(r"^(results/[\d.]+)/", r"\1-nccl-trace/", log)):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = examples.recipe_named(recipe, release, gpu)
    taken = {}
    for case in found.cases:
        with suppress(SubmitError):
            taken[case.id] = LogFinder(found, tmp_path).find(case).job
    # A profile of MaxText is written by the run that is timed.
    profiles = [case_id.replace("-", "-profile-", 1)] if recipe == "maxtext_llama2" else []
    assert taken == dict.fromkeys([case_id, *profiles], "77")


def test_what_a_log_states_does_not_make_it_one_of_another_release(tmp_path: Path) -> None:
    """The releases have other numbers, and only the path tells the release."""
    recipe = examples.recipe_named("llama3", "26.06.01", "h100")
    case = next(case for case in recipe.cases if case.dtype == "bf16" and case.model_name == "70b")
    for name in (f"log-acct_x-x.pretrain_llama3.1_70b_bf16_{case.gpus}_7_0.out", "log.out"):
        (tmp_path / name).write_text(text_of(case, 10.0, STATED["bf16"]))
        if name == "log.out":
            assert LogFinder(recipe, tmp_path).find(case).path == tmp_path / name
            continue
        with pytest.raises(NoLogError):
            LogFinder(recipe, tmp_path).find(case)
        (tmp_path / name).unlink()


def test_logs_of_several_recipes_in_one_tree_are_told_apart(tmp_path: Path) -> None:
    """dgxc-benchmarking v24.11.1 llama3.1/launch.sh 56, maxtext/launch.sh 52; MaxText's 25.02 trained Llama 3."""
    cases = []
    for place, (name, release, called) in enumerate(
        [
            ("llama3", "24.11", "nemo_llama3.1"),
            ("maxtext_llama2", "24.11", "maxtext_llama2"),
            ("llama3", "25.02", "nemo_llama3.1"),
            ("", "25.02", "maxtext_llama3"),
        ]
    ):
        path = tmp_path / str(place) / f"results/{release}/bf16/70b/64/log-{called}_70b_64_{place}.out"
        path.parent.mkdir(parents=True)
        path.touch()
        if name:
            cases.append((examples.recipe_named(name, release), str(place)))
    for recipe, job in cases:
        case = recipe.case("70b-bf16-64gpus")
        assert case is not None
        assert LogFinder(recipe, tmp_path).find(case).job == job


COMPRESS: dict[str, Callable[[bytes], bytes]]
COMPRESS = {"gz": gzip.compress, "xz": lzma.compress, "zst": zstd.compress}
FORMS = pytest.mark.parametrize("form", COMPRESS)


def replayed(source: Path) -> bytes:
    """What the backend reads of the one log of the case."""
    with closing(ReplayBackend(source, "h100", [examples.llama3()])) as backend:
        job = backend.submit(examples.case(CASE), "name")
        data, piece = b"", backend.read_log(job, LogPlace(), ())
        while piece.data:
            data += piece.data
            piece = backend.read_log(job, piece.place, ())
    return data


@FORMS
def test_a_compressed_log_is_read_whatever_its_name(tmp_path: Path, form: str) -> None:
    text = examples.nemo2_text().encode() * 90
    assert len(text) > 1 << 20
    half = len(text) // 2
    for name in (f"log.{form}", "log.out"):
        # As rotated logs that were put together: several streams in one file.
        (tmp_path / name).write_bytes(COMPRESS[form](text[:half]) + COMPRESS[form](text[half:]))
        assert replayed(tmp_path / name) == text


@FORMS
def test_a_compressed_log_is_found_by_the_same_rule(tmp_path: Path, form: str) -> None:
    plain = log(tmp_path / "tree")
    right = plain.rename(f"{plain}.{form}")
    assert find(tmp_path / "tree").path == right
    assert find(right).job == "7"
    # A folder of results has its logs by case.
    for suffix in (f".{form}", ""):
        kept = tmp_path / f"results{suffix}" / "llama3" / CASE / f"log.txt{suffix}"
        kept.parent.mkdir(parents=True)
        kept.touch()
        assert find(tmp_path / f"results{suffix}").path == kept


@FORMS
def test_a_compressed_log_that_is_cut_is_one_clear_error(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"log.{form}"
    path.write_bytes(COMPRESS[form](examples.nemo2_text().encode())[:-20])
    with pytest.raises(SubmitError, match=rf"^{path} cannot be decompressed: .+; judge a whole copy of it$"):
        replayed(path)


@FORMS
def test_a_file_that_is_too_large_when_decompressed_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 3 << 20)
    path = tmp_path / f"log.{form}"
    path.write_bytes(COMPRESS[form](bytes(3 << 20)))
    assert len(replayed(path)) == 3 << 20
    path.write_bytes(COMPRESS[form](bytes((3 << 20) + 1)))
    words = "has more than 3 MiB when it is decompressed, which no log of a case has"
    with pytest.raises(SubmitError, match=words):
        replayed(path)


def test_what_is_not_the_text_of_one_log_is_refused_with_what_unpacks_it(tmp_path: Path) -> None:
    """By what it holds, whatever its name."""
    text = examples.nemo2_text().encode()
    for place, (data, called, command) in enumerate(
        [
            (bz2.compress(text), "is compressed with bzip2", "bzip2 -dc {} > "),
            (text.decode().encode("utf-16"), "is text in UTF-16", "iconv -f UTF-16 -t UTF-8 {} > "),
            (text.decode().encode("utf-16-le"), "is text in UTF-16LE", "iconv -f UTF-16LE -t UTF-8 {} > "),
            (text.decode().encode("utf-16-be"), "is text in UTF-16BE", "iconv -f UTF-16BE -t UTF-8 {} > "),
        ]
    ):
        folder = tmp_path / f"a copy {place}"
        folder.mkdir()
        path = folder / "log.out"
        path.write_bytes(data)
        with pytest.raises(SubmitError) as refused:
            replayed(path)
        said = str(refused.value)
        assert said.startswith(f"{path} {called}, not the text of one log: run `")
        run = said.partition("`")[2].partition("`")[0]
        assert command.format(shlex.quote(str(path))) in run
        subprocess.run(run, shell=True, check=True, cwd=folder, capture_output=True)
        logs = [log for log in folder.rglob("log*") if log != path]
        assert text in {replayed(log) for log in logs}


def test_an_archive_is_a_tree(tmp_path: Path) -> None:
    """`tar --zstd` was read as one log, and a slow job passed by the steps of another."""
    text = examples.nemo2_text().encode()
    tree = tmp_path / "tree"
    for restart in (0, 1):
        log(tree, restart=restart).write_bytes(text[: len(text) // (2 - restart)])
    log(tree, "70b_bf16_512").write_bytes(text)
    path = tmp_path / "exp.tar.zst"
    files = {file.relative_to(tree).as_posix(): file.read_bytes() for file in tree.rglob("*.out")}
    path.write_bytes(zstd.compress(upstream.tar(files)))
    assert replayed(path) == text
    for data, words in (
        (zstd.compress(upstream.tar({})), f"no log of llama3/{CASE} below "),
        (path.read_bytes()[:-30], "cannot be decompressed"),
    ):
        path.write_bytes(data)
        with pytest.raises(SubmitError, match=words):
            replayed(path)


LATER = f"{upstream.TOP}/{log(Path('x'), restart=1, write=False).relative_to('x')}"


@pytest.mark.parametrize(
    ("archive", "words"),
    [
        (lambda files: upstream.tar(files)[:-9000], "is cut or damaged"),
        (lambda files: upstream.tar(files, upstream.link(LATER, "gone.log")), "is a link to .*gone.log, which is not followed"),
        (lambda files: upstream.tar(files, upstream.link(LATER, "/etc/passwd")), "is a link to /etc/passwd, which is not followed"),
        (lambda files: upstream.zipped(files | {LATER: gzip.compress(b"x" * 9000)[:-9]}), "cannot be decompressed"),
        (lambda files: upstream.zipped(files | {"a.log": b"", "a.log/b.log": b""}), "exp cannot be unpacked: (Not a directory|File exists) "),
    ],
    ids=["cut", "link to nothing", "link that leads out", "damaged", "file and folder"],
)  # fmt: skip
def test_an_archive_that_may_lack_the_last_log_of_a_job_judges_no_case(
    archive: Callable[[dict[str, bytes]], bytes], words: str, tmp_path: Path
) -> None:
    """Neither the first case that is asked for, nor those after it."""
    name = log(tmp_path / "tree").relative_to(tmp_path / "tree").as_posix()
    path = tmp_path / "exp"
    path.write_bytes(archive({name: examples.nemo2_text().encode()}))
    with closing(ReplayBackend(path, "h100", [examples.llama3()])) as backend:
        for _ in range(2):
            with pytest.raises(SubmitError, match=words):
                backend.submit(examples.case(CASE), "name")


def test_no_earlier_log_takes_the_place_of_one_that_states_another_run(tmp_path: Path) -> None:
    """Of one job the last log counts, and of two jobs that are called as the case neither is left out for its contents."""
    other = examples.nemo2_text().replace("global_batch_size: 1024", "global_batch_size: 512").encode()
    assert other != examples.nemo2_text().encode()
    restarted = tmp_path / "restarted"
    log(restarted, job=7).write_text(examples.nemo2_text())
    log(restarted, job=7, restart=1).write_bytes(other)
    assert find(restarted).restart == 1
    # A job has one folder: that of the same id elsewhere is another one.
    log(restarted / "b", job=7, restart=2).write_text(examples.nemo2_text())
    assert "3 logs could be that of" in refusal(restarted)


LASTS: dict[str, Callable[[Path], object]] = {
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "no plain file": os.mkfifo,
    "no step": lambda path: path.write_text("srun: error: task 0: Killed\n"),
    "compressed with bzip2": lambda path: path.write_bytes(bz2.compress(b"log")),
}


@pytest.mark.parametrize("last", LASTS.values(), ids=LASTS)
def test_the_last_restart_counts_whatever_it_is(last: Callable[[Path], object], tmp_path: Path) -> None:
    """Its name tells the restart by the recipe's rule, also if a rule names no case, and another name does not tell it."""
    llama, bridge = examples.case(CASE), examples.recipe_named("megatron_bridge", "26.06", "gb300")
    case = bridge.cases[0]
    log(tmp_path / "llama").write_text(examples.nemo2_text())
    last(log(tmp_path / "llama", restart=1, write=False))
    (tmp_path / "bridge").mkdir()
    (tmp_path / "bridge" / "log-lab_7_0.out").write_text(text_of(case, 10.0, STATED[case.dtype]))
    last(tmp_path / "bridge" / "log-lab_7_1.out")
    for folder, recipe, of, gpu in (
        ("llama", examples.llama3(), llama, "h100"),
        ("bridge", bridge, case, "gb300"),
    ):
        found = LogFinder(recipe, tmp_path / folder, gpu).find(of)
        assert found.path.name.endswith("_7_1.out")
        with closing(ReplayBackend(tmp_path / folder, gpu, [recipe])) as backend:
            if found.path.is_file() and found.path.read_bytes().startswith(b"srun"):
                backend.submit(of, "name")
                continue
            with pytest.raises(
                SubmitError, match=r"_7_1\.out (is no plain file|cannot be read|is compressed)"
            ):
                backend.submit(of, "name")


def test_two_starts_of_a_job_are_one_job(tmp_path: Path) -> None:
    recipe = examples.recipe_named("megatron_bridge", "26.06", "gb300")
    case = recipe.cases[0]
    for restart in (0, 1):
        path = tmp_path / f"log-lab_7_{restart}.out"
        path.write_text(text_of(case, 10.0 + restart, STATED[case.dtype]))
    found = LogFinder(recipe, tmp_path, "gb300").find(case)
    assert (found.path.name, found.restart) == ("log-lab_7_1.out", 1)


LAUNCHED = {
    "the same": ("25.04", "fp8", "h100", "", ""),
    "another release": ("25.02", "fp8", "h100", "", "ran llama3.1 70b in fp8 on 512 h100, release 25.02, by llmb-config_7.yaml, and "),
    "another GPU": ("25.04", "fp8", "gb200", "", "ran llama3.1 70b in fp8 on 512 gb200, release 25.04, by llmb-config_7.yaml, and "),
    "another dtype": ("25.04", "bf16", "h100", "", "ran llama3.1 70b in bf16 on 512 h100, release 25.04, by llmb-config_7.yaml, and "),
    "a profile": ("25.04", "fp8", "h100", "job_config: {profile_enabled: true}", "was profiled by llmb-config_7.yaml, and "),
    "a mistake": ("25.04", "fp8", "h100", "job_config: 7", "is no llmb-config: "),
}  # fmt: skip


@pytest.mark.parametrize(("release", "dtype", "gpu", "more", "words"), LAUNCHED.values(), ids=LAUNCHED)
def test_what_the_launcher_says_of_a_job_counts(
    release: str, dtype: str, gpu: str, more: str, words: str, tmp_path: Path
) -> None:
    """The lines of the log tell neither the release nor the type of GPU."""
    path = log(tmp_path)
    model = f"{{model_name: llama3.1, model_size: 70b, dtype: {dtype}, scale: 512, gpu_type: {gpu}}}"
    (path.parent / "llmb-config_7.yaml").write_text(
        f"model_info: {model}\nworkload_info: {{gsw_version: '{release}'}}\n{more}\n"
    )
    (path.parent / "llmb-config_8.yaml").write_text("job_config: {profile_enabled: true}\n")
    for source in (tmp_path, path):
        if words:
            assert words in refusal(source)
        else:
            assert find(source).path == path


def test_a_case_without_a_log_hides_no_other(tmp_path: Path) -> None:
    """Its record says which case it is of. A job that has the steps of another one is of the case that both state."""
    path = collected(tmp_path / "first")
    collected(tmp_path / "second", "70b-bf16-512gpus", verdict=Kind.INFRASTRUCTURE).unlink()
    assert find(tmp_path).path == path
    recipe = examples.recipe_named("megatron_bridge", "26.06", "gb300")
    mine, other = recipe.cases[0], recipe.cases[3]
    for job, case in enumerate((mine, other, other)):
        path = tmp_path / "bridge" / f"log-lab-lab.run_{job}_0.out"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text_of(case, 11.0 if job else 10.0, STATED[case.dtype]))
    finder = LogFinder(recipe, tmp_path / "bridge", "gb300")
    assert finder.find(mine).job == "0"
    with pytest.raises(SubmitError, match="2 logs could be that of"):
        finder.find(other)


def test_two_runs_in_the_log_of_a_restart_do_not_pass(tmp_path: Path) -> None:
    """Each start has a log of its own there: that the job was started again explains no second run in it."""
    pace = examples.target().step_time
    runs = (examples.nemo2_text([factor * pace] * 50) for factor in (1.3, 1.0))
    log(tmp_path / "tree", restart=1).write_text("".join(runs))
    source = ("--backend", "replay", "--from", str(tmp_path / "tree"))
    run = pacemark("suites/llama3", "-k", f"[{CASE}]", *source, results=tmp_path / "results")
    assert run.verdicts == {f"llama3/{CASE}": "invalid run"}
    assert "two runs share this log" in run.out


def test_logs_whose_paths_name_no_case_are_found_by_what_they_state(tmp_path: Path) -> None:
    """Three logs of Megatron-Bridge in a tree were three times "3 logs could be that of ...". A log may have any name."""
    recipe = examples.recipe_named("megatron_bridge", "26.06", "gb300")
    cases, spare = recipe.cases[::3], recipe.cases[1]
    for job, case in enumerate(cases):
        name = f"log-lab-lab.run_{job}_0.out" if job % 2 else f"of monday/{job}.log"
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text_of(case, 10.0 + job, STATED[case.dtype]))
    finder = LogFinder(recipe, tmp_path, "gb300")
    for job, case in enumerate(cases):
        found = finder.find(case)
        assert str(job) in (found.job, found.path.stem)
        assert found.reason.endswith("by the log and its path" if job % 2 else "by the log")
    with pytest.raises(NoLogError):
        finder.find(spare)
    # What cannot be read may be the log of each case.
    (tmp_path / "log-lab-lab.run_99_0.out").write_bytes(bz2.compress(b"log"))
    finder = LogFinder(recipe, tmp_path, "gb300")
    assert finder.find(spare).job == "99"
    with pytest.raises(SubmitError, match="2 logs could be that of"):
        finder.find(cases[0])


def test_a_log_that_may_be_of_two_cases_is_judged_as_neither(tmp_path: Path) -> None:
    recipe = examples.recipe_named("megatron_bridge", "26.06", "gb300")
    case = recipe.cases[0]
    unsized = re.sub(r"(?m)^  num_layers: .*\n", "", text_of(case, 10.0, {}))
    twin = replace(case, size="twin")
    (tmp_path / "log.out").write_text(unsized)
    finder = LogFinder(replace(recipe, cases=(case, twin)), tmp_path, "gb300")
    for each in (case, twin):
        with pytest.raises(SubmitError) as refused:
            finder.find(each)
        words = "which nothing tells: name it with --from, and its case with -k"
        assert str(refused.value).startswith(f"{tmp_path}/log.out: its case is ")
        assert str(refused.value).endswith(words)


def test_what_is_binary_is_called_so(tmp_path: Path) -> None:
    path = tmp_path / "log.out"
    path.write_bytes(test_contents.OTHERS["random"][0])
    with pytest.raises(SubmitError) as refused:
        replayed(path)
    words = f"{path} is binary, not the text of one log: name the log itself"
    assert str(refused.value) == words


@pytest.mark.parametrize("suffix", [".bz2", ".zip", ".lz4", ".tar", ".tar.gz", ".tgz", ".zstd", ".7z"])
def test_the_last_restart_counts_also_if_it_is_packed(tmp_path: Path, suffix: str) -> None:
    """Else the log of an earlier start of the job would be judged."""
    log(tmp_path / "tree", restart=0)
    plain = log(tmp_path / "tree", restart=1)
    last = plain.rename(f"{plain}{suffix}")
    assert find(tmp_path / "tree").path == last
    collected = tmp_path / "results" / "llama3" / CASE / f"log.txt{suffix}"
    collected.parent.mkdir(parents=True)
    collected.write_bytes(bz2.compress(b"log"))
    assert find(tmp_path / "results").path == collected
    words = f"^{collected} is compressed with bzip2, not the text of one log: run "
    with pytest.raises(SubmitError, match=words):
        replayed(tmp_path / "results")


def test_the_latest_run_is_the_one_before_this(tmp_path: Path) -> None:
    """A session points `latest` at its own run when it begins."""
    log(tmp_path).write_text(examples.nemo2_text([examples.target().step_time] * 50))
    results = tmp_path / "results"
    latest = results / "latest"
    sources = (tmp_path / "experiments", latest, latest / "llama3" / CASE / "log.txt")
    for number, source in enumerate(sources, 1):
        run = pacemark(
            "suites/llama3", "-k", f"[{CASE}]", "--backend", "replay", "--from", str(source), results=results
        )
        assert run.verdicts == {f"llama3/{CASE}": "passed"}, run.out
        assert len(list(results.glob("2*"))) == number
    resumed = pacemark("suites/llama3", "-k", f"[{CASE}]", "--resume", "latest", results=results)
    assert resumed.status == 4
    assert f"--resume {run.folder.name}: the run replayed logs, and has no jobs to go on with" in resumed.out
