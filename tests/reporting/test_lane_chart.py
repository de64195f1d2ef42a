"""Lane diagram, and chart of the memory of lanes."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import pytest

from ecoshare.base.device import Device
from ecoshare.core.commands import Command, MoveJob, OpenLane
from ecoshare.core.events import Config, Done, Event, RunOpened
from ecoshare.record.run_data import RunData
from ecoshare.record.run_history import RunHistory
from ecoshare.record.samples import Sample
from ecoshare.reporting import charts
from ecoshare.reporting.charts.lane_chart import Stay, _bars, _rows, stays
from ecoshare.reporting.charts.look import looks_of
from ecoshare.reporting.charts.memory_chart import _largest
from ecoshare.reporting.time_columns import edges_of
from tests.reporting.made_run import GIB, run


def elastic(data: RunData) -> RunData:
    """Run with lanes that share all of the device's memory."""
    entries = [
        dataclasses.replace(each, budget_bytes=80 * GIB) if isinstance(each, OpenLane) else each
        for each in data.history.entries
    ]
    return dataclasses.replace(data, history=RunHistory(entries))


def chart_of(data: RunData, key: str) -> charts.Chart:
    with charts.settings("x"):
        return next(chart for chart in charts.charts(data) if chart.key == key)


def test_bars_of_a_row_do_not_overlap_and_none_is_lost() -> None:
    found = stays(run(jobs=12, lanes=3))
    rows = _rows(found)
    assert [lane for lane, _ in rows] == sorted(lane for lane, _ in rows)
    assert sum(len(own) for _, own in rows) == len(found) == 13, "twelve jobs, one of them twice"
    for _, own in rows:
        assert all(earlier.to_s <= later.from_s for earlier, later in pairwise(own))


def test_a_job_that_moves_is_drawn_where_it_is() -> None:
    data = run(jobs=2, lanes=2, failing=False)
    entries = [*data.history.entries, MoveJob(900, "job0", 1, 1), Done(100.0, 900)]
    moved = dataclasses.replace(data, history=RunHistory(entries))
    own = [each for each in stays(moved) if each.attempt.job == "job0"]
    assert [(each.lane, each.is_last) for each in own] == [(0, False), (1, True)]
    assert own[0].to_s == own[1].from_s == 100.0


def test_a_move_of_an_earlier_session_is_not_carried_out_by_the_next() -> None:
    data = run(jobs=2, lanes=2, failing=False)
    opened: list[Event | Command] = [
        RunOpened(90.0, 1, Config("fair", 2), (Device("cuda:0", "local", 80 * GIB),)),
        OpenLane(1, 0, "cuda:0", 1),
    ]
    entries = [*data.history.entries, MoveJob(900, "job0", 1, 1), *opened, Done(100.0, 900)]
    own = [each for each in stays(dataclasses.replace(data, history=RunHistory(entries))) if each.attempt.job == "job0"]
    assert {each.lane for each in own} == {0}


@pytest.mark.nightly
@pytest.mark.parametrize(("jobs", "most_in_legend"), [(3, 3), (12, 12), (200, 16)])
def test_names_stand_in_bars_or_in_the_legend_or_under_the_pointer(jobs: int, most_in_legend: int) -> None:
    chart = chart_of(run(jobs=jobs, lanes=3, failing=False, period_s=60.0), "lanes")
    assert chart.figure is not None
    named = {text.get_text() for text in chart.figure.axes[0].texts}
    listed = [text.get_text() for legend in chart.figure.legends for text in legend.get_texts()]
    assert len(chart.tips) == jobs, "a bar has no words of its own"
    assert len(listed) <= most_in_legend
    assert jobs > 40 or len(named | set(listed)) == jobs


def test_stays_that_are_too_short_to_be_seen_are_drawn_together() -> None:
    (attempt, *_) = run(jobs=1, lanes=1, failing=False).history.attempts
    short = [Stay(attempt, 0, 0.5 * place, 0.5 * place + 0.4, True) for place in range(800)]
    row = [*short[:400], Stay(attempt, 0, 200.0, 300.0, True), *short[600:]]
    bars = _bars(row, 400.0)
    assert [stay for bar in bars for stay in bar] == row, "a stay is drawn twice or not at all"
    assert [row[400]] in bars, "a long stay has a bar of its own"
    assert len(bars) == 600 / 4 + 1, "four of them are half a hundredth of the axis"
    assert max(bar[-1].to_s - bar[0].from_s for bar in bars if len(bar) > 1) <= 2.0
    assert _bars(row, 40_000.0) != bars, "what is short depends on the time axis"
    assert all(len(bar) == 1 for bar in _bars(short[:100], 50.0)), "all of them are wide enough"


@pytest.mark.nightly
def test_lanes_that_share_memory_share_a_chart() -> None:
    apart, together = chart_of(run(lanes=2), "memory"), chart_of(elastic(run(lanes=2)), "memory")
    assert apart.figure is not None and together.figure is not None
    assert (len(apart.figure.axes), len(together.figure.axes)) == (2, 1)


def test_memory_far_above_what_is_used_is_told_and_not_drawn() -> None:
    chart = chart_of(elastic(run(jobs=1)), "memory")
    assert chart.figure is not None
    assert "Beyond the axis: memory that the run may use, 80 GiB." in chart.caption
    assert chart.figure.axes[0].get_ylim()[1] < 8.0, "the areas are a line at the bottom"


def test_a_lane_that_holds_nothing_has_no_memory_chart() -> None:
    chart = chart_of(run(jobs=2, lanes=4, failing=False), "memory")
    assert chart.figure is not None and len(chart.figure.axes) == 2


def test_memory_has_no_gaps_where_samples_are_not_evenly_spaced() -> None:
    """With more samples than columns, a column without a sample must not be empty."""
    data = run(jobs=1, failing=False, period_s=0.7)
    lines = [each for place, each in enumerate(data.samples) if place % 7 > 3 or place < 300]
    samples = [each for each in lines if isinstance(each, Sample)]
    edges = edges_of([each.at_s for each in samples])
    looks = looks_of(data.summary.jobs)
    own = _largest(looks[0], (0,), samples, edges, {})
    assert len(samples) > len(edges)
    assert (own[(edges[:-1] > 100.0) & (edges[1:] < 590.0)] > 0.0).all(), "a column falls to zero"
