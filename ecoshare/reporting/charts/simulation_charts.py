"""Charts of simulations, one line for each policy: completion times, fairness and utilisation."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator, PercentFormatter

from ecoshare.jobs.quantities import SECONDS_BY_UNIT, format_duration, number
from ecoshare.reporting.charts.look import HUES, INK, WIDTH_IN, Chart, add_legend, add_tip, figure_of
from ecoshare.reporting.figures import printable, share
from ecoshare.reporting.time_columns import COLUMNS, Array, spread, steps
from ecoshare.simulation.result import UNFAIR, SimulationResult

_MOST_COLUMNS = 200
_ROW_IN, _WIDEST_NAME = 0.5, 28
_DASHES: tuple[Any, ...] = ("-", (0, (4, 2)), (0, (1, 1.5)))

_EVEN_S = [1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 21600.0]
_EVEN_S += [86400.0 * 10.0**power for power in range(5)]
"""Round times (s) at about equal distances on a logarithmic axis."""

_NO_JOB = "Not known: no job was simulated."


@contextmanager
def any_letters() -> Iterator[None]:
    """Context manager without warnings about letters that matplotlib's font lacks: fonts of the viewer have them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


@dataclass(frozen=True, slots=True)
class _Distribution:
    """A figure of jobs, and how the chart of its distribution is labelled.

    Attributes:
        label: Label of the axis of values.
        share_label: Label of the other axis: the share of the jobs with at most this value.
        ticks: Function of the ends of the axis that returns the values of the ticks.
        write: Function that writes the value of a tick.
        limit: Value to be marked, and its label; None for no mark.
    """

    label: str
    share_label: str
    ticks: Callable[[float, float], list[float]]
    write: Callable[[float], str]
    limit: tuple[float, str] | None = None


def completion(results: Sequence[SimulationResult]) -> Chart:
    """Chart of the distribution of job completion times."""
    caption = "Share of the jobs that ended within a time of their arrival: further left and higher is better."
    medians = (f"{one.policy} {format_duration(float(np.median(one.jcts_s)))}" for one in _known(results))
    alt = f"Lines of the share of jobs by JCT, on a logarithmic axis; medians: {', '.join(medians)}."
    chart = Chart("completion", "Job completion times", caption, printable(alt))
    of = _Distribution("JCT", "jobs that took at most so long", _round_times, format_duration)
    return _distributions(chart, of, results, [result.jcts_s for result in results])


def fairness(results: Sequence[SimulationResult]) -> Chart:
    """Chart of the distribution of finish-time ratios."""
    caption = "JCT of each job over what it would be with an equal share of the cluster to itself."
    unfair = (f"{one.policy} {share(float(one.as_dict()['unfair'] or 0.0))}" for one in _known(results))
    alt = f"Lines of the share of jobs by rho, on a logarithmic axis; unfair: {', '.join(unfair)}."
    chart = Chart("fairness", "Finish-time ratios", caption, printable(alt))
    limit = (UNFAIR, f"unfair beyond {UNFAIR:g}")
    of = _Distribution("rho", "jobs with at most this rho", _round_ratios, number, limit)
    return _distributions(chart, of, results, [result.rhos for result in results])


def utilisation(results: Sequence[SimulationResult], devices: int) -> Chart:
    """Chart of the share of the devices that were at work, over time.

    Args:
        devices: Number of devices of the cluster.
    """
    title = "Utilisation over time"
    longest_s = max((result.makespan_s for result in results), default=0.0)
    if longest_s <= 0.0:
        return Chart("utilisation", title, _NO_JOB)
    width_s = max(longest_s / _MOST_COLUMNS, *(result.bin_s for result in results))
    unit = next((unit for unit in ("d", "h", "min", "s", "ms") if longest_s >= 2.0 * SECONDS_BY_UNIT[unit]), "us")
    figure = Figure((WIDTH_IN, len(results) * _ROW_IN + 0.5), layout="constrained")
    tips: dict[str, str] = {}
    rows = figure.subplots(len(results), sharex=True, squeeze=False)[:, 0]
    for place, (axes, result) in enumerate(zip(rows, results, strict=True)):
        name = printable(result.policy)
        if result.makespan_s > 0.0:
            edges_s, part = _at_work(result, devices, width_s)
            x, y = steps(edges_s / SECONDS_BY_UNIT[unit], part)
            colour = HUES[place % len(HUES)]
            axes.fill_between(x, 0.0 * y, y, facecolor=colour, alpha=0.25, linewidth=0.0)
            add_tip(axes.plot(x, y, color=colour, linewidth=1.0)[0], f"utilisation-{place}", name, tips)
        words = f"{name if len(name) <= _WIDEST_NAME else name[: _WIDEST_NAME - 1] + '…'}\n{share(result.utilisation)}"
        axes.set_ylabel(words, rotation=0, ha="right", va="center")
        axes.set_ylim(0.0, 1.05)
        axes.set_yticks([0.0, 1.0], ["0", "100 %"], fontsize=6)
        axes.grid()
    rows[-1].set_xlim(0.0, longest_s / SECONDS_BY_UNIT[unit])
    rows[-1].xaxis.set_major_locator(MaxNLocator(10, steps=[1, 2, 5, 10]))
    rows[-1].set_xlabel(f"time since the first arrival, {unit}")
    caption = (
        f"Share of the devices at work, as the mean of each {format_duration(width_s)}; beside the name that of the "
        "whole makespan. A line ends with its last job."
    )
    means = (f"{result.policy} {share(result.utilisation)}" for result in results)
    alt = f"A row a policy with a line of utilisation over time; means: {', '.join(means)}."
    return Chart("utilisation", title, caption, printable(alt), figure, tips)


def _at_work(result: SimulationResult, devices: int, width_s: float) -> tuple[Array, Array]:  # (n + 1,), (n,)
    """Edges of columns (s since the first arrival), and the part of the devices at work in each column."""
    begin_s = min(each.arrival_s for each in result.finished)
    inner_s = np.arange(len(result.busy) + 1) * result.bin_s - begin_s
    inside_s = np.clip(inner_s, 0.0, result.makespan_s)  # no job ran outside
    spans = [(float(from_s), float(to_s)) for from_s, to_s in itertools.pairwise(inside_s)]
    worked_s = spread(spans, [at_work * result.bin_s for at_work in result.busy], edges_s := _edges(result, width_s))
    return edges_s, worked_s / np.diff(edges_s) / devices


def _edges(result: SimulationResult, width_s: float) -> Array:
    """Edges (s) of columns of equal width; the last column may be narrower."""
    count = max(1, int(np.ceil(result.makespan_s / width_s - 1e-6)))
    return np.append(width_s * np.arange(count), result.makespan_s)


def _distributions(
    chart: Chart, of: _Distribution, results: Sequence[SimulationResult], values: Sequence[Array]
) -> Chart:
    """The chart with empirical distribution functions on a logarithmic axis.

    Args:
        values: Values of the finished jobs of each result, each of shape (n_jobs,).
    """
    if not any(map(len, values)):
        return Chart(chart.key, chart.title, _NO_JOB)
    positive = np.concatenate([each[each > 0.0] for each in values])
    low, high = (float(positive.min()), float(positive.max())) if len(positive) else (1.0, 1.0)
    figure, axes = figure_of(2.9)
    tips: dict[str, str] = {}
    for place, each in enumerate(values):
        if len(each):
            # Zero has no place on a logarithmic axis, so it is drawn at the smallest positive value.
            x, y = _thinned(np.sort(np.maximum(each, low)))
            _draw(axes, np.repeat(x, 2), np.repeat(np.append(0.0, y), 2)[1:-1], chart.key, place, results, tips)
    if of.limit is not None:
        limit, words = of.limit
        axes.axvline(limit, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), label=words)
        low, high = min(low, limit), max(high, limit)
    room = 1.03 if high > 1.2 * low else 1.5
    axes.set_xscale("log")
    axes.set_xlim(low / room, high * room)
    axes.xaxis.set_major_locator(FixedLocator(of.ticks(*axes.get_xlim())))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: of.write(value)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(of.label)
    axes.set_ylim(0.0, 1.02)
    axes.yaxis.set_major_locator(FixedLocator([0.0, 0.25, 0.5, 0.75, 1.0]))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    axes.set_ylabel(of.share_label)
    axes.grid()
    add_legend(figure, axes.get_lines())
    return replace(chart, figure=figure, tips=tips)


def _thinned(ordered: Array) -> tuple[Array, Array]:  # (n,) -> 2 x (<= COLUMNS,)
    """At most `COLUMNS` of the values, with the first and the last, and the share of all values that are no larger."""
    places = np.unique(np.linspace(0, len(ordered) - 1, min(COLUMNS, len(ordered))).astype(int))
    return ordered[places], (places + 1) / len(ordered)


def _draw(
    axes: Axes, x: Array, y: Array, key: str, place: int, results: Sequence[SimulationResult], tips: dict[str, str]
) -> None:
    """Draw the line of policy `place`. Dashed lines lie above solid ones, so that both show if they are equal."""
    label, hue = printable(results[place].policy), place % len(HUES)
    dashes = (hue + place // len(HUES)) % len(_DASHES)  # no hue has the same dashes twice
    line = axes.plot(
        x,
        y,
        color=HUES[hue],
        linestyle=_DASHES[dashes],
        linewidth=1.5,
        zorder=2.0 + 0.1 * dashes,
        label=label,
    )[0]
    add_tip(line, f"{key}-{place}", label, tips)


def _round_times(low_s: float, high_s: float) -> list[float]:
    """Ticks (s) of an axis of times, from the coarsest series with at least four ticks on the axis."""
    fine_s = [value * SECONDS_BY_UNIT[unit] for unit in ("us", "ms") for value in (1, 2, 5, 10, 20, 50, 100, 200, 500)]
    fine_s += [value * SECONDS_BY_UNIT[unit] for unit in ("s", "min") for value in (1, 2, 5, 10, 20, 30)]
    fine_s += [value * 3600.0 for value in (1, 2, 3, 6, 12)]
    fine_s += [value * 86400.0 * 10.0**power for power in range(4) for value in (1, 2, 5)]
    unit_s = max((each for each in SECONDS_BY_UNIT.values() if each <= low_s), default=1e-6)
    even = [each * unit_s for each in MaxNLocator(6).tick_values(low_s / unit_s, high_s / unit_s)]
    return _enough([_EVEN_S, fine_s, even], low_s, high_s)


def _round_ratios(low: float, high: float) -> list[float]:
    """Ticks of an axis of ratios: powers of ten, or a finer series."""
    powers = [10.0**power for power in range(-6, 10)]
    fine = [value * power for power in powers for value in (1, 2, 5)]
    return _enough([powers, fine, list(MaxNLocator(6).tick_values(low, high))], low, high)


def _enough(kinds: Sequence[Sequence[float]], low: float, high: float) -> list[float]:
    inside: list[float] = []
    for kind in kinds:
        inside = [each for each in kind if 0.999 * low <= each <= 1.001 * high]
        if len(inside) >= 4:
            break
    return inside


def _known(results: Sequence[SimulationResult]) -> list[SimulationResult]:
    return [result for result in results if len(result.jcts_s)]
