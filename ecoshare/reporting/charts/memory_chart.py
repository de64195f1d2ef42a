"""Chart of the memory of jobs, and of its limit: the memory that lanes may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from ecoshare.jobs.quantities import format_size
from ecoshare.record.run_data import RunData
from ecoshare.record.run_history import AttemptHistory
from ecoshare.record.samples import Sample, attempt_key, job_of
from ecoshare.reporting.charts.look import (
    INK,
    WIDTH_IN,
    Chart,
    Look,
    add_legend,
    add_tip,
    bars_of,
    byte_unit,
    fill_area,
    label_bar,
    time_axis,
)
from ecoshare.reporting.time_columns import Array, edges_of

_FAR = 4
"""A limit above this many times the largest peak stands in the caption. Drawn, it would make the bars too short."""


def memory(data: RunData, looks: list[Look]) -> Chart:
    """Chart of the memory of each job: over time if it was sampled, else only the peak."""
    attempts = data.history.attempts
    alive = {attempt_key(each.job, each.number): each for each in attempts}
    samples = {name: data.samples_of(name) for name in data.devices}
    every = [line for own in samples.values() for line in own]
    if len(every) > 1 and any(each.memory_bytes is not None for line in every for each in line.jobs.values()):
        return _over_time(data, looks, samples, alive)
    return _peaks(data, looks, attempts)


def _over_time(
    data: RunData, looks: list[Look], samples: dict[str, list[Sample]], alive: dict[str, AttemptHistory]
) -> Chart:
    edges = edges_of(sorted({line.at_s for own in samples.values() for line in own}))
    parts = _parts(data)
    stacks = {each: _stack(looks, each.lanes, samples.get(each.device, []), edges, alive) for each in parts}
    shown = [each for each in parts if stacks[each]] or parts[:1]
    tops = {each: float(sum(stacks[each].values(), np.zeros(len(edges) - 1)).max(initial=0.0)) for each in shown}
    near = {each: 0.0 < each.limit_bytes <= _FAR * tops[each] for each in shown}
    factor, unit = byte_unit(max([*tops.values(), *(each.limit_bytes for each in shown if near[each]), 1.0]))
    figure = Figure((WIDTH_IN, 0.5 + (1.9 if len(shown) == 1 else 1.3 * len(shown))), layout="constrained")
    panels: list[Axes] = list(figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0])
    handles: dict[str, Any] = {}
    limit: list[Any] = []
    for part, axes in zip(shown, panels, strict=True):
        base = np.zeros(len(edges) - 1)
        for look, own in stacks[part].items():
            fill_area(axes, edges, base / factor, (base + own) / factor, **look.fill)
            handles[look.label] = Patch(**look.fill, label=look.label)
            base = base + own
        if near[part]:
            line = axes.axhline(part.limit_bytes / factor, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
            line.set_label(part.limit)
            limit = [line]
        axes.set_ylim(0.0, 1.08 * max(tops[part], part.limit_bytes if near[part] else 0.0) / factor or 1.0)
        axes.set_ylabel(f"{part.name}, {unit}" if part.name else unit)
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.grid(axis="y")
    panels[-1].set_xlim(0.0, data.end_s())
    time_axis(panels[-1], "time since the run was opened")
    if limit or handles:
        add_legend(figure, [*limit, *handles.values()])
    caption = "Device memory of each job, stacked. Unknown parts are left out."
    far = {f"{each.limit}, {format_size(each.limit_bytes)}": None for each in shown if not near[each]}
    caption += f" Beyond the axis: {' and '.join(far)}." if any(each.limit_bytes for each in shown) and far else ""
    alt = f"Stacked areas of memory by job over time, at most {format_size(round(max(tops.values())))}."
    return Chart("memory", "Memory", caption, alt, figure)


@dataclass(frozen=True, slots=True)
class _Part:
    """Lanes that share memory.

    Attributes:
        name: Name of the part; empty if it is the only one.
        device: Device of its lanes.
        limit: Name of the limit that applies to its lanes together.
        limit_bytes: Size of the limit; 0 if it is not known.
    """

    name: str
    device: str
    lanes: tuple[int, ...]
    limit: str
    limit_bytes: int


def _parts(data: RunData) -> list[_Part]:
    """One part for each device if its lanes share the memory of the device, else one part for each lane.

    In logs of earlier versions, lanes of some policies had budgets of their own. Lanes share memory if the sum of their
    budgets is larger than the memory that the run may use.
    """
    parts: list[_Part] = []
    for name in data.devices:
        lanes = {number: lane for number, lane in data.history.lanes.items() if lane.device == name}
        device = data.history.devices.get(name)
        whole_bytes = device.memory_bytes if device is not None else 0
        budgets = [lane.budget_bytes for lane in lanes.values()]
        if len(lanes) < 2 or sum(budgets) > 1.01 * max(whole_bytes, max(budgets)):
            most_bytes = whole_bytes or max(budgets, default=0)
            title = name if len(data.devices) > 1 else ""
            parts.append(_Part(title, name, tuple(sorted(lanes)), "memory that the run may use", most_bytes))
        else:
            parts += [
                _Part(f"lane {number}", name, (number,), "budget of a lane", lane.budget_bytes)
                for number, lane in sorted(lanes.items())
            ]
    return parts


def _stack(
    looks: list[Look], lanes: tuple[int, ...], samples: list[Sample], edges: Array, alive: dict[str, AttemptHistory]
) -> dict[Look, Array]:
    """Bytes of each job that had memory in these lanes, shape (n_edges - 1,); `samples` are those of their device."""
    found = {look: _largest(look, lanes, samples, edges, alive) for look in looks}
    return {look: own for look, own in found.items() if own.any()}


def _largest(
    look: Look, lanes: tuple[int, ...], samples: list[Sample], edges: Array, alive: dict[str, AttemptHistory]
) -> Array:
    """Largest bytes of a job in these lanes, shape (n_edges - 1,), without samples that repeat ended attempts."""
    largest = np.zeros(len(edges) - 1)
    own_jobs = frozenset(look.jobs)
    columns = np.clip(np.searchsorted(edges, [line.at_s for line in samples], side="right") - 1, 0, len(largest) - 1)
    for column, line in zip(columns, samples, strict=True):
        now_bytes = 0
        for key, each in line.jobs.items():
            attempt = alive.get(key)
            over = attempt is not None and attempt.ended_s is not None and attempt.ended_s < line.at_s
            if each.lane in lanes and each.memory_bytes is not None and not over and job_of(key) in own_jobs:
                now_bytes += each.memory_bytes
        largest[column] = max(largest[column], now_bytes)
    # A column without a sample repeats the column before it, if samples are rarer than columns.
    sampled = np.zeros(len(largest), dtype=int)
    sampled[columns] = columns
    return largest[np.maximum.accumulate(sampled)]


def _peaks(data: RunData, looks: list[Look], attempts: list[AttemptHistory]) -> Chart:
    peaks: dict[str, int] = {}
    for each in attempts:
        if each.peak_bytes is not None:
            peaks[each.job] = max(peaks.get(each.job, 0), each.peak_bytes)
    if not peaks:
        return Chart("memory", "Memory", "Not known: no job's memory was seen.")
    budgets = sorted({lane.budget_bytes for lane in data.history.lanes.values()})
    near = [each for each in budgets if each <= _FAR * max(peaks.values())]
    factor, unit = byte_unit(max([*peaks.values(), *near]))
    figure, axes = bars_of(looks)
    tips: dict[str, str] = {}
    words: list[str] = []
    for row, look in enumerate(looks):
        known = [peaks[name] for name in look.jobs if name in peaks]
        if not known:
            label_bar(axes, 0.0, row, "not known")
            continue
        bar = axes.barh(row, max(known) / factor, height=0.62, **look.fill)[0]
        label = ("at most " if len(look.jobs) > 1 else "") + format_size(max(known))
        label_bar(axes, max(known) / factor, row, label)
        words.append(f"{look.label} {label}")
        add_tip(bar, f"memory-{row}", words[-1], tips)
    for budget_bytes in near:
        line = axes.axvline(budget_bytes / factor, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    if near:
        line.set_label("memory that lanes may use")
        add_legend(figure, [line])
    axes.set_xlim(0.0, 1.15 * max([*peaks.values(), *near]) / factor)
    axes.set_xlabel(unit)
    caption = "The largest memory of each job; its course over time is not known."
    if far := [format_size(each) for each in budgets if each not in near]:
        caption += f" Beyond the axis: the memory that lanes may use, {' or '.join(far)}."
    return Chart("memory", "Memory", caption, f"Bars of peak memory: {'; '.join(words)}.", figure, tips)
