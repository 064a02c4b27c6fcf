"""All cases that can be judged: of each recipe, release and type of GPU, with the paths that their logs have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from plugins.baselines.baseline_file import accelerators
from plugins.baselines.expected import counting, expected
from plugins.baselines.store import find
from plugins.recipes.cases import Case, Recipe
from plugins.recipes.expansion import load_recipe
from plugins.recipes.recipe_file import REPLAY_WORDS, log_rule, read_recipe, read_releases
from plugins.sources.files import SUFFIX


@dataclass(frozen=True)
class Candidate:
    """A case of a recipe in one release, on one type of GPU."""

    recipe: Recipe
    gpu: str
    case: Case

    @property
    def text(self) -> str:
        """`llama3/70b-fp8-512gpus of 25.04 on h100`."""
        return f"{self.case.key} of {self.case.release} on {self.gpu}"

    @property
    def gpus_per_node(self) -> int:
        return 4 if self.gpu.startswith("gb") else 8

    @property
    def names_scale(self) -> bool:
        """Whether the paths of its logs name the number of GPUs. If not, one of them may be of any case."""
        return "{gpus}" in (self.recipe.file.replay or "")

    @property
    def order(self) -> tuple[object, ...]:
        """By recipe, size, dtype, number of GPUs, release and type of GPU."""
        case = self.case
        return case.recipe, case.size, case.dtype, case.gpus, case.release, self.gpu


@dataclass(frozen=True)
class Number:
    """The number that a case is judged by: its step time in s, and where it was published."""

    step_time: float
    origin: str

    @property
    def text(self) -> str:
        return f"{self.step_time:.4g} s a step, {self.origin}"


class Registry:
    """The timed cases of these recipes, as their folders have them; `published` has `suites` and `baselines`."""

    def __init__(self, published: Path) -> None:
        self.published = published
        self.baselines = published / "baselines"

    @cached_property
    def gpus(self) -> list[str]:
        """The types of GPU that have a data sheet."""
        return [name for name in accelerators(self.baselines) if name != "cpu"]

    @cached_property
    def candidates(self) -> list[Candidate]:
        """All of them, of the usual variant. Those of a recipe that names no type of GPU are of any. Raises ConfigError."""
        return [
            Candidate(recipe, gpu, case)
            for recipe, gpu in self._recipes()
            for case in recipe.cases
            if case.is_timed and not case.variant
        ]

    def number(self, candidate: Candidate) -> Number | None:
        """The published number of a case; None if there is none. Raises ConfigError."""
        baseline = find(self.baselines, candidate.recipe, candidate.case, candidate.gpu)
        if baseline is None:
            return None
        basis = counting(candidate.case, baseline, candidate.gpu, self.baselines).basis()
        step_time = None if basis is None else expected(candidate.case, baseline, basis).step_time
        return None if step_time is None else Number(step_time, baseline.origin)

    def _recipes(self) -> Iterator[tuple[Recipe, str]]:
        for path in sorted((self.published / "suites").glob("*/recipe.yaml")):
            file = read_recipe(path.parent)
            if file.program:
                # It measures the machine that it runs on, and its jobs leave more than a log.
                continue
            for release in read_releases(path.parent, file):
                for gpu in self.gpus:
                    recipe = load_recipe(path.parent, release, gpu)
                    if not recipe.unfit:
                        yield recipe, gpu


@dataclass(frozen=True)
class Named:
    """What a path says of the case of its log, by the words of a recipe's rule; and of its job, and of its restarts."""

    words: dict[str, str]
    job: str
    restart: int


class PathRules:
    """The recipes' rules for the paths of logs. A rule is tried once for a path, whatever number of cases it is for."""

    def __init__(self, candidates: Iterable[Candidate]) -> None:
        self._words: dict[str, dict[str, set[str]]] = {}
        for candidate in candidates:
            rule = candidate.recipe.file.replay
            if rule is not None:
                words = self._words.setdefault(rule, {word: set() for word in REPLAY_WORDS})
                for word, value in words_of(candidate).items():
                    words[word].add(value)
        self._patterns = {rule: _pattern(rule, words) for rule, words in self._words.items()}

    def read(self, path: str) -> dict[str, Named]:
        """What the rules that fit it say of this path, by the rule."""
        path = SUFFIX.sub("", path)
        matches = ((rule, pattern.search(path)) for rule, pattern in self._patterns.items())
        return {rule: _named(match) for rule, match in matches if match}


def words_of(candidate: Candidate) -> dict[str, str]:
    """The words of a case that stand in the paths of its logs."""
    case = candidate.case
    dtype = candidate.recipe.file.dtype_in_paths(case.dtype)
    words = (case.model_name, case.size, dtype, str(case.gpus), str(case.gbs))
    return dict(zip(REPLAY_WORDS, words, strict=True))


def _pattern(rule: str, words: dict[str, set[str]]) -> re.Pattern[str]:
    """A pattern that finds the paths of all cases of a rule, with a group for each word."""
    text = log_rule(rule, {word: f"<{word}>" for word in REPLAY_WORDS}).pattern
    for word, values in words.items():
        first, *more = text.split(re.escape(f"<{word}>"))
        either = "|".join(map(re.escape, sorted(values, key=len, reverse=True)))
        text = first + "".join(
            f"{f'(?P<{word}>{either})' if not number else f'(?P={word})'}{part}"
            for number, part in enumerate(more)
        )
    return re.compile(text)


def _named(match: re.Match[str]) -> Named:
    groups = match.groupdict()
    words = {word: groups[word] for word in REPLAY_WORDS if groups.get(word)}
    return Named(words, groups["job"], int(groups.get("restart") or 0))


def names(candidate: Candidate, named: Named) -> bool:
    """Whether the path of a log names this case."""
    words = words_of(candidate)
    return all(words[word] == value for word, value in named.words.items())
