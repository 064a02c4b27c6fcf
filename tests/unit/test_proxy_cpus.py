"""Who had the processors, as the proxy reads it of /proc and of cgroups: here of folders that look like them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from plugins.logs.log import ProcessorSample, read_sample

PROXY = Path(__file__).resolve().parents[2] / "suites" / "proxy"
TICKS = os.sysconf("SC_CLK_TCK")


class Proc:
    """A machine of four processors, of which the program may use the first two."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows = {name: [0] * 10 for name in ("cpu", "cpu0", "cpu1", "cpu2", "cpu3")}
        self.rows["cpu0"][3] = 100  # idle so far
        self.now = 100.0
        self.show()

    def show(self) -> None:
        rows = [f"{name}  {' '.join(map(str, row))}" for name, row in self.rows.items()]
        (self.folder / "stat").write_text("\n".join([*rows, "intr 1 2 3", "ctxt 7", ""]))

    def runs(self, processor: int, seconds: float, column: int = 0) -> None:
        """So many s pass on a processor: user time, or that of another column."""
        for name in ("cpu", f"cpu{processor}"):
            self.rows[name][column] += round(seconds * TICKS)
        self.show()

    def process(
        self, pid: int, name: str, seconds: float, *, parent: int = 1, began: int = 5, waited: float = 0
    ) -> None:
        """A process that has used so many s, and its children that it waited for."""
        folder = self.folder / str(pid)
        folder.mkdir(exist_ok=True)
        ticks = f"{round(seconds * TICKS)} 0 {round(waited * TICKS)} 0"
        (folder / "stat").write_text(
            f"{pid} ({name}) R {parent} 1 1 0 -1 0 0 0 0 0 {ticks} 20 0 1 0 {began} 0 0\n"
        )


@pytest.fixture
def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("proxy_cpus", PROXY / "cpus.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def proc(program: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Proc:
    (tmp_path / "proc").mkdir()
    machine = Proc(tmp_path / "proc")
    monkeypatch.setattr(program, "PROC", machine.folder)
    monkeypatch.setattr(program, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(program, "allowed", lambda: {0, 1})
    monkeypatch.setattr(program.time, "monotonic", lambda: machine.now)
    # The program runs for a hundredth of the time that the test lets pass, however fast the test is.
    monkeypatch.setattr(program, "used_so_far", lambda: machine.now / 100)
    monkeypatch.setenv("NPROC", "2")
    return machine


def sample(processors: object) -> ProcessorSample:
    found = read_sample(processors.sample(3, 0.25))  # type: ignore[attr-defined]
    assert found is not None
    return found


def test_other_programs_are_those_on_the_processors_that_this_one_may_use(
    program: ModuleType, proc: Proc
) -> None:
    proc.process(7, "firefox", 50.0)
    proc.process(8, "a (b) c", 1.0)
    watch = program.Processors()
    proc.runs(0, 1.5)
    proc.runs(1, 0.5, column=2)
    proc.runs(0, 0.5, column=3)  # idle
    proc.runs(1, 0.5, column=4)  # waits for a disk
    proc.runs(1, 0.25, column=7)  # stolen
    proc.runs(3, 9.0)
    proc.process(7, "firefox", 51.5)
    proc.process(9, "cc1plus", 0.5, began=900)
    proc.now += 2
    found = sample(watch)
    assert (found.step, found.tflops, found.processors, found.seconds) == (3, 0.25, 2, 2.0)
    assert found.others_s == pytest.approx(2.0, abs=0.3)
    assert (found.stolen_s, found.held_s) == (0.25, 0.0)
    assert found.programs == {"firefox": 1.5, "cc1plus": 0.5}
    proc.now += 1
    assert sample(watch).programs == {}


def test_what_the_program_starts_is_its_own(program: ModuleType, proc: Proc) -> None:
    proc.process(os.getpid(), "python3", 20.0)
    watch = program.Processors()
    proc.process(40, "sh", 0.0, parent=os.getpid(), began=900)
    proc.process(41, "python3", 1.0, parent=40, began=901)
    proc.runs(0, 3.0)
    proc.now += 2
    watch.begin()
    # Its parent has ended; what it waited for is of the family, too.
    (proc.folder / "40" / "stat").unlink()
    proc.process(41, "python3", 2.0, parent=1, began=901, waited=1.0)
    proc.now += 2
    found = sample(watch)
    assert found.own_s == pytest.approx(3.0, abs=0.3)
    assert found.others_s == pytest.approx(0.0, abs=0.3)
    assert found.programs == {}
    assert found.share == pytest.approx(2.0 / 2.0 / 2, abs=0.1)


def test_to_look_at_many_processes_is_no_part_of_the_products(
    program: ModuleType, proc: Proc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look takes a second, in which the program itself runs. Then its products take a second on both processors."""
    used = 0.0

    def look() -> dict[object, object]:
        nonlocal used
        proc.now, used = proc.now + 1, used + 1
        return {}

    monkeypatch.setattr(program, "processes", look)
    monkeypatch.setattr(program, "used_so_far", lambda: used)
    watch = program.Processors()
    watch.begin()
    proc.now, used = proc.now + 1, used + 2
    assert sample(watch).share == 1.0


def test_an_id_that_is_given_again_is_another_process(program: ModuleType, proc: Proc) -> None:
    proc.process(7, "firefox", 50.0)
    watch = program.Processors()
    proc.process(7, "make", 0.5, began=900)
    proc.now += 1
    assert sample(watch).programs == {"make": 0.5}


@pytest.mark.parametrize("what", ["nothing", "zeros"])
def test_a_machine_that_does_not_tell(program: ModuleType, proc: Proc, what: str) -> None:
    """macOS has no /proc, and gVisor's counts nothing."""
    if what == "nothing":
        (proc.folder / "stat").unlink()
    else:
        (proc.folder / "stat").write_text("cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n")
    watch = program.Processors()
    proc.now += 1
    found = sample(watch)
    assert (found.others_s, found.stolen_s, found.held_s, found.programs) == (None, None, None, {})


@pytest.mark.parametrize(
    ("line", "folder", "text"),
    [
        ("0::/a/b", "a/b", "usage_usec 5\nthrottled_usec 1500000\n"),
        ("0::/a/b", "a", "throttled_usec 1500000\n"),  # the pod's
        ("0::/", "", "throttled_usec 1500000\n"),  # in a container
        ("0::/../../other", "", "throttled_usec 1500000\n"),  # of a cgroup outside of the container's
        ("4:cpu,cpuacct:/a/b", "cpu,cpuacct/a/b", "nr_throttled 3\nthrottled_time 1500000000\n"),
        ("1:cpu:/", "cpu", "throttled_time 1500000000\n"),
    ],
)
def test_the_limit_of_a_cgroup(
    program: ModuleType, proc: Proc, tmp_path: Path, line: str, folder: str, text: str
) -> None:
    (proc.folder / "self").mkdir()
    (proc.folder / "self" / "cgroup").write_text(f"9:name=systemd:/x\n{line}\n")
    at = tmp_path / "cgroup" / folder
    at.mkdir(parents=True)
    (at / "cpu.stat").write_text(text)
    assert program.held() == 1.5


def test_the_threads_are_no_more_than_the_processors(
    program: ModuleType, proc: Proc, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert program.threads() == 2
    for given, threads in (("1", 1), ("8", 2), ("", 2), ("0", 2), ("x", 2)):
        monkeypatch.setenv("NPROC", given)
        assert program.threads() == threads


COMPUTES = "import time\nwhile time.process_time() < 0.5: pass\n"
ORPHAN = f"import os, sys\nif os.fork(): os._exit(0)\nsys.stdin.readline()\n{COMPUTES}print()"


def test_what_linux_counts_of_a_child_and_of_a_program_of_others(program: ModuleType) -> None:
    watch = program.Processors()
    subprocess.run([sys.executable, "-c", COMPUTES], check=True)
    assert sample(watch).own_s >= 0.5
    with subprocess.Popen(
        [sys.executable, "-c", ORPHAN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        other.wait()  # its child goes on, and is init's
        watch = program.Processors()
        other.stdin.write(b"\n")
        other.stdin.close()
        other.stdout.read()
    found = sample(watch)
    assert found.others_s is not None
    # Linux counts in hundredths of a second, and by samples.
    assert found.others_s > 0.3
