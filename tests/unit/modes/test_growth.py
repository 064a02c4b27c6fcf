"""Planted causes are named, with the digests of simulated jobs that the real program made."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from plugins.modes import nsys
from plugins.modes.growth import Growth, explain_growth
from plugins.modes.profiles import Digests, read_profiles
from plugins.record.verdict import Cause
from tests.unit.modes.simulator import RANKS, STEPS, Planted, export, simulate

TRIALS = 20
EVERYWHERE = range(RANKS)
INFINIBAND = dict.fromkeys(EVERYWHERE, "IB")


@pytest.fixture(scope="module")
def digests(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Digests]:
    folder = tmp_path_factory.mktemp("exports")

    @cache
    def good(seed: str) -> Digests:
        return made(seed, Planted())

    def made(seed: str, planted: Planted, **options: Any) -> Digests:
        profiles = []
        for rank, recorded in enumerate(simulate(seed, planted, **options)):
            path = export(folder / "a.sqlite", recorded, device=rank)
            profiles += nsys.digest(str(path), STEPS, rank)
            path.unlink()
        return read_profiles(json.dumps({"version": 1, "profiles": profiles, "errors": []}).encode(), seed)

    return lambda seed, planted=None, **options: (
        good(seed) if planted is None and not options else made(seed, planted or Planted(), **options)
    )


def nothing(rng: random.Random) -> Planted:
    return Planted()


def slow_rank(rng: random.Random) -> Planted:
    return Planted(compute={rng.randrange(RANKS): rng.uniform(1.05, 1.30)})


def slow_everywhere(rng: random.Random) -> Planted:
    return Planted(compute=dict.fromkeys(EVERYWHERE, rng.uniform(1.05, 1.30)))


def slow_link(rng: random.Random) -> Planted:
    return Planted(link=rng.uniform(1.5, 4))


def host_gaps(rng: random.Random) -> Planted:
    return Planted(gaps={rng.randrange(RANKS): rng.uniform(100e-6, 1e-3)})


def data_stall(rng: random.Random) -> Planted:
    ranks = rng.choice([[rng.randrange(RANKS)], list(EVERYWHERE)])
    return Planted(data=dict.fromkeys(ranks, rng.uniform(5e-3, 50e-3)))


def _who(ranks: dict[int, float]) -> tuple[str, ...]:
    return () if len(ranks) == RANKS else tuple(f"rank {rank} (node07 GPU {rank})" for rank in ranks)


def named_right(found: Growth, planted: Planted, sockets: bool) -> bool:
    for kind, ranks in (
        (Cause.COMPUTE, planted.compute),
        (Cause.GAP, planted.gaps),
        (Cause.DATA, planted.data),
    ):
        if ranks:
            last = found.last == _who(ranks)[0] if len(ranks) == 1 else True
            return (found.cause, found.ranks) == (kind, _who(ranks)) and last
    if planted.link > 1:
        kind = Cause.TRANSPORT if sockets else Cause.COMMUNICATION
        return found.cause is kind and found.collective in ("AllGather", "ReduceScatter")
    return found.cause is Cause.UNKNOWN


@pytest.mark.parametrize(
    ("plant", "networks"),
    [
        (nothing, ["IB"]),
        (slow_rank, ["IB"]),
        (slow_everywhere, ["IB"]),
        (slow_link, ["IB", "Socket"]),
        (host_gaps, ["IB"]),
        (data_stall, ["IB"]),
    ],
)
def test_planted_causes_are_named(
    digests: Callable[..., Digests], plant: Callable[[random.Random], Planted], networks: list[str]
) -> None:
    right: Counter[str] = Counter()
    wrong = []
    for trial in range(TRIALS):
        planted = plant(random.Random(f"{plant.__name__} {trial}"))
        now = digests(f"{trial} now {plant.__name__}", planted)
        for network in networks:
            found = explain_growth(
                digests(f"{trial} good"),
                now,
                world=RANKS,
                good_networks=INFINIBAND,
                networks=dict.fromkeys(EVERYWHERE, network),
            )
            if named_right(found, planted, sockets=network == "Socket"):
                right[network] += 1
            else:
                wrong.append((network, planted, found.headline, found.last, found.figures))
    for network in networks:
        assert right[network] >= 19, wrong


def _grew(growth: Growth) -> float:
    """By how many ms a step the part grew, as the headline says."""
    match = re.search(r" grew by ([\d.]+) ms a step on ", growth.headline)
    assert match is not None
    return float(match[1])


def test_the_headline_says_what_where_and_how_much(digests: Callable[..., Digests]) -> None:
    found = explain_growth(digests("0 good"), digests("0 now", Planted(compute={2: 1.2})), world=RANKS)
    assert found.headline.startswith("compute grew by ")
    assert " ms a step on rank 2 (node07 GPU 2); rank 2 (node07 GPU 2) arrives last at " in found.headline
    assert len(found.figures) == 1 + RANKS
    assert "compute +" in found.figures[3]
    assert 10 < _grew(found) < 20


def test_a_slow_link_may_be_a_rank_that_is_not_profiled(digests: Callable[..., Digests]) -> None:
    now = digests("0 now", Planted(compute={3: 1.3}))
    three = Digests(version=1, profiles=now.profiles[:3], errors=())
    good = digests("0 good")
    seen = explain_growth(Digests(version=1, profiles=good.profiles[:3], errors=()), three, world=RANKS)
    assert seen.cause is Cause.COMMUNICATION
    assert "a slow link, or a rank without a profile that arrives late" in seen.headline
    whole = explain_growth(good, digests("0 now", Planted(link=3)), world=RANKS)
    assert "without a profile" not in whole.headline


def test_another_network_alone_is_no_cause(digests: Callable[..., Digests]) -> None:
    networks = {**INFINIBAND, 1: "Socket"}
    same = explain_growth(digests("0 good"), digests("0 now"), good_networks=INFINIBAND, networks=networks)
    assert same.cause is Cause.UNKNOWN
    slow = explain_growth(
        digests("0 good"),
        digests("0 now", Planted(link=3)),
        good_networks=INFINIBAND,
        networks=networks,
    )
    assert slow.ranks == ("rank 1",)
    assert slow.headline.startswith("transport: rank 1 uses Socket, it used IB; exposed communication grew")


def test_a_gap_before_the_first_kernel_is_told_where_nothing_marks_the_loader(
    digests: Callable[..., Digests],
) -> None:
    def unmarked(found: Digests) -> Digests:
        return read_profiles(
            json.dumps(
                {
                    **found.model_dump(mode="json"),
                    "profiles": [
                        {
                            **one.model_dump(mode="json"),
                            "steps": [{**step.model_dump(), "data": 0} for step in one.steps],
                        }
                        for one in found.profiles
                    ],
                }
            ).encode(),
            "here",
        )

    stalled = digests("0 now", Planted(data=dict.fromkeys(EVERYWHERE, 0.03)))
    found = explain_growth(unmarked(digests("0 good")), unmarked(stalled))
    assert found.cause is Cause.GAP
    assert "before the step's first kernel, and the report does not mark the data loader" in found.headline


def test_another_number_of_ranks_is_compared_with_the_median_rank(digests: Callable[..., Digests]) -> None:
    good = Digests(version=1, profiles=digests("0 good").profiles[:1], errors=())
    found = explain_growth(good, digests("0 now", Planted(compute={1: 1.3})))
    assert (found.cause, found.ranks) == (Cause.COMPUTE, ("rank 1 (node07 GPU 1)",))


def test_undivided_windows_need_more_growth(digests: Callable[..., Digests]) -> None:
    good = digests("0 good", marks="none")
    assert good.profiles[0].count == STEPS
    few = explain_growth(good, digests("0 now", Planted(compute={1: 1.05}), marks="none"))
    more = explain_growth(good, digests("0 now", Planted(compute={1: 1.2}), marks="none"))
    assert (few.cause, more.cause) == (Cause.UNKNOWN, Cause.COMPUTE)
    assert 10 < _grew(more) < 20


def test_without_digests_or_categories_nothing_is_said(digests: Callable[..., Digests]) -> None:
    good = digests("0 good")
    none = Digests(version=1, profiles=(), errors=())
    assert explain_growth(none, good).headline == "cannot tell: no rank of the good run has a digest"
    assert explain_growth(good, none).headline == "cannot tell: no rank of the present run has a digest"
    hidden = good.profiles[0].model_copy(update={"unknown_share": 0.3})
    blind = explain_growth(good, Digests(version=1, profiles=(hidden,), errors=()))
    assert blind.headline == "cannot tell: 30% of a rank's kernel time is in no category"
