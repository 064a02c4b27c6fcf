"""Replay finds the one right log, says why, and never guesses."""

from __future__ import annotations

import bz2
import gzip
import lzma
import shlex
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from backports import zstd

from fixtures.backends import replay
from fixtures.backends.base import LogPlace
from fixtures.backends.replay import ReplayBackend, find_log
from plugins.base.errors import SubmitError
from plugins.recipes.expansion import load_recipe
from plugins.recipes.recipe_file import log_rule
from plugins.record.case import CaseRecord
from plugins.record.job import Job, JobRef
from plugins.record.stored import write_case
from plugins.record.verdict import Kind
from tests.system.support import pacemark
from tests.unit import examples
from tests.unit.logs import test_contents

CASE = "70b-fp8-512gpus"


def log(root: Path, task: str = "70b_fp8_512", job: int = 7, restart: int = 0) -> Path:
    name = f"pretrain_llama3.1_{task}"
    folder = root / "experiments" / name / f"{name}_1744400000" / name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"log-acct_x-x.{name}_{job}_{restart}.out"
    path.write_text("")
    return path


def test_the_tree_of_the_recipe_is_searched_by_its_rule(tmp_path: Path) -> None:
    log(tmp_path, "70b_bf16_512")
    log(tmp_path, "70b_fp8_64")
    log(tmp_path, "70b_fp8_5120")
    right = log(tmp_path)
    (right.parent / "sbatch_acct_x-x.pretrain_llama3.1_70b_fp8_512_7.out").write_text("")
    found = find_log(examples.case(CASE), examples.llama3(), tmp_path)
    assert (found.path, found.job, found.restart) == (right, "7", 0)
    assert found.reason == f"judged from {right}: job 7"


def test_the_last_restart_counts(tmp_path: Path) -> None:
    log(tmp_path, restart=0)
    log(tmp_path, restart=9)
    last = log(tmp_path, restart=10)
    found = find_log(examples.case(CASE), examples.llama3(), tmp_path)
    assert found.path == last
    assert "restart 10, its last" in found.reason


def test_a_folder_that_cannot_be_listed_may_have_the_last_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log(tmp_path, restart=0)
    examples.close_folder(tmp_path / "experiments" / "moved", monkeypatch)
    with pytest.raises(SubmitError) as raised:
        find_log(examples.case(CASE), examples.llama3(), tmp_path)
    assert str(raised.value) == (
        f"{tmp_path}/experiments/moved may have the log of llama3/{CASE}, and cannot be read (Permission denied): "
        "name the log itself with --from"
    )


@pytest.mark.parametrize("task", ["70b_fp8_512_nsys", "70b_fp8_512_nccltrace"])
def test_profiles_and_traces_are_no_logs_of_the_case(tmp_path: Path, task: str) -> None:
    log(tmp_path, task)
    with pytest.raises(SubmitError, match=f"no log of llama3/{CASE} below"):
        find_log(examples.case(CASE), examples.llama3(), tmp_path)


def test_two_jobs_are_not_guessed_between(tmp_path: Path) -> None:
    paths = [log(tmp_path, job=7), log(tmp_path, job=8)]
    with pytest.raises(SubmitError, match="2 logs could be that of") as refused:
        find_log(examples.case(CASE), examples.llama3(), tmp_path)
    assert all(str(path) in str(refused.value) for path in paths)
    assert "--from" in str(refused.value)


def test_copies_of_one_log_are_not_guessed_between(tmp_path: Path) -> None:
    log(tmp_path / "a")
    log(tmp_path / "b")
    with pytest.raises(SubmitError, match="2 logs"):
        find_log(examples.case(CASE), examples.llama3(), tmp_path)


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
    ("known", "said"),
    [
        (
            {"configuration": {"gpu": "gb200"}},
            " is of gb200, and would be judged as h100: give a site file with replay: {gpu: gb200}",
        ),
        ({"release": "24.11"}, " is of release 24.11, not of 25.04: give --release 24.11"),
        ({"case_id": "70b-bf16-512gpus"}, " is by its folder a log of llama3/70b-bf16-512gpus, not of "),
        ({"own": True}, " took the place of the job's own log "),
    ],
)
def test_a_log_that_pacemark_collected_is_not_judged_as_what_it_is_not(
    known: dict[str, Any], said: str, whole: bool, tmp_path: Path
) -> None:
    """Its lines do not tell the type of GPU, the release and the dtype; the session that collected it did."""
    own = known.pop("own", False) if (known := dict(known)) else False
    path = collected(tmp_path, **known)
    if own:
        path.with_name("log.own.txt").write_text("NCCL INFO Using network Socket\n")
    if whole and "case_id" in known:
        said = "no log of llama3/70b-fp8-512gpus below"
    with pytest.raises(SubmitError) as refused:
        find_log(examples.case(CASE), examples.llama3(), tmp_path if whole else path, "h100")
    assert said in str(refused.value)


def test_a_collected_log_that_names_its_gpus_needs_no_site_file(tmp_path: Path) -> None:
    recipe = load_recipe(examples.ROOT / "suites" / "proxy")
    case = recipe.case("8b-8l-bf16-2gpus")
    assert case is not None
    folder = tmp_path / case.key
    folder.mkdir(parents=True)
    (folder / "log.txt").touch()
    empty = CaseRecord.unjudged(Job(ref=JobRef(case.recipe, case.id, "a")), "")
    write_case(folder, replace(empty, configuration={"gpu": "h200"}))
    assert find_log(case, recipe, tmp_path, "h100").path == folder / "log.txt"


@pytest.mark.parametrize("verdict", [Kind.PASSED, Kind.TOO_SLOW, Kind.INFRASTRUCTURE, Kind.LOST])
def test_the_fault_that_a_collected_log_ended_with_is_remarked(verdict: Kind, tmp_path: Path) -> None:
    path = collected(tmp_path, verdict=verdict, headline=f"{verdict}: the words of the record")
    for source in (path, tmp_path):
        why = find_log(examples.case(CASE), examples.llama3(), source, "h100").reason
        assert (f", with the verdict: {verdict}: the words" in why) is (verdict in ("infrastructure", "lost"))
    path.with_name("case.json").write_text("{")
    assert "verdict" not in find_log(examples.case(CASE), examples.llama3(), path, "h100").reason


def test_a_rule_of_two_forms_holds_as_a_whole() -> None:
    rule = log_rule(r"run-{gpus}_(?P<job>\d+)\.(?:out|log)|(?:{gpus})\.txt", {"gpus": "5+1"})
    assert rule.search("logs/run-5+1_7.out")
    for other in ("logs/my-run-5+1_7.out", "logs/run-5+1_7.out.gz", "logs/15+1.txt", "logs/run-551_7.out"):
        assert rule.search(other) is None


def test_a_single_file_is_taken_at_its_word(tmp_path: Path) -> None:
    path = tmp_path / "log.out"
    path.write_text("")
    found = find_log(examples.case(CASE), examples.llama3(), path)
    assert (found.path, found.job) == (path, "")


def test_a_file_whose_name_says_another_case_is_refused(tmp_path: Path) -> None:
    path = log(tmp_path, "70b_bf16_512")
    with pytest.raises(
        SubmitError, match=r"by its name a log of llama3/70b-bf16-512gpus, not of llama3/70b-fp8"
    ):
        find_log(examples.case(CASE), examples.llama3(), path)


def test_a_results_folder_has_its_logs_by_case(tmp_path: Path) -> None:
    path = tmp_path / "llama3" / CASE / "log.txt"
    path.parent.mkdir(parents=True)
    path.write_text("")
    assert find_log(examples.case(CASE), examples.llama3(), tmp_path).path == path


@pytest.mark.parametrize(("name", "release"), [("nemotron4", "24.11"), ("maxtext_llama2", "25.01")])
def test_the_other_recipes_are_found_by_their_folders(tmp_path: Path, name: str, release: str) -> None:
    recipe = load_recipe(examples.ROOT / "suites" / name)
    case = recipe.cases[0]
    results = tmp_path / "results"
    for folder_name in (release, f"{release}-nccl-trace", "25.02"):
        for dtype in ("bf16", "fp8"):
            folder = results / folder_name / dtype / case.model_name / str(case.gpus)
            folder.mkdir(parents=True)
            (folder / f"log-{name}_{case.model_name}_{case.gpus}_1407993.out").write_text("")
    found = find_log(case, recipe, tmp_path)
    assert found.path.parent == results / release / case.dtype / case.model_name / str(case.gpus)
    assert found.job == "1407993"
    assert find_log(case, recipe, found.path.parent).path == found.path


@pytest.mark.parametrize(
    ("recipe", "release", "gpu", "case_id", "log"),
    [
        (
            "llama3",
            "24.11",
            "h100",
            "405b-proxy-bf16-96gpus",
            "results/24.11/bf16/405b/96/log-nemo_llama3.1_405b_96_77.out",
        ),
        ("llama3", "25.03", "h100", "8b-fp8-8gpus", "results/25.02/fp8/8b/8/log-nemo_llama3.1_8b_8_77.out"),
        (
            "llama3",
            "25.05",
            "gb200",
            "405b-bf16-256gpus",
            "log-acct-x.pretrain_llama31_405b_bf16_gpus256_tp4_pp8_cp2_vp8_mbs1_gbs128_77_0.out",
        ),
        (
            "nemotron4",
            "25.04",
            "h100",
            "15b-fp8-16gpus",
            "log-acct-x.pretrain_nemotron4_15b_fp8_16_77_0.out",
        ),
        (
            "nemotron4",
            "25.05",
            "gb200",
            "340b-strong-fp8-128gpus",
            "log-acct-x.pretrain_nemotron4_340b_fp8_gpus128_tp8_pp4_cp1_vp12_mbs1_gbs512_77_0.out",
        ),
    ],
)
def test_a_log_of_another_release_belongs_to_one_case(
    tmp_path: Path, recipe: str, release: str, gpu: str, case_id: str, log: str
) -> None:
    path = tmp_path / log
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    found = examples.recipe_named(recipe, release, gpu)
    taken = {}
    for case in found.cases:
        with suppress(SubmitError):
            taken[case.id] = find_log(case, found, tmp_path).job
    assert taken == {case_id: "77"}


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
        assert find_log(case, recipe, tmp_path).job == job


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "zst": zstd.compress,
}
FORMS = pytest.mark.parametrize("form", COMPRESS)


def replayed(source: Path) -> bytes:
    """What the backend reads of the one log of the case."""
    backend = ReplayBackend(source, "h100", [examples.llama3()])
    job = backend.submit(examples.case(CASE), "name")
    data, piece = b"", backend.read_log(job, LogPlace(), ())
    while piece.data:
        data += piece.data
        piece = backend.read_log(job, piece.place, ())
    backend.release([job])
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
    assert find_log(examples.case(CASE), examples.llama3(), tmp_path / "tree").path == right
    assert find_log(examples.case(CASE), examples.llama3(), right).job == "7"
    collected = tmp_path / "results" / "llama3" / CASE / f"log.txt.{form}"
    collected.parent.mkdir(parents=True)
    collected.touch()
    assert find_log(examples.case(CASE), examples.llama3(), tmp_path / "results").path == collected


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
    monkeypatch.setattr(replay, "_MOST_BYTES", 3 << 20)
    path = tmp_path / f"log.{form}"
    path.write_bytes(COMPRESS[form](bytes(3 << 20)))
    assert len(replayed(path)) == 3 << 20
    path.write_bytes(COMPRESS[form](bytes((3 << 20) + 1)))
    with pytest.raises(
        SubmitError, match="has more than 3 MiB when it is decompressed, which no log of a case has"
    ):
        replayed(path)


def test_what_is_not_the_text_of_one_log_is_refused_with_what_unpacks_it(tmp_path: Path) -> None:
    """By what it holds, whatever its name: `tar --zstd` was read as one log, and a slow job passed by the steps of another."""
    text = examples.nemo2_text().encode()
    archive = test_contents.tar()
    for place, (data, called, command) in enumerate(
        [
            (archive, "is a tar archive", "tar -xf {} -C"),
            *((compress(archive), "is a tar archive", "tar -xf {} -C") for compress in COMPRESS.values()),
            (test_contents.zipped(), "is a zip archive", "unzip {} -d"),
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
        assert said.endswith(" with --from")
        run = said.partition("`")[2].partition("`")[0]
        assert command.format(shlex.quote(str(path))) in run
        subprocess.run(run, shell=True, check=True, cwd=folder, capture_output=True)
        logs = [log for log in folder.rglob("log*") if log.is_file() and log != path]
        assert text in {replayed(log) for log in logs}


@FORMS
def test_what_is_packed_twice_is_decompressed_first(tmp_path: Path, form: str) -> None:
    path = tmp_path / "log.out"
    for data, called in (
        (gzip.compress(b"log"), "compressed with gzip"),
        (test_contents.zipped(), "a zip archive"),
    ):
        path.write_bytes(COMPRESS[form](data))
        with pytest.raises(SubmitError) as refused:
            replayed(path)
        assert str(refused.value) == (
            f"{path} is {called} within a compressed file, not the text of one log: name the log itself with --from"
        )


def test_what_is_binary_is_called_so(tmp_path: Path) -> None:
    path = tmp_path / "log.out"
    path.write_bytes(test_contents.OTHERS["random"][0])
    with pytest.raises(SubmitError) as refused:
        replayed(path)
    assert str(refused.value) == (
        f"{path} is binary, not the text of one log: name the log itself with --from"
    )


@pytest.mark.parametrize("suffix", [".bz2", ".zip", ".lz4", ".tar", ".tar.gz", ".tgz", ".zstd", ".7z"])
def test_the_last_restart_counts_also_if_it_is_packed(tmp_path: Path, suffix: str) -> None:
    """Else the log of an earlier start of the job would be judged."""
    log(tmp_path / "tree", restart=0)
    plain = log(tmp_path / "tree", restart=1)
    last = plain.rename(f"{plain}{suffix}")
    assert find_log(examples.case(CASE), examples.llama3(), tmp_path / "tree").path == last
    collected = tmp_path / "results" / "llama3" / CASE / f"log.txt{suffix}"
    collected.parent.mkdir(parents=True)
    collected.write_bytes(bz2.compress(b"log"))
    assert find_log(examples.case(CASE), examples.llama3(), tmp_path / "results").path == collected
    with pytest.raises(
        SubmitError, match=f"^{collected} is compressed with bzip2, not the text of one log: run "
    ):
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
