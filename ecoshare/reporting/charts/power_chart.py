"""Charts of power and clocks over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.patches import Patch
from numpy.typing import NDArray

from ecoshare.jobs.quantities import format_duration
from ecoshare.record.energy_account import EnergyInterval
from ecoshare.record.run_data import RunData
from ecoshare.record.run_energy import coarser
from ecoshare.record.samples import Sample, shortest_s
from ecoshare.reporting.charts.axes import add_legend, figure_of, fill_area, time_axis
from ecoshare.reporting.charts.look import GRID, HUES, INK, Chart, Look
from ecoshare.reporting.charts.time_columns import Array, edges_of, means, spread, steps, stretches
from ecoshare.values.joules import ATTRIBUTED, MODELLED


@dataclass(frozen=True, slots=True)
class Curve:
    """Joules over time, to be drawn as watts.

    Attributes:
        known: Intervals with known joules, none too short for a mean.
        edges: Edges (s) of the columns that are drawn, shape (n_columns + 1,).
        known_s: Time (s) with known joules in each column, shape (n_columns,).
    """

    known: list[EnergyInterval]
    edges: Array
    known_s: Array

    @classmethod
    def of(cls, intervals: Sequence[EnergyInterval], shortest_s: float) -> Curve:
        """The curve of an account's intervals, as means over `shortest_s` or more."""
        merged = coarser(intervals, shortest_s)
        edges = edges_of(sorted({at_s for each in merged for at_s in (each.from_s, each.to_s)}))
        known = [each for each in merged if each.energy_j is not None]
        spans = [(each.from_s, each.to_s) for each in known]
        return cls(known, edges, spread(spans, [each.to_s - each.from_s for each in known], edges))

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Whether joules are known for more than half of each column, shape (n_columns,)."""
        return self.known_s > 0.5 * np.diff(self.edges)

    def watts(self, joules: list[float]) -> Array:
        """Mean watts in each column, shape (n_columns,); NaN if they are not known.

        Args:
            joules: Joules of each interval in `known`.
        """
        spent_j = spread([(each.from_s, each.to_s) for each in self.known], joules, self.edges)
        return np.where(self.seen, spent_j / np.where(self.seen, self.known_s, 1.0), np.nan)


def _named(data: RunData, what: str, device: str) -> tuple[str, str]:
    """Key and title of a chart of a device. They name the device if the run has several."""
    if len(data.devices) == 1:
        return what, f"{what.capitalize()} over time"
    return f"{what}-{device.replace(':', '-')}", f"{what.capitalize()} of {device} over time"


def power(data: RunData, looks: list[Look], device: str) -> Chart:
    """Chart of the power (W) of a device, its idle part and each job over time, as means over a least time."""
    key, title = _named(data, "power", device)
    account = data.energy.of(device)
    session = account.session
    if session is None or not any(each.energy_j is not None for each in account.intervals):
        return Chart(key, title, "Not known: there are no joules to derive it from.")
    least_s = shortest_s(session.period_s)
    curve = Curve.of(account.intervals, least_s)
    known, edges, seen, watts = curve.known, curve.edges, curve.seen, curve.watts
    figure, axes = figure_of(2.9)
    base = watts([each.idle_j for each in known])
    fill_area(axes, edges, 0.0 * base, base, facecolor=GRID, alpha=0.55, linewidth=0.0)
    handles = [Patch(facecolor=GRID, alpha=0.55, label="idle part")]
    part = MODELLED if session.source == MODELLED else ATTRIBUTED
    for look in looks:
        jobs = frozenset(look.jobs)  # an interval has few of many jobs
        own = [math.fsum(value_j for job, value_j in each.jobs_j.items() if job in jobs) for each in known]
        if any(own):
            top = base + watts(own)
            fill_area(axes, edges, base, top, **look.fill)
            handles.append(Patch(**look.fill, label=look.label))
            base = top
    whole = watts([each.energy_j or 0.0 for each in known])
    line = axes.plot(*steps(edges, whole), color=INK, linewidth=0.8, label=f"device, {session.source}")
    extra: list[Any] = list(line)
    if session.idle_w is not None:
        extra.append(axes.axhline(session.idle_w, color=INK, linewidth=0.8, linestyle=(0, (4, 3)), label="at rest"))
    for begin, end in stretches(~seen):
        axes.axvspan(edges[begin], edges[end], facecolor="none", edgecolor=GRID, hatch="////", linewidth=0.0)
    if not seen.all():
        extra.append(Patch(facecolor="none", edgecolor=GRID, hatch="////", linewidth=0.0, label="not known"))
    axes.set_xlim(0.0, data.end_s())
    axes.set_ylim(0.0, 1.08 * float(np.nanmax(whole)) or 1.0)
    axes.set_ylabel("W")
    axes.grid(axis="y")
    time_axis(axes, "time since the run was opened")
    add_legend(figure, [*extra, *handles])
    caption = (
        f"Mean watts over {format_duration(least_s)} or more: of the device {session.source}, of each job {part}, "
        "on top of the idle part."
    )
    mean_w = math.fsum(each.energy_j or 0.0 for each in known) / math.fsum(each.to_s - each.from_s for each in known)
    peak_w = float(np.nanmax(whole))
    alt = f"Stacked areas of power over time; the device, {session.source}: mean {mean_w:.3g} W, peak {peak_w:.3g} W."
    return Chart(key, title, caption, alt, figure)


def clocks(data: RunData, device: str) -> Chart:
    """Chart of the clocks (MHz) of a GPU and its memory over time."""
    key, title = _named(data, "clocks", device)
    samples = data.samples_of(device)
    curves: list[tuple[str, str, str, Callable[[Sample], float | None]]] = [
        ("GPU", HUES[0], "-", lambda each: each.gpu_clock_mhz),
        ("memory", HUES[3], "--", lambda each: each.memory_clock_mhz),
    ]
    shown = [curve for curve in curves if any(curve[3](each) is not None for each in samples)]
    if not shown:
        return Chart(key, title, "Not known: the device does not tell its clocks.")
    figure, axes = figure_of(1.9)
    edges = edges_of([each.at_s for each in samples])
    words, highest = [], 0.0
    for name, colour, style, value in shown:
        at_s, mhz = means([(each.at_s, value(each)) for each in samples], edges)
        axes.plot(at_s, mhz, color=colour, linestyle=style, linewidth=1.4, label=name)
        low, high = float(np.nanmin(mhz)), float(np.nanmax(mhz))
        highest = max(highest, high)
        words.append(f"{name} {low:.0f} to {high:.0f} MHz")
    axes.set_xlim(0.0, data.end_s() or 1.0)
    axes.set_ylim(0.0, 1.1 * highest or 1.0)
    axes.set_ylabel("MHz")
    axes.grid(axis="y")
    time_axis(axes, "time since the run was opened")
    add_legend(figure, axes.get_lines())
    return Chart(key, title, "Clocks that the device reported.", f"Lines of clocks: {', '.join(words)}.", figure)
