"""The bash and Python of the data's Jobs, really run: against a hub on loopback, and killed in the middle."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fixtures.backends.kubernetes.provision.apply import progress
from tests.unit import gpt3_setup
from tests.unit import hub as hubs
from tests.unit.hub import Hub

STAGES = ("download", "extract", "concatenate", "preprocess")
TOKEN = "hf_planted-by-a-test"
FILES = 10


@cache
def compressed(lines: int, *, whole: bool = True) -> bytes:
    text = b"\n".join(b'{"text": "%d"}' % n for n in range(lines)) + (b"\n" if whole else b"")
    return subprocess.run(["zstd", "-qc"], input=text, capture_output=True, check=True).stdout


@contextmanager
def served() -> Iterator[Hub]:
    if shutil.which("zstd") is None:
        pytest.fail("the program zstd is needed: apt-get install zstd")
    # Beyond the pages' size, and more than are asked for; every third lacks the end of its last line.
    files = {
        f"train/chunk1/example_train_{n}.jsonl.zst": compressed(n + 1, whole=n % 3 != 0) for n in range(12)
    }
    hub = Hub(files)
    yield hub
    hub.close()


@pytest.fixture
def hub() -> Iterator[Hub]:
    with served() as hub:
        yield hub


class Volume:
    """A claim's folder, and the pods that work in it."""

    def __init__(self, folder: Path, hub: Hub) -> None:
        self.root = folder / "data"
        self.work = self.root / "slimpajama"
        self.scripts = gpt3_setup.scripts(folder / "scripts")
        self.root.mkdir()
        self.environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "STORAGE_MOUNT": str(self.root),
            "DATASET_PATH": "slimpajama/preprocessed",
            "REPOSITORY": "cerebras/SlimPajama-627B",
            "REVISION": "main",
            "WORKERS": "4",
            "FILES": str(FILES),
            "PARTS": "7",
            "PROCESSES": "2",
            "MEGATRON": str(hubs.megatron(folder / "megatron")),
            "HF_ENDPOINT": hub.url,
            "HF_TOKEN": TOKEN,
            "RETRY_SECONDS": "0.01",
        }

    def start(self, stage: str, worker: int, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", str(self.scripts / f"{stage}.sh")],
            env={**self.environment, "JOB_COMPLETION_INDEX": str(worker), **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, stage: str, *workers: int, code: int = 0, **more: str) -> str:
        """The workers of a stage at once, as the Job runs them; what they said."""
        started = [self.start(stage, worker, **more) for worker in workers or range(4)]
        said = [process.communicate(timeout=300)[0] for process in started]
        assert [process.returncode for process in started] == [code] * len(started), "\n".join(said)
        return "".join(said)

    def files(self, folder: str) -> dict[str, tuple[int, int]]:
        """Size and time of change of every file, by name."""
        found = sorted((self.work / folder).glob("*"))
        return {path.name: (path.stat().st_size, path.stat().st_mtime_ns) for path in found}

    def count(self) -> tuple[str | Any, ...]:
        """Pairs, files without index, and whether the tokenizer is there."""
        there = gpt3_setup.contract().counted(self.run("count", 0))
        assert there is not None
        return there.group("pairs", "lone", "tokenizer")


@pytest.fixture
def volume(tmp_path: Path, hub: Hub) -> Volume:
    return Volume(tmp_path, hub)


@dataclass(frozen=True)
class Undisturbed:
    """What each stage said that nothing disturbed, by its name; the folder has the volume as it was then."""

    folder: Path
    said: dict[str, str]

    def lay_out(self, volume: Volume, stage: str) -> None:
        """Make the volume what this stage left."""
        shutil.copytree(self.folder / stage, volume.root, dirs_exist_ok=True)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    made = Undisturbed(tmp_path_factory.mktemp("undisturbed"), {})
    with served() as hub:
        volume = Volume(made.folder, hub)
        for stage in STAGES:
            made.said[stage] = volume.run(stage)
            shutil.copytree(volume.root, made.folder / stage)
    return made


def test_ten_files_become_seven_pairs_with_every_document(volume: Volume, undisturbed: Undisturbed) -> None:
    assert volume.count() == ("0", "0", "no")
    for stage, said in undisturbed.said.items():
        total = FILES if stage in ("download", "extract") else 7
        pattern = gpt3_setup.contract().file.data.progress
        assert progress([said.encode()], pattern, stage, 4) == f"{stage}: {total} of {total} files"
    undisturbed.lay_out(volume, "preprocess")
    assert volume.count() == ("7", "0", "yes")
    documents = sum(path.stat().st_size for path in (volume.work / "preprocessed").glob("*.bin"))
    # The sorted list of the hub begins with 0, 1, 10, 11, 2 to 7: those of n + 1 documents.
    assert documents == sum(n + 1 for n in (0, 1, 10, 11, 2, 3, 4, 5, 6, 7))
    assert sorted(volume.files("downloaded"))[0] == "chunk1-example_train_0.jsonl.zst"
    assert list(volume.work.rglob("*.part")) == []


def test_the_token_goes_to_the_hub_and_no_further(volume: Volume, hub: Hub) -> None:
    said = volume.run("download")
    assert TOKEN not in said
    assert {token for path, token in hub.asked if path.startswith("/bytes/")} == {""}
    assert {token for path, token in hub.asked if not path.startswith("/bytes/")} == {f"Bearer {TOKEN}"}


def test_a_busy_hub_and_a_download_cut_short_are_tried_again(volume: Volume, hub: Hub) -> None:
    hub.busy, hub.cut = 5, 3
    said = volume.run("download")
    assert "429; again in" in said
    assert "bytes of" in said
    assert [size for size, _ in volume.files("downloaded").values()] == [
        len(hub.files[f"train/chunk1/example_train_{n}.jsonl.zst"]) for n in (0, 1, 10, 11, 2, 3, 4, 5, 6, 7)
    ]


def test_more_files_than_there_are_is_refused_for_good(volume: Volume) -> None:
    assert "has 12 files, 13 are asked for" in volume.run("download", code=2, FILES="13")


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_that_is_killed_goes_on_where_it_was(
    volume: Volume, hub: Hub, undisturbed: Undisturbed, stage: str
) -> None:
    if stage != STAGES[0]:
        undisturbed.lay_out(volume, STAGES[STAGES.index(stage) - 1])
    folder = {"download": "downloaded", "extract": "extracted", "concatenate": "concatenated"}.get(
        stage, "preprocessed"
    )
    # It stands still behind its first file, so that it dies in the middle of its work: the first worker, which has several.
    still = volume.root.parent / "still"
    still.mkdir()
    for program in ("zstd", "cat"):
        path = still / program
        path.write_text(
            '#!/bin/bash\nfor file in "$HOLD"/*; do [[ ! -e $file || $file == *.part ]] || sleep 600; done\n'
            f'exec {shutil.which(program)} "$@"\n'
        )
        path.chmod(0o755)
    hub.tickets = threading.Semaphore(1) if stage == "download" else None
    programs = f"{still}:{volume.environment['PATH']}"
    process = volume.start(stage, 0, HOLD=str(volume.work / folder), PATH=programs)
    deadline = time.monotonic() + 60
    while not [name for name in volume.files(folder) if not name.endswith((".part", ".idx"))]:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    before = {name: seen for name, seen in volume.files(folder).items() if not name.endswith(".part")}
    if hub.tickets is not None:
        hub.tickets.release(FILES)
    volume.run(stage)
    after = volume.files(folder)
    assert {name: after[name] for name in before} == before
    # It had three files, or two parts.
    assert len([name for name in before if not name.endswith(".idx")]) < (
        3 if stage in ("download", "extract") else 2
    )
    # So the stages behind it find what they would have found.
    wanted, found = (
        {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        for root in (undisturbed.folder / stage, volume.root)
    )
    # What was being built when it was killed stays there, beside the data set.
    of_both = {path for path in {*wanted, *found} if "building" not in path.parts}
    assert [path for path in of_both if wanted.get(path) != found.get(path)] == []


def test_a_stage_that_was_done_says_so_at_once_and_touches_nothing(
    volume: Volume, hub: Hub, undisturbed: Undisturbed
) -> None:
    undisturbed.lay_out(volume, "download")
    said = volume.run("download")
    assert hub.asked == []
    assert sorted(said.splitlines()) == [
        f"pacemark: download {worker} of 4: {share} of {share} files"
        for worker, share in enumerate((3, 3, 2, 2))
    ]


def test_a_stage_before_its_time_is_refused(volume: Volume) -> None:
    volume.run("download", 0)
    assert "stage download is not complete: worker 1 of 4 has not finished" in volume.run(
        "extract", 0, code=2
    )


def test_another_selection_in_the_same_folder_is_refused(volume: Volume, undisturbed: Undisturbed) -> None:
    undisturbed.lay_out(volume, "download")
    said = volume.run("download", 0, code=2, FILES="12")
    assert "was begun with 'files=10 parts=7" in said
    assert "give another folder (dataset)" in said


def test_a_folder_with_files_of_somebody_else_is_left_alone(volume: Volume) -> None:
    theirs = volume.work / "preprocessed"
    theirs.mkdir(parents=True)
    (theirs / "own_text_document.bin").write_bytes(b"theirs")
    assert "has files that were not made here" in volume.run("download", 0, code=2)
    assert volume.count() == ("0", "1", "no")


def test_a_damaged_file_is_named(volume: Volume, undisturbed: Undisturbed) -> None:
    undisturbed.lay_out(volume, "download")
    victim = volume.work / "downloaded" / "chunk1-example_train_0.jsonl.zst"
    victim.write_bytes(b"not zstd")
    said = volume.run("extract", 0, code=1)
    assert f"{victim} cannot be decompressed" in said
    assert not (volume.work / "extracted" / "chunk1-example_train_0.jsonl").exists()


def test_a_tool_that_fails_shows_its_last_words_and_leaves_no_pair(
    volume: Volume, undisturbed: Undisturbed
) -> None:
    undisturbed.lay_out(volume, "concatenate")
    said = volume.run("preprocess", 0, code=1, BROKEN="part-0004")
    assert "RuntimeError: no memory left" in said
    assert "preprocess_data.py failed on" in said
    assert sorted(volume.files("preprocessed")) == ["part-0000.bin", "part-0000.idx"]
