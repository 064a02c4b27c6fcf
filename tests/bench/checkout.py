"""A checkout of Pacemark with a made-up recipe in it: as many cases as a bench wants, and a job that only waits.

Pacemark's own folders are links, so that what runs is this checkout's code.
"""

from __future__ import annotations

from pathlib import Path

from tests.printed import nemo2

ROOT = Path(__file__).resolve().parents[2]
RECIPE = "fleet"
NODES = 4
GPUS = 8 * NODES
STEPS = 50
STEP_SECONDS = 0.2
_GBS = 128

_LINE = nemo2.line(
    "$i",
    STEPS - 1,
    {
        "lr": 7.496e-06,
        "global_batch_size": _GBS,
        "global_step": "$i",
        "reduced_train_loss": "11.$((99 - i))",
        "train_step_timing in s": 10,
        "consumed_samples": f"$(((i + 1) * {_GBS}))",
    },
)

# One step of the log for each pause of the shell itself: no process is started, so 64 jobs leave the CPU alone.
JOB = f"""\
#!/bin/bash
exec {{quiet}}<> <(:)
for ((i = 0; i < {STEPS}; i++)); do
    read -rt {STEP_SECONDS} -u $quiet
    echo "{_LINE}"
done
"""

_LAUNCHER = """\
#!/bin/bash
exec sbatch --nodes=$NODES --exclusive --mem=0 --account="$SBATCH_ACCOUNT" --partition="$SBATCH_PARTITION" \\
    --output="$LOGS/log-%j.out" job.sh
"""

_SHAPE = "{layers: 32, hidden: 4096, ffn: 14336, heads: 32, query_groups: 8, vocab: 128256}"

_LAUNCH = f"""\
launch:
  folder: {RECIPE}
  command: ./launch.sh
  environment:
    NODES: "{{nodes}}"
    LOGS: "{{recipe}}/logs"
    SBATCH_ACCOUNT: "{{account}}"
    SBATCH_PARTITION: "{{partition}}"
  requires:
    - {{what: the launcher, path: "{{recipe}}/launch.sh", mend: "run the bench again"}}
  job_id: 'Submitted batch job (\\d+)'
  log_folder: "{{recipe}}/logs"
  log_name: 'log-{{job}}\\.out'
"""


def make(folder: Path, sizes: int, gpus: int = 1) -> Path:
    """A checkout in `folder` whose suite has `sizes` x `gpus` cases; where `gpus` is 1, each of `NODES` nodes."""
    folder.mkdir()
    for name in ("conftest.py", "pytest.ini", "plugins", "fixtures"):
        (folder / name).symlink_to(ROOT / name)
    suite, baselines = folder / "suites" / RECIPE, folder / "baselines"
    suite.mkdir(parents=True)
    baselines.mkdir()
    scales = [GPUS * (n + 1) for n in range(gpus)]
    (suite / "recipe.yaml").write_text(_recipe(sizes, scales))
    (suite / "test_fleet.py").write_text((ROOT / "suites/llama3/test_llama3.py").read_text())
    (baselines / "accelerators.yaml").symlink_to(ROOT / "baselines" / "accelerators.yaml")
    (baselines / f"{RECIPE}.yaml").write_text(_baselines(sizes, scales))
    return folder


def stock(stage: Path) -> None:
    """Put the recipe's folder on a stage."""
    folder = stage / RECIPE
    (folder / "logs").mkdir(parents=True)
    for name, text in (("launch.sh", _LAUNCHER), ("job.sh", JOB)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


def _recipe(sizes: int, scales: list[int]) -> str:
    lines = [
        f"recipe: {RECIPE}",
        "title: Jobs that wait",
        "backend: slurm",
        "source: tests/bench/checkout.py",
        'release: "1"',
        "log: nemo2",
        f"steps: {STEPS}",
        "startup_minutes: 0",
        f"models: {{m: {_SHAPE}}}",
        "cases:",
        *(
            f"  - {{size: s{n:03d}, model: m, dtype: [bf16], gpus: {scales}, sequence_length: 8192, mbs: 1, "
            f"gbs_per_gpu: {_GBS // GPUS}}}"
            for n in range(sizes)
        ),
    ]
    return "\n".join(lines) + "\n" + _LAUNCH


def _baselines(sizes: int, scales: list[int]) -> str:
    """10 s a step on every scale; MFU follows and is not judged."""
    names = [f"s{n:03d}" for n in range(sizes)]
    head = [
        f"recipe: {RECIPE}",
        "tables:",
        '  - release: "1"',
        "    gpu: h100",
        "    framework: a shell script",
        "    source: tests/bench/checkout.py",
        "    statistic: last",
        "    peak: {bf16: 989.5}",
        "    flops:",
        *(f"      {name}: {{definition: full-attention}}" for name in names),
        "    cells:",
    ]
    cells = [
        f"      - {{size: {name}, dtype: bf16, gpus: {gpus}, tp: 1, pp: 1, cp: 1, vp: 1, mbs: 1, "
        f"gbs: {gpus * _GBS // GPUS}, step_time: 10, tokens_per_second: {gpus * _GBS // GPUS * 8192 / 10}, mfu: 19.3}}"
        for name in names
        for gpus in scales
    ]
    return "\n".join([*head, *cells]) + "\n"
