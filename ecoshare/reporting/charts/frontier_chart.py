"""Chart of a search: energy against slowdown of its measurements, and of the other settings of a replayed table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ecoshare.base.plural import counted
from ecoshare.knowledge.tuning_store import KnobValues, MeasurementRecord, TuningResult
from ecoshare.reporting.charts.look import GRID, HUES, INK, Chart, add_legend, figure_of
from ecoshare.reporting.figures import share
from ecoshare.reporting.search_text import worth

Spot = tuple[float, float]
"""Slowdown of the slowest job against the default setting, and energy over the energy alone at the default."""

_KEPT, _BROKEN, _OPTIMUM = HUES[0], HUES[3], HUES[2]
_OTHER = "#9aa0a6"
_MARK_PT, _RING_PT = 12.0, 21.0
"""Diameters (points) of a numbered mark, and of the ring around the chosen one."""
_WIDE, _TALL = (1.2, 1.45), (1.15, 1.5)
"""Least and largest end of each axis: slowdown / limit, and energy. Measurements extend an axis up to the latter."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Facts from a replayed table that are drawn beside the measurements.

    Attributes:
        settings: Slowdown and energy of all settings of the table.
        tried: Slowdown and energy of each measurement by the table, without noise; empty to draw the measured values.
        optimum: Slowdown and energy of the best setting; None if no table is replayed.
    """

    settings: Sequence[Spot] = ()
    tried: Sequence[Spot] = ()
    optimum: Spot | None = None


def frontier(tuned: TuningResult, words: str, ground: Ground | None = None) -> Chart:
    """Chart of energy against slowdown; the measurements are numbered in their order.

    Args:
        words: Title, which names the searched table or jobs.
    """
    ground = ground or Ground()
    title = "Energy against slowdown"
    spots: Sequence[Spot | None] = ground.tried or [_spot(record) for record in tuned.trials]
    records = [(record, spot) for record, spot in zip(tuned.trials, spots, strict=True) if spot is not None]
    if not records:
        return Chart("frontier", title, "Not known: nothing was measured.")
    figure, axes = figure_of(4.2)
    whole = [*(spot for _, spot in records), *([ground.optimum] if ground.optimum else [])]
    frame = _frame(axes, whole, ground.settings, tuned.tuning_limit)
    near = [spot for spot in ground.settings if all(at <= most for at, most in zip(spot, frame, strict=True))]
    axes.grid()
    axes.set_xlabel("slowdown: time over that at the default setting" + (", slowest job" if _several(tuned) else ""))
    axes.set_ylabel("energy of the same work\n(1: what it costs alone at the default)")
    chosen = _place_of(tuned.best, records)
    result = _result(outcome(tuned, ground))
    axes.set_title(f"{words}{result}", loc="left", fontsize=9)
    handles = [*_ground(axes, ground, near), *_limit(axes, tuned.tuning_limit)]
    if ground.optimum:
        handles += _ring(axes, ground.optimum, "best of the table", _OPTIMUM, "D", 1.15 * _RING_PT)
    handles += _marks(records, tuned.tuning_limit)
    if chosen is not None:
        handles += _ring(axes, chosen, "chosen", INK, "o", _RING_PT)
    add_legend(figure, handles)
    figure.draw_without_rendering()  # distances on the page are known from here on
    _draw_numbers(axes, records, frame, chosen, tuned.tuning_limit)
    left_out, hidden = len(ground.settings) - len(near), len(tuned.trials) - len(records)
    caption = "Down is less energy, left is faster; up to the dashed line is allowed."
    caption += " Trials are drawn where the table has them, without the noise." if ground.tried else ""
    caption += f" Settings of the table beyond the axes: {left_out}." if left_out else ""
    caption += f" Measurements without an energy, which are not drawn: {hidden}." if hidden else ""
    measured = counted(len(records), "measurement")
    alt = f"{measured} between slowdown and energy, the limit at {tuned.tuning_limit:g}{result}."
    return Chart("frontier", title, caption, alt.replace("\n", "; "), figure)


def _spot(record: MeasurementRecord) -> Spot | None:
    if record.energy is None or not record.interference:
        return None
    return max(record.interference.values()), record.energy


def _several(tuned: TuningResult) -> bool:
    return any(len(record.interference) > 1 for record in tuned.trials)


def _place_of(setting: KnobValues | None, records: Sequence[tuple[MeasurementRecord, Spot]]) -> Spot | None:
    """Slowdown and energy of the last measurement of a setting; None if there is none."""
    own = [spot for record, spot in records if record.requested == setting]
    return own[-1] if own else None


@dataclass(frozen=True, slots=True)
class ChosenSetting:
    """The chosen setting compared with the default.

    Attributes:
        saved: Saved part of the default's energy; negative if the chosen setting takes more.
        slower: Additional time of the slowest job / its time at the default; negative if it is faster.
    """

    saved: float
    slower: float


def outcome(tuned: TuningResult, ground: Ground | None) -> ChosenSetting | None:
    """The chosen setting by the replayed table, or by the mean of its measurements if no table is replayed.

    None if no setting was chosen, or its energy is not known.
    """
    if ground is not None and ground.tried:
        records = list(zip(tuned.trials, ground.tried, strict=True))
        chosen, default = _place_of(tuned.best, records), _place_of(tuned.default, records)
        return (
            None if chosen is None or default is None else ChosenSetting(1.0 - chosen[1] / default[1], chosen[0] - 1.0)
        )
    interference = worth(tuned, tuned.best)[1]
    if tuned.saved_against_default is None or not interference:
        return None
    return ChosenSetting(tuned.saved_against_default, max(interference.values()) - 1.0)


def _result(found: ChosenSetting | None) -> str:
    """Energy and time of the chosen setting in a few words; empty if there is none."""
    if found is None:
        return ""
    energy = f"{share(abs(found.saved))} {'less' if found.saved >= 0.0 else 'more'} energy"
    return f"\nchosen: {energy}, {share(abs(found.slower))} {'slower' if found.slower >= 0.0 else 'faster'}"


def _marks(records: Sequence[tuple[MeasurementRecord, Spot]], limit: float) -> Iterator[Line2D]:
    """Legend entries of the measurements."""
    style: dict[str, Any] = {"marker": "o", "markersize": 8, "linestyle": "none", "markeredgecolor": "white"}
    yield Line2D([], [], color=_KEPT, label="measurement, in this order", **style)
    if any(spot[0] > limit for _, spot in records):
        yield Line2D([], [], color=_BROKEN, label="measurement over the limit", **style)


def _draw_numbers(
    axes: Axes, records: Sequence[tuple[MeasurementRecord, Spot]], frame: Spot, chosen: Spot | None, limit: float
) -> None:
    """Draw the measurements. Those beyond the frame are drawn at its edge, with their values in words."""
    inside = [(record, (min(spot[0], frame[0]), min(spot[1], frame[1]))) for record, spot in records]
    where = {record.number: spot for record, spot in records}
    for record, spot, moved in _apart(axes, inside, chosen):
        colour = _BROKEN if where[record.number][0] > limit else _KEPT
        if where[record.number] != spot:
            words = f"at {where[record.number][0]:.2f}, {where[record.number][1]:.2f}"
            beside = moved[0] - 0.7 * _MARK_PT, moved[1]
            axes.annotate(
                words, spot, beside, textcoords="offset points", ha="right", va="center", fontsize=6.5, color=INK
            )
        is_moved = moved != (0.0, 0.0)
        axes.annotate(
            str(record.number),
            spot,
            moved,
            textcoords="offset points",
            ha="center",
            va="center_baseline",
            color="white",
            fontsize=7 if record.number < 100 else 5,
            fontweight="bold",
            bbox={"boxstyle": "circle,pad=0.22", "facecolor": colour, "edgecolor": "white", "linewidth": 0.8},
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.8} if is_moved else None,
        )
        if is_moved:
            axes.plot(*spot, "o", color=colour, markersize=3.5, zorder=2.5)


def _ring(axes: Axes, spot: Spot, label: str, colour: str, marker: str, size_pt: float) -> list[Line2D]:
    """Draw a mark around a spot, and return its legend entry."""
    style: dict[str, Any] = {"marker": marker, "markerfacecolor": "none", "markeredgewidth": 1.7, "linestyle": "none"}
    axes.plot(*spot, color=colour, markersize=size_pt, zorder=2.6, **style)  # below the numbers
    return [Line2D([], [], color=colour, label=label, markersize=8, **style)]


def _frame(axes: Axes, spots: Sequence[Spot], settings: Sequence[Spot], limit: float) -> Spot:
    """Set the limits of the axes, and return the largest slowdown and energy inside them."""
    slow = min(max(limit * _WIDE[0], *(spot[0] for spot in spots)), limit * _WIDE[1])
    spent = min(max(_TALL[0], *(spot[1] for spot in spots)), _TALL[1])
    lowest = [*spots, *(spot for spot in settings if spot[0] <= slow and spot[1] <= spent)]
    for place, high, put in ((0, slow, axes.set_xlim), (1, spent, axes.set_ylim)):
        low = min(1.0, *(spot[place] for spot in lowest))
        put(low - 0.08 * (high - low), high + 0.06 * (high - low))
    return slow, spent


def _ground(axes: Axes, ground: Ground, near: Sequence[Spot]) -> list[Line2D]:
    """Draw the settings of the table and their Pareto frontier, and return the legend entries."""
    if not near:
        return []
    style: dict[str, Any] = {"marker": "o", "markersize": 4, "linestyle": "none", "markeredgewidth": 0.0}
    handles = axes.plot(*zip(*near, strict=True), color=_OTHER, alpha=0.75, label="setting of the table", **style)
    front = list(_front(ground.settings))
    handles += axes.plot(*zip(*front, strict=True), color=_OTHER, linewidth=1.0, label="frontier of the table")
    return handles


def _front(spots: Sequence[Spot]) -> Iterator[Spot]:
    """Pareto frontier, from the fastest spot on: spots with less energy than every faster one."""
    least = math.inf
    for spot in sorted(spots):
        if spot[1] < least:
            least = spot[1]
            yield spot


def _limit(axes: Axes, limit: float) -> list[Line2D]:
    right = axes.get_xlim()[1]
    axes.axvspan(limit, right, facecolor=GRID, alpha=0.28, linewidth=0.0, zorder=0)
    return [axes.axvline(limit, color=INK, linewidth=1.0, linestyle=(0, (4, 3)), label=f"tuning limit {limit:g}")]


def _apart(
    axes: Axes, records: Sequence[tuple[MeasurementRecord, Spot]], chosen: Spot | None
) -> Iterator[tuple[MeasurementRecord, Spot, tuple[float, float]]]:
    """Each measurement, its spot, and the offset (points) that keeps its number off other numbers and the ring."""
    per_point = axes.figure.dpi / 72.0
    taken: list[tuple[float, float, float]] = []
    for record, spot in sorted(records, key=lambda pair: (pair[1] != chosen, pair[0].number)):
        x, y = axes.transData.transform(spot) / per_point
        moved = next((way for way in _ways() if _is_free(x + way[0], y + way[1], taken)), (0.0, 0.0))
        ringed = spot == chosen and moved == (0.0, 0.0)
        taken.append((x + moved[0], y + moved[1], 0.5 * (_RING_PT if ringed else _MARK_PT)))
        yield record, spot, moved


def _is_free(x: float, y: float, taken: Sequence[tuple[float, float, float]]) -> bool:
    return all(math.dist((x, y), (left, low)) >= 0.5 * _MARK_PT + radius for left, low, radius in taken)


def _ways() -> Iterator[tuple[float, float]]:
    """Offsets (points) at which a number may stand, the nearest first."""
    yield 0.0, 0.0
    for ring in (1.4, 2.2, 3.0, 3.8):
        for step in range(16):
            angle = math.tau * (step + 2) / 16
            yield ring * _MARK_PT * math.cos(angle), ring * _MARK_PT * math.sin(angle)
