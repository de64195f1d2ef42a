"""World that judges chains: levelled weeks, and figures that compare ways with the reactive one."""

from __future__ import annotations

from math import inf
from random import Random

import pytest

from ecoshare.contrib.chains.allocation_chain import Overlap
from ecoshare.contrib.chains.logs.batch_job import BatchJob
from ecoshare.contrib.chains.simulated_chain import ChainResult, HandOver
from scripts.bench.chain_world import WEEK_S, demand, level, read_clusters, world
from scripts.bench.chains import BEST, WAYS, Case, Judged, draw_chains, figures
from tests.contrib.chains.made_jobs import job
from tests.simulation.trace_files import data, needs_data


def jobs_of_weeks(counts: list[int]) -> list[BatchJob]:
    """Jobs of four GPU-hours, as many in each week as told."""
    random = Random(0)
    found = [
        job(f"w{week}-{number}", (week + random.random()) * WEEK_S, 2, 7200.0, inf)
        for week, count in enumerate(counts)
        for number in range(count)
    ]
    return sorted(found, key=lambda each: each.submit_s)


def test_each_week_asks_for_the_chosen_part_of_the_gpus() -> None:
    """If it failed, figures by load would be of other loads. The quiet weeks at both ends are left out."""
    here = world("made", jobs_of_weeks([20, 400, 900, 500, 700, 1300, 20]), 0.8, 86400.0, 0)
    assert len(here.weeks_s) == 6
    for begin_s, end_s in zip(here.weeks_s, here.weeks_s[1:], strict=False):
        week = [each for each in here.jobs if begin_s <= each.submit_s < end_s]
        assert demand(week) == pytest.approx(0.8 * here.gpus, rel=0.1)
    assert len({each.name for each in here.jobs}) == len(here.jobs)
    assert here.first_held_back == 3


def test_copies_stay_near_their_job_and_in_its_week() -> None:
    one = job("late", WEEK_S - 60.0, 1, 10.0)
    copies = level([one], 40.5, WEEK_S, Random(0))
    assert len(copies) in (40, 41)
    assert all(one.submit_s <= each.submit_s <= WEEK_S for each in copies)


@pytest.mark.slow
@needs_data
def test_the_clusters_of_the_trace_are_there() -> None:
    clusters = read_clusters(data())
    assert all(len(jobs) > 1000 for jobs in clusters.values())
    here = world("103959", clusters["103959"], 0.85, 86400.0, 0)
    chains = draw_chains(here, here.weeks_s[here.first_held_back], here.weeks_s[-1] - WEEK_S, 50)
    assert all(here.weeks_s[here.first_held_back] <= at_s <= here.weeks_s[-1] - WEEK_S for at_s, _ in chains)
    assert {spec.gpus for _, spec in chains} <= {1, 4, min(8, here.gpus // 2)}


def judged(way: str, overlap: Overlap, interruption_s: float, overlap_s: float) -> Judged:
    hand_over = HandOver(0.0, 0.0, 0.0, interruption_s, overlap_s)
    return Judged(Case("made", 0.8, 24, 1, 0.9), way, overlap, ChainResult(1, 1e5, 0.0, 1e5, (hand_over,), 60.0))


@pytest.mark.parametrize(
    ("interruption_s", "overlap_s", "missed"),
    [(20.0, 1e4, 0), (21.0, 1e4, 2), (20.0, 1.1e4, 2)],
)
def test_the_goals_are_missed_where_they_are_missed(interruption_s: float, overlap_s: float, missed: int) -> None:
    """A fifth of the reactive interruption, and a tenth of the time, for each overlap."""
    found = figures(
        [
            judged(way, overlap, interruption_s if way == BEST else 100.0, overlap_s if way == BEST else 0.0)
            for way in WAYS
            for overlap in Overlap
        ]
    )
    assert sum(each.met is False for each in found) == missed
    assert sum(each.met is True for each in found) == 4 - missed
