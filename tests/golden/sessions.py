"""Sessions on recorded jobs and logs, and the records that they leave, without what differs from day to day."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.system import support

STORED = Path(__file__).with_name("stored")
LOGS = support.ROOT / "tests" / "unit" / "gpu_logs"
RECORDS = ("summary.json", "ctrf.json", "metrics.txt", "report.html", "*/*/case.json", "*/*/steps.csv")

LLAMA3 = "suites/llama3"
PROXY = ("suites/proxy", "-k", "8b-8l-bf16-1gpus", "--backend", "replay", "--from")


@dataclass(frozen=True)
class Recording:
    """A session: its arguments, and the scenario that its jobs follow; "" if it replays a log."""

    arguments: tuple[str, ...]
    scenario: str = ""
    gpu: str = "h100"
    plan: str = ""


SESSIONS = {
    "verdicts": Recording(
        (
            LLAMA3, "suites/maxtext_llama2", "-k",
            "(llama3 and 70b and (64 or 128 or 256 or 512)) or (405b and fp8 and 1024) or (maxtext and 70b and fp8 and 1024)",
        ),
        "verdicts",
    ),
    "again": Recording(
        (
            LLAMA3, "-k", "70b and fp8 and (64 or 256 or 512)", "--retry-infrastructure", "1", "--exclude-failed-nodes",
            "--repeat-undecided",
        ),
        "again",
    ),
    "checkpoints": Recording(
        (LLAMA3, "--variant", "checkpoint", "-k", "70b and fp8 and 512 and checkpoint"), "checkpoints"
    ),
    "skipped": Recording(
        (LLAMA3, "--variant", "checkpoint", "-k", "70b and fp8 and 512 and checkpoint"), "skipped"
    ),
    "stopped": Recording((LLAMA3, "-k", "70b and fp8 and (256 or 512)"), "stopped"),
    "no-baseline": Recording((LLAMA3, "-k", "70b and fp8 and 64"), "verdicts", gpu="b200"),
    "accepted": Recording(
        ("suites",),
        "accepted",
        plan="site: lab\ncases: [llama3/70b-fp8-64gpus, llama3/70b-fp8-128gpus]\nscaling: 0.03\n",
    ),
    "healthy-gpus": Recording((*PROXY, str(LOGS / "healthy.log"))),
    "second-process": Recording((*PROXY, str(LOGS / "second_process.log"))),
}  # fmt: skip


def session(name: str, folder: Path) -> support.Run:
    """Run a session."""
    session = SESSIONS[name]
    results, site, plan = folder / "results", folder / "site.yaml", folder / "acceptance.yaml"
    arguments = [*session.arguments]
    if session.plan:
        plan.write_text(session.plan)
        arguments += ["--acceptance", str(plan)]
    if session.scenario:
        site.write_text(f"site: lab\nslurm:\n  gpu: {session.gpu}\n")
        arguments += ["-p", "tests.golden.recorded", "--site", str(site)]
    environment = {"PACEMARK_GOLDEN": session.scenario, "PACEMARK_GOLDEN_RESULTS": str(results)}
    return support.pacemark(*arguments, results=results, env=environment)


def run(name: str, folder: Path) -> dict[str, str]:
    """Run a session. Returns each record by its path in the run's folder."""
    finished = session(name, folder)
    files = sorted(path for pattern in RECORDS for path in finished.folder.glob(pattern))
    assert files, finished.out
    return {
        str(path.relative_to(finished.folder)): steady(path.read_text(), folder, finished.folder.name)
        for path in files
    }


def steady(text: str, folder: Path, name: str) -> str:
    """A record without its run's name and place, and without the moments, the versions and the digests that follow from these."""
    text = text.replace(name, "RUN").replace(str(folder), "FOLDER").replace(str(support.ROOT), "CHECKOUT")
    text = re.sub(r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(\+00:00| UTC)?", _steady_moment, text)
    text = re.sub(r'("(?:start|stop)": )(?!1790)\d{13}\b', r"\g<1>0", text)
    text = re.sub(r'(sent\.txt": ")[0-9a-f]{64}', r"\g<1>DIGEST", text)
    text = re.sub(r'\n "versions": \{\n  "pacemark".*?\n \}', '\n "versions": {}', text, flags=re.DOTALL)
    text = re.sub(r'("(?:pacemark\.)?commit": )(null|"[0-9a-f]{40}")', r"\1null", text)
    text = re.sub(r"(<dt>made with</dt><dd>Pacemark )[^<]*(?=, run)", r"\1VERSION", text)
    text = re.sub(r'("dirty": )(null|true|false)', r"\1null", text)
    return re.sub(
        r"(<dt>(?:commit of Pacemark|pacemark|python|[\w-]*pytest[\w-]*|pydantic|paramiko)</dt><dd>)[^<]*",
        r"\1VERSION",
        text,
    )


def _steady_moment(match: re.Match[str]) -> str:
    """Recorded jobs began on a day of their own."""
    return match[0] if match[0].startswith("2026-09-21") else "MOMENT"
