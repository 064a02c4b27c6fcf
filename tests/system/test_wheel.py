"""The wheel judges logs and verifies bundles without the checkout, without network, and without what only sessions need."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest

from pacemark.__main__ import main
from tests import locks
from tests.unit import examples
from tests.unit.bundles import runs

# Neither the network nor these packages are there, whatever the machine has.
_GUARD = """\
import socket, sys
for name in ("allure_commons", "kubernetes", "paramiko", "pytest"):
    sys.modules[name] = None
def none(*_): raise OSError("no network")
socket.socket.connect = socket.getaddrinfo = none
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel in it; its requirements are those that the tests run with."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=locks.ROOT, check=True, capture_output=True)
    environment = folder / "venv"
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    (wheel,) = folder.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--disable-pip-version-check", str(wheel)], check=True, capture_output=True)
    packages = next((environment / "lib").glob("python*/site-packages"))
    (packages / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (packages / "sitecustomize.py").write_text(_GUARD)
    return environment


def _run(environment: Path, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the environment in a folder, without network interfaces where the kernel allows that."""
    alone = ["unshare", "-rn"]
    probe = shutil.which("unshare") and subprocess.run([*alone, "true"], capture_output=True).returncode == 0
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    program = [*(alone if probe else []), str(environment / "bin" / command[0]), *command[1:]]
    return subprocess.run(program, cwd=folder, env=own, capture_output=True, text=True)


def test_an_installed_wheel_verifies_a_bundle(installed: Path, tmp_path: Path) -> None:
    runs.make_keys(tmp_path, "vendor", "buyer")
    run, empty = runs.make_run(tmp_path / "results"), tmp_path / "empty"
    empty.mkdir()
    assert (
        main(["bundle", str(run), "--key", str(tmp_path / "vendor.pem"), "-o", str(empty / "run.zip")]) == 0
    )
    shutil.rmtree(run)
    where = _run(
        installed,
        empty,
        "python",
        "-c",
        "import pacemark, plugins, fixtures as f; print(f, plugins, pacemark)",
    )
    assert str(locks.ROOT) not in where.stdout
    assert where.stdout.count(str(installed)) == 3, where.stderr
    signed = _run(installed, empty, "pacemark", "sign", "run.zip", "--key", "../buyer.pem")
    assert signed.returncode == 0, signed.stderr
    keys = ["--key", "../vendor.pub", "--key", "../buyer.pub"]
    verified = _run(installed, empty, "pacemark", "verify", "run.zip", *keys)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "2 passed, 1 too slow, 1 infrastructure: made anew of the logs" in verified.stdout
    members = runs.unpacked(empty / "run.zip")
    faster = runs.replaced(members, f"llama3/{runs.SLOW}/log.txt", "s: 16.1", "s: 14.6", 99)
    runs.packed(runs.signed(faster, tmp_path / "vendor.pem", tmp_path / "buyer.pem"), empty / "run.zip")
    forged = _run(installed, empty, "pacemark", "verify", "run.zip", *keys)
    assert forged.returncode == 1
    assert f"llama3/{runs.SLOW}: summary.json says 'too slow', its log says: passed" in forged.stdout
    assert [path.name for path in empty.iterdir()] == ["run.zip"]


def test_an_installed_wheel_judges_a_log(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "log.out").write_text(examples.nemo2_text([examples.target().step_time] * 50))
    case = ["--gpu", "h100", "--release", "25.04", "--case", "llama3/70b-fp8-512gpus"]
    judged = _run(installed, tmp_path, "pacemark", "judge", "log.out", *case, "--html", "report.html")
    assert judged.returncode == 0, judged.stdout + judged.stderr
    assert "llama3/70b-fp8-512gpus  passed" in judged.stdout
    told = _run(installed, tmp_path, "pacemark", "why", "log.out", *case)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "not readable here: " in told.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.out", "report.html"]


def test_the_wheel_requires_what_the_tests_run_with() -> None:
    project = tomllib.loads((locks.ROOT / "pyproject.toml").read_text())
    wanted = {line.strip() for line in (locks.ROOT / "requirements.txt").read_text().splitlines()}
    assert set(project["project"]["dependencies"]) <= wanted
    tools = (locks.ROOT / "tests" / "requirements.txt").read_text().splitlines()
    assert set(project["build-system"]["requires"]) <= set(tools)
