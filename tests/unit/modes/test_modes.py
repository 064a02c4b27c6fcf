"""A run in another mode: judged by what it left on the cluster, and by its log in all but its pace."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from fixtures.backends.shell import Answer
from fixtures.backends.slurm.artefacts import listed, listing
from plugins.base.errors import ConfigError, Infrastructure, Unreachable
from plugins.judging.evidence import SiteFacts
from plugins.judging.judgement import Judgement
from plugins.logs.formats import read
from plugins.modes import nsys
from plugins.modes.artefacts import Artefacts, parse_artefacts
from plugins.modes.checks import artefact_problems, expected_reports
from plugins.modes.profiles import MOST_BYTES, read_profiles, shares_svg, table
from plugins.recipes.cases import Case, Recipe
from plugins.recipes.expansion import load_recipe
from plugins.record.case import File
from plugins.record.verdict import Kind
from tests.hostile import COMMAND, MARKUP, OBEYED
from tests.printed import nemo2
from tests.printed.nccl import Trace
from tests.unit import examples
from tests.unit.modes.simulator import export, simulate
from tests.unit.modes.test_nccl import read_digest_of

SUITES = Path(__file__).parents[3] / "suites"
LLAMA3, MAXTEXT = load_recipe(SUITES / "llama3"), load_recipe(SUITES / "maxtext_llama2")
FOLDER = "/stage/x_nsys/nsys_profile"


def case(name: str, recipe: Recipe = LLAMA3) -> Case:
    found = recipe.case(name)
    assert found is not None
    return found


PROFILE = case("8b-profile-bf16-8gpus")
PGLE = case("70b-profile-bf16-64gpus", MAXTEXT)


def artefacts(*files: tuple[str, int, float], begun: float | None = 100.0) -> Artefacts:
    entries = tuple(File(name=name, size=size, modified=at) for name, size, at in files)
    return Artefacts(host="me@login", folder=FOLDER, begun=begun, files=entries)


EIGHT = [(f"profile_{4000 + rank}.nsys-rep", 5000, 160.0) for rank in range(8)]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([], "no profiles of this job in /stage/x_nsys/nsys_profile, where 8 are expected"),
        (EIGHT[:7], "7 profiles of this job"),
        ([*EIGHT, ("profile_9.nsys-rep", 5000, 160.0)], "9 profiles of this job"),
        ([*EIGHT[:7], ("profile_4007.nsys-rep", 0, 160.0)], "profile_4007.nsys-rep is empty"),
        (
            [*EIGHT[:7], ("profile_4007.nsys-rep", 5000, 99.0)],
            "profile_4007.nsys-rep there is from before this job",
        ),
        ([*EIGHT[:7], ("profile_4007.qdstrm", 5000, 160.0)], "nsys did not finish profile_4007.qdstrm"),
    ],
)
def test_what_is_missing_is_named(files: list[tuple[str, int, float]], words: str) -> None:
    assert words in "; ".join(artefact_problems(PROFILE, artefacts(*files), nodes=1))
    assert artefact_problems(PROFILE, artefacts(*EIGHT, ("notes.txt", 0, 1.0)), nodes=1) == []
    assert expected_reports(case("70b-profile-fp8-512gpus")) == 8
    assert artefact_problems(PROFILE, None, nodes=1) == ["nobody has looked at what it left on the cluster"]


def test_a_pair_of_reports_is_told_apart_by_its_kinds() -> None:
    stem = "maxtext_llama2_70b_8n_bf16"
    both = artefacts((f"{stem}-prof.nsys-rep", 5000, 160.0), (f"{stem}-perf.nsys-rep", 5000, 170.0))
    one = artefacts((f"{stem}-prof.nsys-rep", 5000, 160.0), (f"{stem}-perf.nsys-rep", 5000, 99.0))
    assert artefact_problems(PGLE, both, nodes=8) == []
    assert "there is no profile perf of this job" in artefact_problems(PGLE, one, nodes=8)[0]


def judged(found: Artefacts | None, steps: int = 25, *more: str, of: Case = PROFILE) -> Judgement:
    last = of.steps - 1
    lines = [*more, *(nemo2.nemo2_line(index, 12.3, gbs=of.gbs, last=last) for index in range(steps))]
    log = read("nemo2", iter([("\n".join(lines) + "\n").encode()]))
    return examples.judged(of, examples.outcome(), log, None, artefacts=found)


def test_its_pace_is_shown_and_not_judged() -> None:
    found = judged(artefacts(*EIGHT), 25, "Capture range started in the application.")
    assert found.verdict.kind is Kind.PASSED
    assert found.measurement is None
    assert "median 12.3 s of 25 steps, not judged" in found.text
    assert "scp -r me@login:/stage/x_nsys/nsys_profile ." in found.text


@pytest.mark.parametrize(("network", "kind"), [("IB", Kind.PASSED), ("Socket", Kind.INVALID)])
def test_a_trace_over_another_network_than_the_sites_is_no_pass(network: str, kind: Kind) -> None:
    of = case("8b-nccl-trace-bf16-16gpus")
    lines = [nemo2.nemo2_line(index, 12.3, gbs=of.gbs, last=of.steps - 1) for index in range(of.steps)]
    found = examples.judged(
        of,
        examples.outcome(),
        read("nemo2", ["\n".join(lines).encode() + b"\n"]),
        None,
        artefacts=artefacts().model_copy(update={"trace": read_digest_of(Trace().whole())}),
        site=SiteFacts(nodes=2, network=network),
    )
    assert found.verdict.kind is kind


def test_a_run_that_is_not_valid_is_none_of_its_mode_either() -> None:
    found = judged(artefacts(*EIGHT), 24)
    assert found.verdict.kind is Kind.INVALID
    traced = "gpu1:1:2 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x1 "
    assert "NCCL tracing was on" in judged(artefacts(*EIGHT), 25, traced).text


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", b"\xff", '{"host": "a", "folder": "b", "files": [{"name": "x", "size": -1}]}']
)
def test_a_damaged_answer_is_one_clear_error(text: str | bytes) -> None:
    with pytest.raises(Infrastructure, match=r"artefacts\.json is damaged: "):
        parse_artefacts(text)


def looked_at(folder: Path, marker: Path, before: str = "") -> Artefacts:
    """What the script tells of a folder."""
    script = before + listing(str(folder), str(marker))
    done = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=False)
    return listed(Answer(done.returncode, done.stdout, done.stderr), "login", str(folder))


def test_a_folder_is_listed_as_it_is(tmp_path: Path) -> None:
    folder, marker = tmp_path / "a 'folder'", tmp_path / ".marker"
    folder.mkdir()
    marker.touch()
    for name in ("one.nsys-rep", "with blank", "feed\nin it"):
        (folder / name).write_text("x")
    (folder / "link.nsys-rep").symlink_to(folder / "one.nsys-rep")
    (folder / "deeper").mkdir()
    found = looked_at(folder, marker)
    assert sorted((file.name, file.size) for file in found.files) == [("one.nsys-rep", 1), ("with blank", 1)]
    assert found.begun is not None
    assert all(file.modified >= found.begun for file in found.files)
    gone = looked_at(tmp_path / "none", tmp_path / "none either")
    assert (gone.files, gone.begun) == ((), None)


def test_what_has_no_form_of_a_file_is_none_of_the_listing() -> None:
    out = "Loading 3 modules\n1.5 0 .marker\nfiles\nfind 3 x\n2.5 7 a\x85b 1 end\n3.5 8 c.nsys-rep\nend\n"
    found = listed(Answer(0, out, ""), "login", "/x")
    assert found.begun == 1.5
    assert [(file.name, file.size) for file in found.files] == [("a\x85b 1 end", 7), ("c.nsys-rep", 8)]


def test_a_folder_that_cannot_be_read_is_not_listed_in_part(tmp_path: Path) -> None:
    (tmp_path / "find").write_text("#!/bin/bash\necho 1.5 7 a.nsys-rep; echo 'cannot read b' >&2; exit 1\n")
    (tmp_path / "find").chmod(0o755)
    with pytest.raises(Unreachable, match=r"could not be listed: .*cannot read b"):
        looked_at(tmp_path, Path("/none"), f'PATH="{tmp_path}:$PATH"\n')
    for cut_off in ("", "files\n", "files\n1.0 5 a.nsys-rep\n"):
        with pytest.raises(Unreachable, match="could not be listed"):
            listed(Answer(0, cut_off, ""), "login", "/x")


def test_without_the_moment_of_its_submission_no_file_is_the_jobs_own() -> None:
    found = artefact_problems(PROFILE, artefacts(*EIGHT, begun=None), nodes=1)
    assert "nobody knows which of the 8 files there are of this job" in "; ".join(found)


@pytest.mark.parametrize(
    ("variant", "words"),
    [
        ("{what: x, steps: 25}", "only of a variant with"),
        ("{what: x, profiles: {folder: f, name: n}}", "give either ranks"),
        ("{what: x, profiles: {folder: f, name: n, kinds: [a]}}", "needs a group"),
    ],
)
def test_a_mode_that_cannot_be_is_refused(tmp_path: Path, variant: str, words: str) -> None:
    text = (SUITES / "llama3" / "recipe.yaml").read_text()
    begin = text.index("variants:\n")
    end = text.index("\n\n", begin)
    folder = tmp_path / "llama3"
    folder.mkdir()
    (folder / "recipe.yaml").write_text(f"{text[:begin]}variants:\n  other: {variant}{text[end:]}")
    with pytest.raises(ConfigError, match=words):
        load_recipe(folder)


# Digests of profiles as they come back from the cluster, and how they are shown


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the program prints for a job."""
    path = tmp_path_factory.mktemp("export") / "a.sqlite"
    profiles = nsys.digest(str(export(path, *simulate())))
    return {
        "version": 1,
        "profiles": profiles,
        "errors": [{"file": "profile_9.nsys-rep", "error": "is empty"}],
    }


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "Invalid JSON"),
        (b"bash: python3: command not found", "Invalid JSON"),
        (b"[]", "Input should be an object"),
        (b'{"version": 2, "profiles": [], "errors": []}', "version: Input should be 1"),
        (b'{"version": 1, "profiles": [], "errors": [], "more": 1}', "more: Extra inputs are not permitted"),
        (b'{"version": 1, "profiles": [{}], "errors": []}', "profiles.0.file: Field required"),
        (b" " * (MOST_BYTES + 1), f"{MOST_BYTES + 1} bytes, at most {MOST_BYTES} are read"),
        (b"\xff\xfe", "Invalid JSON"),
        (b"[" * 100_000, "Invalid JSON"),
    ],
)
def test_a_text_that_is_no_digest_is_one_error(text: bytes, said: str) -> None:
    with pytest.raises(ConfigError) as failed:
        read_profiles(text, "node1:/a.json")
    assert str(failed.value).startswith("node1:/a.json: is no digest of profiles: ")
    assert said in str(failed.value)
    assert "\n" not in str(failed.value)


@pytest.mark.parametrize(
    ("where", "value"),
    [("gap", -1), ("gap", 1.5), ("gap", "5"), ("gap", None), ("other", 1 << 63), ("speed", 1), ("host", 7), ("host", "x" * 500)],
)  # fmt: skip
def test_a_profile_with_a_wrong_value_is_refused(printed: dict[str, Any], where: str, value: object) -> None:
    changed = copy.deepcopy(printed)
    changed["profiles"][0][where] = value
    with pytest.raises(ConfigError, match=rf"profiles\.0\.{where}"):
        read_profiles(encoded(changed), "here")


def test_the_table_shows_shares_and_what_is_doubtful(printed: dict[str, Any]) -> None:
    changed = copy.deepcopy(printed)
    changed["profiles"][1]["remarks"] = ["3 records are left out"]
    lines = table(read_profiles(encoded(changed), "here").profiles).splitlines()
    assert re.fullmatch(r"node07 GPU 0 +0\.5\d\d\d +8\d\.\d% +1\d\.\d% +0\.1% +0\.\d%", lines[1])
    assert lines[-1] == "node07 GPU 1: 3 records are left out"


@pytest.mark.parametrize("text", [OBEYED.replace("\udc80", ""), *MARKUP, f"a\n{COMMAND}", "a\uffff"])
def test_texts_of_a_report_are_shown_harmless(printed: dict[str, Any], text: str) -> None:
    changed = copy.deepcopy(printed)
    for one in changed["profiles"]:
        one |= {"host": text, "remarks": [text], "file": text}
    profiles = read_profiles(encoded(changed), "here").profiles
    for shown in (table(profiles), shares_svg(profiles)):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\ud800-\udfff]", shown)
        assert "\n::" not in shown
        assert "##vso[" not in shown
    tags = {str(node.tag).rpartition("}")[2] for node in ET.fromstring(shares_svg(profiles)).iter()}
    assert tags == {"svg", "rect", "text"}
