"""Chart of the lanes of a run and their jobs over time: the first picture of a report.

::

    lane 0  █ gnn ███│▒ vae ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒    one bar for each job, from start to end of its process
    lane 1  ▓ gan ▓▓▓▓▓▓✕   █ gnn ████████     simultaneous jobs of a lane lie below each other
                              ▓ mlp ▓▓▓▓▓▓▓
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from ecoshare.base.plural import counted
from ecoshare.jobs.quantities import format_duration
from ecoshare.record.run_data import RunData
from ecoshare.record.run_history import AttemptHistory, ParkedSpan, split_by_parking
from ecoshare.reporting.charts.look import (
    GREY,
    GRID,
    GROUND,
    INK,
    Chart,
    Look,
    add_legend,
    add_tip,
    figure_of,
    time_axis,
)

_BAR_IN = 0.23
_HIGH = 0.84
"""Height of a bar; that of a row is 1."""
_CHAR_IN = 0.085
"""Width (inches) of a letter with its share of the margins. A name stands in its bar if it fits."""
_AXES_IN = 8.2
_MOST_IN_LEGEND = 24
_TOO_SHORT = 1 / 800
"""Part of the time axis, about a pixel. Successive stays that are shorter are drawn as one bar."""
_TOGETHER = 1 / 200
"""Largest part of the time axis that such a bar spans, so that its tip still gives a useful time."""
_DARK, _LIGHT = "#10151a", "#ffffff"
_DARK_ON = frozenset({"#e69f00", "#56b4e9", "#cc79a7"})


@dataclass(frozen=True, slots=True)
class Stay:
    """Time span of an attempt in one lane.

    Attributes:
        is_last: Whether the attempt ended in this lane, or goes on in it.
        is_parked: Whether the attempt was parked at the end of the span.
    """

    attempt: AttemptHistory
    lane: int
    from_s: float
    to_s: float
    is_last: bool
    is_parked: bool = False


def lanes(data: RunData, looks: list[Look]) -> Chart:
    """Chart with a bar for each job in its lane, over time."""
    title, end_s = "Lanes", data.end_s()
    look_of = {name: look for look in looks for name in look.jobs}
    found = [each for each in stays(data) if each.attempt.job in look_of]
    if not found or not end_s:
        return Chart("lanes", title, "no job has been started")
    rows = _rows(found)
    figure, axes = figure_of(_BAR_IN * len(rows) + 0.55)
    tips: dict[str, str] = {}
    named: set[str] = set()
    failed = joined = False
    for row, (_, own) in enumerate(rows):
        for place, bar in enumerate(_bars(own, end_s)):
            labels = {look_of[stay.attempt.job].label: look_of[stay.attempt.job] for stay in bar}
            colour = next(iter(labels.values())).colour if len(labels) == 1 else GREY
            from_s, to_s = bar[0].from_s, bar[-1].to_s
            box = (from_s, row - _HIGH / 2), to_s - from_s, _HIGH
            drawn = Rectangle(*box, facecolor=colour, edgecolor=GROUND, linewidth=0.6)
            axes.add_artist(drawn)  # `barh` and `add_patch` also update limits, which takes twice the time
            add_tip(drawn, f"stay-{row}-{place}", _words(bar), tips)
            name = bar[0].attempt.job
            if len(bar) == 1 and len(name) * _CHAR_IN <= (to_s - from_s) / end_s * _AXES_IN:
                ink = _DARK if colour in _DARK_ON else _LIGHT
                middle_s = (from_s + to_s) / 2
                axes.text(middle_s, row, name, va="center", ha="center", color=ink, fontsize=7.5)
                named.add(name)
            joined |= len(bar) > 1
            if any(stay.is_last and stay.attempt.ended_badly for stay in bar):
                failed = True
                axes.plot(to_s, row, "x", color=INK, markersize=5, markeredgewidth=1.4, clip_on=False)
    _name_lanes(axes, rows)
    axes.set_xlim(0.0, end_s)
    time_axis(axes, "time since the run was opened")
    jobs, numbers = {each.attempt.job for each in found}, {each.lane for each in found}
    unnamed = {look_of[job].label: look_of[job] for job in sorted(jobs - named)}
    if 0 < len(unnamed) <= _MOST_IN_LEGEND:
        add_legend(figure, [Patch(facecolor=each.colour, label=each.label) for each in unnamed.values()])
    caption = "Each bar is a job in its lane, from the start of its process to its end. Jobs of one lane take turns."
    caption += " A cross: it did not complete." if failed else ""
    caption += " Between its bars, a job was parked." if any(each.is_parked for each in found) else ""
    caption += " Short jobs that follow each other are drawn as one bar, grey if they differ." if joined else ""
    caption += " Grey: jobs without a colour of their own." if any(len(each.jobs) > 1 for each in looks) else ""
    caption += " The name of a bar shows when the pointer rests on it." if len(unnamed) > _MOST_IN_LEGEND else ""
    alt = f"Timeline of {counted(len(jobs), 'job')} in {counted(len(numbers), 'lane')} over {format_duration(end_s)}."
    return Chart("lanes", title, caption, alt, figure, tips)


def stays(data: RunData) -> list[Stay]:
    """Time spans of each attempt in its lanes, in the order in which attempts began.

    Attempts that never began are left out.
    """
    attempts, end_s = data.history.attempts, data.end_s()
    found = []
    for attempt in attempts:
        if attempt.began_s is None and attempt.ended_s is None:
            continue
        from_s = attempt.asked_s if attempt.began_s is None else attempt.began_s
        to_s = max(from_s, end_s if attempt.ended_s is None else attempt.ended_s)
        for number in attempt.lanes:
            changes = [(move.at_s, move.lane) for move in data.history.moves(attempt) if from_s < move.at_s < to_s]
            begins = [(from_s, number), *changes]
            ends_s = [at_s for at_s, _ in changes] + [to_s]
            parked = [each for each in data.history.jobs[attempt.job].parked if each.attempt == attempt.number]
            for place, ((begin_s, lane), stop_s) in enumerate(zip(begins, ends_s, strict=True)):
                stay = Stay(attempt, lane, begin_s, stop_s, place == len(changes))
                found += _without(parked, stay)
    return found


def _without(parked: Iterable[ParkedSpan], stay: Stay) -> list[Stay]:
    """Parts of a stay in which its job was not parked."""
    parts = list[Stay]()
    for from_s, to_s, is_parked in split_by_parking(parked, stay.from_s, stay.to_s):
        if is_parked:
            parts[-1] = replace(parts[-1], is_last=False, is_parked=True)
        else:
            parts.append(replace(stay, from_s=from_s, to_s=to_s))
    return parts or [stay]


def _rows(found: Iterable[Stay]) -> list[tuple[int, list[Stay]]]:
    """Lane and stays of each row, in the order of lanes; stays of a row do not overlap."""
    rows: dict[int, list[list[Stay]]] = {}
    for stay in sorted(found, key=lambda each: (each.from_s, -each.to_s)):
        own = rows.setdefault(stay.lane, [])
        free = next((row for row in own if row[-1].to_s <= stay.from_s), None)
        if free is None:
            own.append([stay])
        else:
            free.append(stay)
    return [(lane, row) for lane, own in sorted(rows.items()) for row in own]


def _name_lanes(axes: Axes, rows: list[tuple[int, list[Stay]]]) -> None:
    """Write the name of each lane beside its rows, and draw a line between lanes."""
    numbers = [lane for lane, _ in rows]
    firsts = {lane: numbers.index(lane) for lane in numbers}
    middles = [first + (numbers.count(lane) - 1) / 2 for lane, first in firsts.items()]
    axes.set_yticks(middles, [f"lane {lane}" for lane in firsts])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(rows) - 0.45, -0.55)
    for first in list(firsts.values())[1:]:
        axes.axhline(first - 0.5, color=GRID, linewidth=0.6)


def _bars(row: list[Stay], end_s: float) -> list[list[Stay]]:
    """The bars of a row, each with its stays: one, or several successive stays that are too short to be seen.

    Args:
        row: Stays in the order of time, without overlaps.
    """
    bars: list[list[Stay]] = []
    least_s, most_s = _TOO_SHORT * end_s, _TOGETHER * end_s
    for stay in row:
        last = bars[-1] if bars else None
        is_short = stay.to_s - stay.from_s < least_s
        if (
            last is not None
            and is_short
            and last[-1].to_s - last[-1].from_s < least_s
            and stay.from_s - last[-1].to_s < least_s
            and stay.to_s - last[0].from_s <= most_s
        ):
            last.append(stay)
        else:
            bars.append([stay])
    return bars


def _words(bar: list[Stay]) -> str:
    """The tip of a bar."""
    if len(bar) > 1:
        first, last = bar[0], bar[-1]
        span = format_duration(last.to_s - first.from_s)
        return f"{counted(len(bar), 'job')}, lane {first.lane}, {first.attempt.job} to {last.attempt.job}: {span}"
    (stay,) = bar
    attempt = stay.attempt
    words = f"{attempt.job}, lane {stay.lane}: {format_duration(stay.to_s - stay.from_s)}"
    words += f", attempt {attempt.number}" if attempt.number > 1 else ""
    if stay.is_parked:
        return f"{words}, was parked"
    if not stay.is_last:
        return f"{words}, went on in another lane"
    return f"{words}, " + ("goes on" if attempt.outcome is None else attempt.outcome.value)
