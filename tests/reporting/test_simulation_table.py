"""Results of simulations: the table in a terminal, the page, and its charts against the figures behind them."""

from __future__ import annotations

import io
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ecoshare.base.service import RequestSource, ServiceSpec
from ecoshare.core.events import Config
from ecoshare.errors import UnfitEnvironment
from ecoshare.reporting import charts
from ecoshare.reporting.charts.simulation_charts import completion, fairness, utilisation
from ecoshare.reporting.html import html
from ecoshare.reporting.simulation_html import write_simulation_report
from ecoshare.reporting.tables.simulation_table import PolicyFigure, policy_figures, print_simulations
from ecoshare.simulation.cluster import GPUS, Cluster
from ecoshare.simulation.costs import NO_COSTS, Costs
from ecoshare.simulation.power_source import Power, PowerOrigin
from ecoshare.simulation.result import Finished, SimulationResult
from ecoshare.simulation.traces.job_trace import Phase, Trace, TraceJob
from ecoshare.simulation.world import World
from tests.reporting.made_run import HOSTILE, run
from tests.reporting.test_html import Page
from tests.simulation.simulating import simulate

SERVICE = ServiceSpec(0.05, (1, 2), requests=RequestSource(rate_per_s=50.0, count=100))
CLUSTER = Cluster(2, 4, GPUS["v100"])
POWER = Power(CLUSTER.gpu, PowerOrigin.GIVEN)
POLICIES = ("fifo", "srtf", "srsf", "smallest", "tiresias", "pack", "least-energy", "fair")
FIRST_S = 5_000.0
TRACE = Trace(
    "made.csv",
    "made",
    tuple(
        TraceJob(f"j{at}", "c", FIRST_S + 31.0 * at, (Phase(10, 10.0 + 37.0 * (at * 7 % 11)),), gpus=1 + at % 4)
        for at in range(40)
    ),
    "lengths are made up",
)


def result_of(policy: str, trace: Trace = TRACE) -> SimulationResult:
    config = Config(policy, 1, 1, preempt=True)
    return simulate(trace, CLUSTER, config, World(CLUSTER.gpu)).result


@pytest.fixture(scope="module")
def results() -> list[SimulationResult]:
    return [result_of(policy) for policy in POLICIES]


def finished(jct_s: float, at: int = 0) -> Finished:
    return Finished(f"j{at}", 0.0, 0.0, jct_s, 1, jct_s, jct_s, 1, 1.0)


def of_one_job(policy: str, jct_s: float, **changes: Any) -> SimulationResult:
    made = SimulationResult(policy, (finished(jct_s),), jct_s, 0, 0.5, 1e6, 100.0, 1.0, (1.0,) * max(1, round(jct_s)))
    return replace(made, **changes)


def walls(results: list[SimulationResult]) -> list[float]:
    return [0.01 * (1 + place) for place in range(len(results))]


def printed(results: list[SimulationResult], width: int, terminal: bool = False) -> str:
    text = io.StringIO()
    colours: Literal["standard"] | None = "standard" if terminal else None
    console = Console(file=text, width=width, highlight=False, force_terminal=terminal, color_system=colours)
    print_simulations(results, walls(results), console, POWER)
    return text.getvalue()


def column(results: list[SimulationResult], *head: str) -> PolicyFigure:
    return next(each for each in policy_figures(results, walls(results)) if each.head == head)


def report(path: Path, results: list[SimulationResult], trace: Trace = TRACE, costs: Costs = NO_COSTS) -> str:
    write_simulation_report(path, results, trace, CLUSTER, costs, walls(results), POWER)
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize(("width", "pieces"), [(160, 1), (80, 2), (60, 4)])
def test_a_table_is_never_wider_than_the_console(results: list[SimulationResult], width: int, pieces: int) -> None:
    lines = printed(results, width).splitlines()
    tables = [line for line in lines if not line.endswith(".")]  # a terminal wraps the sentences below
    assert max(map(len, tables)) <= width
    for policy in POLICIES:
        assert sum(line.split()[:1] == [policy] for line in lines) == pieces
    cells = [cell for line in lines if line.split()[:1] == ["srtf"] for cell in line.split()[1:]]
    place = POLICIES.index("srtf")
    assert cells == [each.cells[place] for each in policy_figures(results, walls(results))], (
        "a cell is cut off or missing"
    )


@pytest.mark.nightly
def test_services_have_a_table_of_their_own(tmp_path: Path) -> None:
    served = TraceJob("ranker <b>", "r", 0.0, (Phase(1, 0.004),), service=SERVICE)
    training = TraceJob("t", "t", 0.0, (Phase(100, 0.02),))
    for jobs in ((served, training), (served,)):
        trace = Trace("made.csv", "made", jobs, "")
        config = Config("fair", 1, 2)
        found = [simulate(trace, Cluster(1, 1, CLUSTER.gpu), config, World(CLUSTER.gpu)).result]
        text = printed([found[0], replace(found[0], policy="other")], 160)
        lines = [line.split() for line in text.splitlines() if line.startswith("ranker")]
        assert [line[2] for line in lines] == ["fair", "other"] and all("100" in line for line in lines), text
        page = report(tmp_path / "page.html", found, trace)
        assert "ranker &lt;b&gt;" in page and 'id="services"' in page
    assert "policy" not in next(line for line in printed(found, 160).splitlines() if "p99.9" in line)


def test_what_is_piped_has_no_escapes(results: list[SimulationResult]) -> None:
    assert "\x1b" not in printed(results, 80)
    assert "\x1b[1m" in printed(results, 80, terminal=True)


def test_the_figures_are_those_of_the_result(results: list[SimulationResult]) -> None:
    """Else a column could be under the wrong head, or in the wrong unit."""
    factors = {"s": 1.0, "min": 60.0, "h": 3600.0, "ms": 1e-3, "%": 0.01, "": 1.0, "J modelled": 1.0}
    factors |= {"kJ modelled": 1e3, "kWh modelled": 3.6e6, "MWh modelled": 3.6e9}
    wanted = {
        ("mean", "JCT"): "mean_jct_s",
        ("median", "JCT"): "median_jct_s",
        ("p95", "JCT"): "p95_jct_s",
        ("p99", "JCT"): "p99_jct_s",
        ("", "makespan"): "makespan_s",
        ("mean", "queueing"): "mean_queue_s",
        ("worst", "rho"): "worst_rho",
        ("unfair", "> 1.05"): "unfair",
        ("preemp-", "tions"): "preemptions",
        ("utili-", "sation"): "utilisation",
        ("", "energy"): "energy_j",
        ("energy a", "unit of work"): "energy_per_work_j",
    }
    found = policy_figures(results, walls(results))
    assert [each.head for each in found] == [*wanted, ("wall", "time")]
    for each in found[:-1]:
        for cell, result in zip(each.cells, results, strict=True):
            value = result.as_dict()[wanted[each.head]]
            assert float(cell) * factors[each.unit] == pytest.approx(value, rel=6e-3, abs=6e-4), each.head
    assert [float(cell) * factors[found[-1].unit] for cell in found[-1].cells] == pytest.approx(walls(results))


def test_joules_never_stand_without_the_word_that_says_how_they_are_known(results: list[SimulationResult]) -> None:
    for made in (results, [of_one_job("a", 1.0, energy_j=1.0), of_one_job("b", 1.0, energy_j=1e12)]):
        for each in policy_figures(made, walls(made)):
            assert ("energy" in " ".join(each.head)) == ("modelled" in each.unit)


@pytest.mark.parametrize(
    ("jcts_s", "unit", "cells"),
    [
        ((90.0, 5400.0), "min", ("1.50", "90.00")),
        ((2160.0, 11_700.0), "h", ("0.600", "3.250")),
        ((7.2, 43.0), "s", ("7.20", "43.00")),
        ((86_400.0, 864_000.0), "d", ("1.00", "10.00")),
        ((0.25, 0.4), "ms", ("250", "400")),
        ((0.0, 60.0), "min", ("0", "1.00")),
        ((0.002, 86_400.0), "", ("2 ms", "1 d")),
    ],
)
def test_a_column_has_one_unit_where_all_fit_it(jcts_s: tuple[float, ...], unit: str, cells: tuple[str, ...]) -> None:
    shown = column([of_one_job(f"p{jct_s}", jct_s) for jct_s in jcts_s], "mean", "JCT")
    assert (shown.unit, shown.cells) == (unit, cells)


def test_few_of_many_are_not_none() -> None:
    one_of_many = of_one_job("a", 1.0, finished=(*(finished(1.0, at) for at in range(4999)), finished(9.0)))
    rhos = [replace(each, contention=0.5) if each.jct_s > 1.0 else each for each in one_of_many.finished]
    shown = column([replace(one_of_many, finished=tuple(rhos)), of_one_job("b", 1.0)], "unfair", "> 1.05")
    assert shown.cells == ("< 0.1", "0")
    assert shown.best == {1}


POSITIVE = st.floats(1e-5, 1e9)


@given(st.lists(st.tuples(POSITIVE, POSITIVE, POSITIVE, st.integers(0, 10**8)), min_size=1, max_size=5))
def test_no_cell_has_more_than_five_digits(rows: list[tuple[float, float, float, int]]) -> None:
    made = [
        SimulationResult(
            "p", (replace(finished(jct_s), service_s=jct_s / rho),), jct_s, count, 0.5, energy_j, jct_s, 1.0, ()
        )
        for jct_s, rho, energy_j, count in rows
    ]
    for each in policy_figures(made, walls(made)):
        for cell in each.cells:
            digits = max((len(part.replace(".", "").lstrip("0")) for part in re.findall(r"[\d.]+", cell)), default=0)
            assert digits <= 5, (each.lines, cell)


def test_the_best_of_a_column_is_marked_and_only_where_there_is_one() -> None:
    made = [of_one_job(name, jct_s, utilisation=part) for name, jct_s, part in (("a", 70.0, 0.9), ("b", 60.0, 0.5))]
    assert column(made, "mean", "JCT").best == {1}
    assert column(made, "utili-", "sation").best == {0}, "more is better"
    assert column(made, "preemp-", "tions").best == frozenset(), "all alike"
    assert column(made[:1], "mean", "JCT").best == frozenset()
    row = next(line for line in printed(made, 160, terminal=True).splitlines() if line.startswith("b"))
    assert row.count("\x1b[1m") == sum(1 in each.best for each in policy_figures(made, walls(made)))


def test_hostile_policies_move_no_cursor_and_break_no_table() -> None:
    text = printed([of_one_job("a\x1b[2J\n[bold]b[/bold]", 1.0), of_one_job("x" * 300, 2.0)], 80)
    assert "\x1b" not in text
    assert "[bold]b[/bold]" in text, "read as markup"
    assert max(map(len, text.splitlines()[:-2])) <= 80


def test_without_jobs_all_is_shown_as_not_known(tmp_path: Path) -> None:
    empty = Trace("empty.csv", "made", (), "")
    nothing = result_of("fifo", empty)
    assert "fifo" in printed([nothing], 80)
    assert column([nothing], "mean", "JCT").cells == ("-",)
    page = Page(report(tmp_path / "empty.html", [nothing], empty))
    assert page.text.count("Not known: no job was simulated.") == 3
    assert not page.named("svg")
    assert "None was simulated." in Page(report(tmp_path / "none.html", [], empty)).text
    printed([], 80)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 8])
def test_the_page_shows_what_was_simulated(tmp_path: Path, results: list[SimulationResult], count: int) -> None:
    made = results[:count]
    text = report(tmp_path / "report.html", made, costs=Costs(start_s=1.5, handover_s=40e-6))
    page = Page(text)
    assert len(page.named("svg")) == 3
    for words in ("made.csv", "Of the trace: lengths are made up", "40", "8 of v100", "1.5 s", "40 us"):
        assert words in page.text
    for place, result in enumerate(made):
        assert page.text.count(result.policy) >= 3, "in the table and the charts"
        for each in policy_figures(made, walls(made)):
            assert each.cells[place] in page.text
    assert any("12 % of its limit, 36 W" in words and "assumption" in words for words in page.text)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids)), "charts that share ids draw each other's parts"


@pytest.mark.slow
def test_the_page_requests_nothing_from_elsewhere(tmp_path: Path, results: list[SimulationResult]) -> None:
    page = Page(report(tmp_path / "report.html", results))
    assert "default-src 'none'" in str(page.named("meta"))
    assert not {"script", "link", "img", "iframe", "image"} & {tag for tag, _ in page.tags}
    for _, attributes in page.tags:
        for name in ("src", "href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#")
    assert not re.search(r"url\((?!#)|@import", (tmp_path / "report.html").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_what_comes_from_a_trace_is_text(tmp_path: Path, results: list[SimulationResult]) -> None:
    name = '"><script>alert(1)</script>$\\frac{1}$\x1b\udcff'
    hostile = replace(TRACE, file=name, kind=name, note=HOSTILE)
    made = [replace(results[0], policy=name), replace(results[1], policy="_hidden"), replace(results[2], policy="公平")]
    page = Page(report(tmp_path / "report.html", made, hostile))
    assert not page.named("script")
    shown = '"><script>alert(1)</script>$\\frac{1}$\\x1b\\udcff'
    assert sum(shown in text for text in page.text) >= 5
    assert any(HOSTILE in text for text in page.text)


@pytest.mark.slow
def test_a_page_that_cannot_be_written_is_an_error_with_its_name(
    tmp_path: Path, results: list[SimulationResult]
) -> None:
    with pytest.raises(UnfitEnvironment, match=r"cannot write .*report\.html: No such file"):
        report(tmp_path / "missing" / "report.html", results[:1])


@pytest.mark.nightly
def test_reports_of_runs_are_drawn_as_ever_beside_it(tmp_path: Path, results: list[SimulationResult]) -> None:
    """A module with the name of a chart of runs would replace that chart in its package."""
    report(tmp_path / "report.html", results[:1])
    assert Page(html(run())).named("svg")


@pytest.mark.slow
def test_equal_simulations_have_equal_pages(tmp_path: Path) -> None:
    first, second = (report(tmp_path / f"{at}.html", [result_of("srtf")]) for at in range(2))
    assert first == second


def test_the_line_of_jcts_says_how_many_jobs_took_at_most_so_long(results: list[SimulationResult]) -> None:
    with charts.settings("test"):
        figure = completion(results).figure
    assert figure is not None
    for line, result in zip(figure.axes[0].get_lines(), results, strict=True):
        x, y = (np.asarray(each) for each in line.get_data())
        for jct_s in result.jcts_s:
            at_most = y[x <= jct_s * (1 + 1e-12)].max()
            assert at_most == pytest.approx((result.jcts_s <= jct_s * (1 + 1e-12)).mean())
        assert (np.diff(y) >= 0.0).all()
        assert (np.diff(x) >= 0.0).all()


def test_unfair_jobs_are_right_of_the_limit(results: list[SimulationResult]) -> None:
    with charts.settings("test"):
        figure = fairness(results).figure
    assert figure is not None
    *lines, limit = figure.axes[0].get_lines()
    assert np.asarray(limit.get_xdata()).tolist() == [1.05, 1.05]
    for line, result in zip(lines, results, strict=True):
        x, y = (np.asarray(each) for each in line.get_data())
        at_most = y[x <= 1.05].max(initial=0.0)
        assert 1.0 - at_most == pytest.approx(result.as_dict()["unfair"])


@pytest.mark.parametrize("stretch", [1.0, 1e3, 1e-4])
def test_the_area_below_a_line_is_the_work_that_was_done(stretch: float) -> None:
    """The chart is right even if the first job comes late, after empty bins, and the last bin is cut off."""
    phases = [replace(job.phases[0], iteration_s=stretch * job.phases[0].iteration_s) for job in TRACE.jobs]
    jobs = tuple(
        replace(job, phases=(phase,), arrival_s=FIRST_S + stretch * (job.arrival_s - FIRST_S))
        for job, phase in zip(TRACE.jobs, phases, strict=True)
    )
    made = [result_of(policy, replace(TRACE, jobs=jobs)) for policy in ("fifo", "srtf")]
    with charts.settings("test"):
        figure = utilisation(made, CLUSTER.size).figure
    assert figure is not None
    factor = {"d": 86_400.0, "h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3}[
        figure.axes[-1].get_xlabel().rpartition(", ")[2]
    ]
    for axes, result in zip(figure.axes, made, strict=True):
        (line,) = axes.get_lines()
        x, y = (np.asarray(each) for each in line.get_data())
        assert len(x) <= 2 * 200, "more columns than can be seen"
        assert x[-1] * factor == pytest.approx(result.makespan_s)
        assert np.sum(np.diff(x) * y[1:]) * factor * CLUSTER.size == pytest.approx(result.work_s, rel=1e-6)
        assert y.max() <= 1.0 + 1e-9


def test_policies_can_be_told_apart(results: list[SimulationResult]) -> None:
    many = [replace(results[0], policy=f"_p{at}") for at in range(18)]
    with charts.settings("test"):
        figure = completion(many).figure
    assert figure is not None
    lines = figure.axes[0].get_lines()
    dashes = [str(line._dash_pattern) for line in lines]  # type: ignore[attr-defined]
    assert len({(line.get_color(), line.get_linestyle(), dash) for line, dash in zip(lines, dashes, strict=True)}) == 18
    assert len({line.get_zorder() for line in lines}) > 1, "the last would hide all that are the same"
    named = [text.get_text() for text in figure.legends[0].get_texts()]
    assert named == [result.policy for result in many], "one is left out of the legend"


@pytest.mark.parametrize(
    ("jcts_s", "ticks"),
    [((60.0, 60.0), 2), ((3600.0, 3900.0), 3), ((1.0, 1e7), 4), ((0.0, 0.0), 1), ((0.0, 50.0), 1), ((3e-7, 2e-6), 2)],
)
def test_the_axis_of_times_has_ticks_whatever_the_jobs_took(jcts_s: tuple[float, ...], ticks: int) -> None:
    made = of_one_job("p", max(jcts_s), finished=tuple(finished(jct_s, at) for at, jct_s in enumerate(jcts_s)))
    with charts.settings("test"):
        figure = completion([made]).figure
        assert figure is not None
        figure.draw_without_rendering()
    axis = figure.axes[0].xaxis
    low, high = figure.axes[0].get_xlim()
    shown = [tick.get_text() for tick in axis.get_ticklabels() if low <= tick.get_position()[0] <= high]
    assert ticks <= len(shown) <= 14
    assert len(set(shown)) == len(shown), "two ticks read alike"


@pytest.mark.nightly
def test_a_hundred_thousand_jobs_are_drawn_in_seconds(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    jobs = tuple(finished(float(jct_s), at) for at, jct_s in enumerate(rng.lognormal(7.0, 2.0, 100_000)))
    many = of_one_job("many", 1e6, finished=jobs, makespan_s=1e6, bin_s=2048.0, busy=(3.0,) * 489)
    began_s = time.monotonic()
    report(tmp_path / "report.html", [many] * 2)
    assert time.monotonic() - began_s < 20.0, "takes about two seconds"
    with charts.settings("test"):
        figure = completion([many]).figure
    assert figure is not None
    x, y = (np.asarray(each) for each in figure.axes[0].get_lines()[0].get_data())
    assert len(x) <= 1000, "the line is not thinned"
    assert (x[0], x[-1]) == (many.jcts_s.min(), many.jcts_s.max())
    assert np.interp([0.25, 0.5, 0.95], y, x) == pytest.approx(np.quantile(many.jcts_s, [0.25, 0.5, 0.95]), rel=0.05)
