"""What the recipes' READMEs print, as printed: their configurations and their results.

Sources, below https://github.com/NVIDIA/dgxc-benchmarking/blob/: v25.04/llama3.1/README.md,
v24.11.1/nemotron/README_15b.md, v24.11.1/nemotron/README_340b.md and v25.01/maxtext/README_70b.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.unit import published_releases

# | Size | Precision | GPUs | SeqLen | Layers | TP | PP | CP | EP | DP | VP | MBS | GBS | GA |
CONFIGURATIONS = """
| 8b | BF16/FP8 | 8 | 8192 | 32 | 1 | 1 | 2 | NA | 4 | NA | 1 | 128 | 32 |
| 8b | BF16/FP8 | 16 | 8192 | 32 | 1 | 1 | 2 | NA | 8 | NA | 1 | 256 | 32 |
| 8b | BF16/FP8 | 32 | 8192 | 32 | 1 | 1 | 2 | NA | 16 | NA | 1 | 512 | 32 |
| 8b | BF16/FP8 | 64 | 8192 | 32 | 1 | 1 | 2 | NA | 32 | NA | 1 | 1024 | 32 |
| 8b | BF16/FP8 | 128 | 8192 | 32 | 1 | 1 | 2 | NA | 64 | NA | 1 | 2048 | 32 |
| 70b | BF16 | 64 | 8192 | 80 | 4 | 4 | 2 | NA | 2 | 5 | 1 | 128 | 64 |
| 70b | BF16 | 128 | 8192 | 80 | 4 | 4 | 2 | NA | 4 | 5 | 1 | 256 | 64 |
| 70b | BF16 | 256 | 8192 | 80 | 4 | 4 | 2 | NA | 8 | 5 | 1 | 512 | 64 |
| 70b | BF16 | 512 | 8192 | 80 | 4 | 4 | 2 | NA | 16 | 5 | 1 | 1024 | 64 |
| 70b | BF16 | 1024 | 8192 | 80 | 4 | 4 | 2 | NA | 32 | 5 | 1 | 2048 | 64 |
| 70b | BF16 | 2048 | 8192 | 80 | 4 | 4 | 2 | NA | 64 | 5 | 1 | 4096 | 64 |
| 70b | FP8 | 64 | 8192 | 80 | 4 | 8 | 1 | NA | 2 | 5 | 1 | 128 | 64 |
| 70b | FP8 | 128 | 8192 | 80 | 4 | 8 | 1 | NA | 4 | 5 | 1 | 256 | 64 |
| 70b | FP8 | 256 | 8192 | 80 | 4 | 8 | 1 | NA | 8 | 5 | 1 | 512 | 64 |
| 70b | FP8 | 512 | 8192 | 80 | 4 | 8 | 1 | NA | 16 | 5 | 1 | 1024 | 64 |
| 70b | FP8 | 1024 | 8192 | 80 | 4 | 8 | 1 | NA | 32 | 5 | 1 | 2048 | 64 |
| 70b | FP8 | 2048 | 8192 | 80 | 4 | 8 | 1 | NA | 64 | 5 | 1 | 4096 | 64 |
| 405b-Proxy | BF16/FP8 | 32 | 8192 | 8 | 8 | 1 | 2 | NA | 2 | NA | 1 | 64 | 32 |
| 405b-Proxy | BF16/FP8 | 64 | 8192 | 30 | 8 | 4 | 2 | NA | 1 | 8 | 1 | 64 | 64 |
| 405b-Proxy | BF16/FP8 | 128 | 8192 | 62 | 8 | 4 | 2 | NA | 2 | 8 | 1 | 128 | 64 |
| 405b | BF16/FP8 | 512 | 8192 | 126 | 8 | 8 | 2 | NA | 4 | 8 | 1 | 256 | 64 |
| 405b | BF16/FP8 | 1024 | 8192 | 126 | 8 | 8 | 2 | NA | 8 | 8 | 1 | 512 | 64 |
| 405b | BF16/FP8 | 2048 | 8192 | 126 | 8 | 8 | 2 | NA | 16 | 8 | 1 | 1024 | 64 |
"""

# size, dtype, GPUs | step time (s) | tokens/s | MFU (%) | days for 1T tokens
LLAMA3 = """
8b BF16 8 | 12.27 | 85459 | 62.47 | 135.43
8b BF16 16 | 12.3 | 170500 | 62.31 | 67.88
8b BF16 32 | 12.32 | 340447 | 62.21 | 34
8b BF16 64 | 12.33 | 680341 | 62.16 | 17.01
8b BF16 128 | 12.33 | 1360683 | 62.16 | 8.51
8b FP8 8 | 9.33 | 112388 | 41.07 | 102.98
8b FP8 16 | 9.36 | 224055 | 40.94 | 51.66
8b FP8 32 | 9.43 | 444783 | 40.64 | 26.02
8b FP8 64 | 9.48 | 884874 | 40.42 | 13.08
8b FP8 128 | 9.54 | 1758618 | 40.17 | 6.58
70b BF16 64 | 14.66 | 71526 | 54.32 | 161.82
70b BF16 128 | 14.67 | 142955 | 54.29 | 80.96
70b BF16 256 | 14.68 | 285716 | 54.25 | 40.51
70b BF16 512 | 14.67 | 571821 | 54.29 | 20.24
70b BF16 1024 | 14.65 | 1145202 | 54.36 | 10.11
70b BF16 2048 | 14.66 | 2288843 | 54.32 | 5.06
70b FP8 64 | 9.86 | 106346 | 40.38 | 108.83
70b FP8 128 | 9.95 | 210769 | 40.02 | 54.91
70b FP8 256 | 10 | 419430 | 39.82 | 27.59
70b FP8 512 | 10.07 | 833030 | 39.54 | 13.89
70b FP8 1024 | 10.08 | 1664406 | 39.50 | 6.95
70b FP8 2048 | 10.15 | 3305855 | 39.23 | 3.5
405b BF16 32 | 5.4 | 97090 | 55.23 | n/a
405b BF16 64 | 10.1 | 51910 | 52.52 | n/a
405b BF16 128 | 19.62 | 53444 | 55.31 | n/a
405b BF16 512 | 19.78 | 106024 | 55.47 | 109.16
405b BF16 1024 | 19.84 | 211406 | 55.31 | 54.75
405b BF16 2048 | 19.87 | 422175 | 55.22 | 27.42
405b FP8 32 | 3.53 | 148524 | 42.24 | n/a
405b FP8 64 | 6.32 | 82957 | 41.97 | n/a
405b FP8 128 | 12.18 | 86090 | 44.55 | n/a
405b FP8 512 | 12.37 | 169535 | 44.35 | 68.27
405b FP8 1024 | 12.42 | 337706 | 44.17 | 34.27
405b FP8 2048 | 12.56 | 667883 | 43.68 | 17.33
"""

NEMOTRON4 = """
15b BF16 16 | 2.83 | 92630 | 62.10 | 124.95
15b BF16 32 | 2.86 | 183317 | 61.45 | 63.14
15b BF16 64 | 2.86 | 366635 | 61.45 | 31.57
15b BF16 128 | 2.89 | 725658 | 60.81 | 15.95
15b BF16 256 | 2.88 | 1456356 | 61.02 | 7.95
15b BF16 512 | 2.92 | 2872811 | 60.18 | 4.03
15b BF16 1024 | 2.92 | 5745622 | 60.18 | 2.01
15b BF16 2048 | 2.96 | 11335957 | 59.37 | 1.02
15b FP8 16 | 2.08 | 126031 | 42.22 | 91.84
15b FP8 32 | 2.07 | 253279 | 42.43 | 45.70
15b FP8 64 | 2.09 | 501711 | 42.02 | 23.07
15b FP8 128 | 2.08 | 1008246 | 42.22 | 11.48
15b FP8 256 | 2.1 | 1997288 | 41.82 | 5.79
15b FP8 512 | 2.12 | 3956891 | 41.43 | 2.93
15b FP8 1024 | 2.12 | 7913781 | 41.43 | 1.46
15b FP8 2048 | 2.18 | 15391941 | 40.29 | 0.75
340b BF16 128 | 4.61 | 28432 | 55.38 | 407
340b BF16 256 | 4.67 | 56134 | 54.67 | 206
340b BF16 512 | 4.7 | 111551 | 54.32 | 104
340b BF16 1024 | 4.73 | 221686 | 53.98 | 52
340b BF16 2048 | 4.84 | 433296 | 52.75 | 27
340b FP8 128 | 3.16 | 41478 | 40.38 | 279
340b FP8 256 | 3.21 | 81665 | 39.75 | 142
340b FP8 512 | 3.26 | 160825 | 39.14 | 72
340b FP8 1024 | 3.34 | 313945 | 38.20 | 37
340b FP8 2048 | 3.49 | 600903 | 36.56 | 19
"""

MAXTEXT_LLAMA2 = """
70b BF16 64 | 6.999 | 74908.99 | 52.59 | 154.51
70b BF16 128 | 7.072 | 148271.49 | 52.04 | 78.06
70b BF16 256 | 7.153 | 293184.96 | 51.45 | 39.48
70b BF16 512 | 7.091 | 591496.83 | 51.90 | 19.57
70b BF16 1024 | 7.084 | 1184162.62 | 51.95 | 9.77
70b BF16 2048 | 7.066 | 2374358.34 | 52.09 | 4.87
70b FP8 64 | 4.324 | 121250.69 | 42.54 | 95.46
70b FP8 128 | 4.556 | 230152.77 | 40.37 | 50.29
70b FP8 256 | 4.959 | 422898.16 | 37.09 | 27.37
70b FP8 512 | 5.043 | 831708.11 | 36.47 | 13.92
70b FP8 1024 | 5.062 | 1657172.66 | 36.34 | 6.98
70b FP8 2048 | 4.93 | 3403086.41 | 37.31 | 3.40
"""

# Recipe, release and type of GPU to its tables; first those of the recipes' own releases.
TABLES = {
    ("llama3", "25.04", "h100"): LLAMA3,
    ("nemotron4", "24.11", "h100"): NEMOTRON4,
    ("maxtext_llama2", "25.01", "h100"): MAXTEXT_LLAMA2,
    **published_releases.TABLES,
}
RECIPES = ("llama3", "nemotron4", "maxtext_llama2")
OWN = list(TABLES)[: len(RECIPES)]


@dataclass(frozen=True)
class Result:
    """A column of a README's results: s, tokens/s, percent, days (None where it prints n/a)."""

    recipe: str
    release: str
    gpu: str
    id: str
    step_time: float
    tokens_per_second: float
    mfu: float
    days: float | None

    @property
    def name(self) -> str:
        """`llama3 25.05 gb200/405b-fp8-512gpus`."""
        return f"{self.recipe} {self.release} {self.gpu}/{self.id}"


def configurations() -> dict[str, dict[str, int]]:
    """Case id to its configuration. A row for "BF16/FP8" is two cases; NA in VP is no virtual pipeline."""
    found: dict[str, dict[str, int]] = {}
    for line in CONFIGURATIONS.strip().splitlines():
        size, dtypes, *numbers = (cell.strip() for cell in line.strip("|").split("|"))
        gpus, sequence, layers, tp, pp, cp, _, dp, vp, mbs, gbs, ga = numbers
        for dtype in dtypes.lower().split("/"):
            found[f"{size.lower()}-{dtype}-{gpus}gpus"] = {
                "sequence_length": int(sequence),
                "layers": int(layers),
                "tp": int(tp),
                "pp": int(pp),
                "cp": int(cp),
                "vp": 1 if vp == "NA" else int(vp),
                "fsdp": 1,
                "dp": int(dp),
                "mbs": int(mbs),
                "gbs": int(gbs),
                "ga": int(ga),
            }
    return found


def other_configurations() -> dict[tuple[str, str, str], dict[str, dict[str, int]]]:
    """Recipe, release and type of GPU to case ids and configurations, of the releases that are not a recipe's own."""
    found: dict[tuple[str, str, str], dict[str, dict[str, int]]] = {}
    for line in published_releases.CONFIGURATIONS.strip().splitlines():
        what, batches, rest = (part.split() for part in line.split("|"))
        recipe, release, gpu, size, dtypes = what
        fixed = {key: int(value) for key, value in zip(rest[::2], rest[1::2], strict=True)}
        fixed |= published_releases.RUNS_INSTEAD.get((recipe, release, size), {})
        for dtype in dtypes.split(","):
            for gpus, gbs in (batch.split(":") for batch in batches):
                found.setdefault((recipe, release, gpu), {})[f"{size}-{dtype}-{gpus}gpus"] = {
                    **fixed,
                    "sequence_length": 8192 if recipe == "llama3" else 4096,
                    "fsdp": 1,
                    "dp": int(gpus) // (fixed["tp"] * fixed["pp"] * fixed["cp"]),
                    "gbs": int(gbs),
                }
    return found


def results(*recipes: str) -> list[Result]:
    """The results of these recipes' own releases, or of all recipes'."""
    return [result for table in OWN if not recipes or table[0] in recipes for result in results_of(table)]


def all_results() -> list[Result]:
    return [result for table in TABLES for result in results_of(table)]


def results_of(table: tuple[str, str, str]) -> list[Result]:
    """The results of a recipe's release on a type of GPU; "405b" below 512 GPUs in llama3's own is its proxy."""
    return [_result(*table, line) for line in TABLES[table].strip().splitlines()]


def _result(recipe: str, release: str, gpu: str, line: str) -> Result:
    cell, step_time, tokens, mfu, days = (part.strip() for part in line.split("|"))
    size, dtype, gpus = cell.split()
    size = "405b-proxy" if (size, release) == ("405b", "25.04") and int(gpus) < 512 else size
    return Result(
        recipe=recipe,
        release=release,
        gpu=gpu,
        id=f"{size}-{dtype.lower()}-{gpus}gpus",
        step_time=float(step_time),
        tokens_per_second=float(tokens),
        mfu=float(mfu),
        days=None if days == "n/a" else float(days),
    )
