"""Charts of job completion times, and of the turns that jobs held over time."""

from __future__ import annotations

import numpy as np

from ecoshare.common.plural import counted
from ecoshare.jobs.quantities import format_duration
from ecoshare.record.run_data import RunData
from ecoshare.record.run_history import AttemptHistory
from ecoshare.reporting.charts.axes import (
    ROW_IN,
    add_tip,
    bars_of,
    figure_of,
    fill_area,
    label_bar,
    name_rows,
    time_axis,
)
from ecoshare.reporting.charts.look import GRID, INK, Chart, Look
from ecoshare.reporting.charts.time_columns import COLUMNS, part_held


def jct(data: RunData, looks: list[Look]) -> Chart:
    """Chart of the completion time of each job, with its time in the queue."""
    title = "Job completion times"
    caption = "From arrival to finish. The pale part of a bar is the time in the queue, before the first process."
    jobs = {job.name: job for job in data.summary.jobs}
    if not any(job.jct_s is not None for job in jobs.values()):
        return Chart("jct", title, "Not known: no job has finished.")
    figure, axes = bars_of(looks)
    tips: dict[str, str] = {}
    words: list[str] = []
    for row, look in enumerate(looks):
        known = [(jobs[name], own_s) for name in look.jobs if (own_s := jobs[name].jct_s) is not None]
        states = [jobs[name].state for name in look.jobs]
        state = "" if len(states) > 1 or states == ["completed"] else f", {states[0]}"
        if not known:
            label_bar(axes, 0.0, row, f"not known{state}")
            continue
        jct_s = sum(own_s for _, own_s in known) / len(known)
        queue_s = sum(min(job.queue_s or 0.0, own_s) for job, own_s in known) / len(known)
        axes.barh(row, queue_s, height=0.62, facecolor=look.colour, alpha=0.35, linewidth=0.0)
        bar = axes.barh(row, jct_s - queue_s, left=queue_s, height=0.62, **look.fill)[0]
        mean = "mean " if len(look.jobs) > 1 else ""
        label = f"{mean}{format_duration(jct_s)}{state}"
        label_bar(axes, jct_s, row, label)
        add_tip(bar, f"jct-{row}", f"{look.label}: {label}, of which {format_duration(queue_s)} in the queue", tips)
        words.append(f"{look.label} {label}")
    axes.set_xlim(0.0, 1.18 * max(job.jct_s or 0.0 for job in jobs.values()) or 1.0)
    time_axis(axes, "JCT")
    return Chart("jct", title, caption, f"Bars of job completion times: {'; '.join(words)}.", figure, tips)


def timeline(data: RunData, looks: list[Look]) -> Chart:
    """Chart with a row for each job: its attempts and its turns over time."""
    title = "Turns"
    attempts, end_s = data.history.attempts, data.end_s()
    place = {job: number for number, look in enumerate(looks) for job in look.jobs}
    of_looks: list[list[AttemptHistory]] = [[] for _ in looks]
    for each in attempts:
        if each.job in place:
            of_looks[place[each.job]].append(each)
    rows = [(look, own) for look, own in zip(looks, of_looks, strict=True) if own]
    if not rows or not end_s:
        return Chart("timeline", title, "Not known: no job has been started.")
    figure, axes = figure_of(len(rows) * ROW_IN + 0.6)
    held_by = {(each.job, each.number): data.turns(each) for each in attempts}
    crowded = max(map(len, held_by.values())) > COLUMNS / 4
    edges = np.linspace(0.0, end_s, (COLUMNS // 3 if crowded else 2 * COLUMNS) + 1)
    tips: dict[str, str] = {}
    untraced = failed = False
    for row, (look, own) in enumerate(rows):
        lives = _union([(_began_s(each), end_s if each.ended_s is None else each.ended_s) for each in own])
        life = axes.broken_barh(lives, (row - 0.36, 0.72), facecolor=look.colour, alpha=0.2, linewidth=0.0)
        held = np.zeros(len(edges) - 1)
        for attempt in own:
            turns = held_by[attempt.job, attempt.number]
            held += part_held(np.array([turn[:2] for turn in turns], dtype=float).reshape(-1, 2), edges)
            if not turns:
                untraced = True
                span = [(_began_s(attempt), (attempt.ended_s or end_s) - _began_s(attempt))]
                axes.broken_barh(span, (row - 0.36, 0.72), facecolor="none", edgecolor=GRID, hatch="////", linewidth=0)
            if attempt.ended_badly and attempt.ended_s is not None:
                failed = True
                axes.plot(attempt.ended_s, row, "x", color=INK, markersize=5, markeredgewidth=1.4, clip_on=False)
        if held.any():
            floor = np.full_like(held, row + 0.36)
            fill_area(axes, edges, floor, floor - 0.72 * np.minimum(held, 1.0), facecolor=look.colour, linewidth=0.0)
        ends = "; ".join(_end(each) for each in own[:8])
        add_tip(life, f"turn-{row}", f"{look.label}: {ends}", tips)
    labels = [look.label for look, _ in rows]
    name_rows(axes, labels)
    axes.set_xlim(0.0, end_s)
    time_axis(axes, "time since the run was opened")
    caption = (
        "Full height: the job holds its lane's turn. Pale: it is started and waits. Where turns are too short to be "
        "drawn one by one, the height is the part of the time held."
    )
    caption += " Hatched grey: its turns are not known." if untraced else ""
    caption += " A cross ends an attempt that did not complete." if failed else ""
    alt = f"Timeline of the turns, {counted(len(rows), 'row')}: " + ", ".join(labels)
    return Chart("timeline", title, caption, alt, figure, tips)


def _union(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Begin and length of the union of spans. Overlapping areas would be drawn darker than others."""
    merged: list[tuple[float, float]] = []
    for from_s, to_s in sorted(spans):
        if merged and from_s <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], to_s))
        else:
            merged.append((from_s, to_s))
    return [(from_s, to_s - from_s) for from_s, to_s in merged]


def _began_s(attempt: AttemptHistory) -> float:
    return attempt.asked_s if attempt.began_s is None else attempt.began_s


def _end(attempt: AttemptHistory) -> str:
    return f"attempt {attempt.number} " + ("goes on" if attempt.outcome is None else attempt.outcome.value)
