"""Draws the memory inside one iteration, in a terminal and as an SVG.

::

      3.1 GiB ┤        ▂█▆           the peak
              │      ▄████▃          above it: the ephemeral part, T
      1.2 GiB ┤▒▒▒╌╌▒▒▒▒▒▒▒▒▒▒       alive between iterations, a part of P
          0 B └┬──────┬───────┬
              0 s   6 ms    12 ms

The axis is cut if the whole swing is a small part of the memory that is alive. It then begins below the lowest level,
and a size with a sign is the difference from the memory that is alive between iterations.
"""

from __future__ import annotations

import io
import re
import textwrap
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ecoshare.jobs.quantities import BYTES_BY_UNIT, SECONDS_BY_UNIT, format_duration, format_size
from ecoshare.knowledge.profile import Profile
from ecoshare.lane.memory.recording import Point
from ecoshare.reporting.figures import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLOCKS = " ▁▂▃▄▅▆▇█▒╌│┤└─┬"
"""All characters of a drawing with block elements."""
_EIGHTHS, _FULL, _KEPT, _LINE, _SIDE, _TICK, _CORNER, _FLOOR, _MARK = BLOCKS[:8], *BLOCKS[8:]
_ASCII = " __---==", "#", ":", ".", "|", "+", "+", "-", "+"
_CUT = 4
"""The axis is cut if the peak is higher than this many swings. Up to there, two of eight rows show the swing."""
_LONGEST_NAME = 60
_KEPT_COLOUR, _BEYOND_COLOUR = "#56b4e9", "#e69f00"


@dataclass(frozen=True, slots=True)
class _Axis:
    """The vertical axis of a timeline."""

    base_bytes: int
    boundary_bytes: int
    peak_bytes: int
    peak_at_s: float
    is_cut: bool

    @classmethod
    def of(cls, timeline: Sequence[Point]) -> _Axis:
        heights = [level_bytes for _, level_bytes in timeline]
        lowest, peak = min(heights), max(heights)
        swing = peak - lowest
        is_cut = 0 < swing * _CUT < peak
        base = lowest - max(swing // 4, 1) if is_cut else min(lowest, 0)
        return cls(base, heights[0], peak, timeline[heights.index(peak)][0], is_cut)

    def label(self, level_bytes: int) -> str:
        """The level in words. On a cut axis all levels would read alike, so it is the distance from the boundary."""
        beyond = level_bytes - self.boundary_bytes
        return (
            f"{'+' if beyond > 0 else ''}{format_size(beyond)}" if self.is_cut and beyond else format_size(level_bytes)
        )

    def eighths(self, level_bytes: int, kept: int, height: int) -> int:
        """The level in eighths of a row, rounded up, so that no memory vanishes.

        The boundary lies at the top of row `kept`, the peak at the top of row `height`, each part with its own scale.
        With one scale the boundary would lie inside a row, and part of that row would pass for memory above it.
        """
        low, high, first, last = self.base_bytes, self.boundary_bytes, 0, 8 * kept
        if level_bytes > self.boundary_bytes:
            low, high, first, last = high, self.peak_bytes, last, 8 * height
        return first - (low - level_bytes) * (last - first) // max(high - low, 1)

    def words(self) -> str:
        """The peak and the boundary in a sentence."""
        beyond = (
            format_size(self.peak_bytes - self.boundary_bytes) if self.peak_bytes > self.boundary_bytes else "nothing"
        )
        told = (
            f"Peak {format_size(self.peak_bytes)} at {format_duration(self.peak_at_s)}: {beyond} beyond what is alive "
        )
        told += f"between iterations ({format_size(self.boundary_bytes)})."
        return told + (" The axis does not begin at 0." if self.is_cut else "")


def columns(timeline: Sequence[Point], count: int) -> list[int]:
    """Largest number of bytes alive in each of `count` equal parts of an iteration; levels without duration count."""
    end_s = timeline[-1][0]
    if end_s <= 0:
        return [max(level_bytes for _, level_bytes in timeline)] * count
    places = [max(at_s, 0.0) / end_s * count for at_s, _ in timeline]
    most = [min(level_bytes for _, level_bytes in timeline)] * count
    for index, (_, level_bytes) in enumerate(timeline):
        first = min(int(places[index]), count - 1)
        until = places[index + 1] if index + 1 < len(places) else count
        # A level that ends at the edge of a column is not in that column.
        last = min(int(until) - (until == int(until)), count - 1)
        for column in range(first, max(first, last) + 1):
            most[column] = max(most[column], level_bytes)
    return most


def terminal(timeline: Sequence[Point], width: int, height: int, *, blocks: bool = True) -> list[str]:
    """Lines of the drawing: `height` rows, then the time axis and a legend. No line is longer than `width`.

    Args:
        timeline: (seconds since the iteration began, bytes alive from then on), in order.
        width: Width of the whole drawing in characters; a smaller width than 24 counts as 24.
        height: Height of the area in rows.
        blocks: Whether the output can show the characters in `BLOCKS`; else ASCII is used.
    """
    if not timeline:
        return ["No timeline is known."]
    eighths, full, kept_full, line, side, tick, corner, floor, mark = (
        (_EIGHTHS, _FULL, _KEPT, _LINE, _SIDE, _TICK, _CORNER, _FLOOR, _MARK) if blocks else _ASCII
    )
    axis = _Axis.of(timeline)
    kept = _kept_rows(axis, height)
    labels = {kept - 1: axis.label(axis.boundary_bytes), height - 1: axis.label(axis.peak_bytes)}
    bottom = axis.label(axis.base_bytes)
    margin = max(len(label) for label in (*labels.values(), bottom))
    width = max(width, 24)
    levels = [axis.eighths(level_bytes, kept, height) for level_bytes in columns(timeline, width - margin - 2)]
    rows = []
    for row in range(height - 1, -1, -1):
        empty = line if row == kept - 1 else " "
        solid = kept_full if row < kept else full
        cells = (min(max(level - 8 * row, 0), 8) for level in levels)
        drawn = "".join(empty if cell == 0 else solid if cell == 8 else eighths[cell] for cell in cells)
        rows.append(f"{labels.get(row, ''):>{margin}} {tick if row in labels else side}{drawn}".rstrip())
    ticks = (0, len(levels) // 2, len(levels) - 1) if timeline[-1][0] > 0 else (0,)
    floors = "".join(mark if column in ticks else floor for column in range(len(levels)))
    rows.append(f"{bottom:>{margin}} {corner}{floors}")
    rows.append(" " * (margin + 2) + _times(timeline[-1][0], len(levels)))
    rows += textwrap.wrap(f"{kept_full} alive between iterations, {full} beyond it. {axis.words()}", width)
    return rows


def _kept_rows(axis: _Axis, height: int) -> int:
    """Rows of the memory that is alive between iterations. Each part that is not empty has at least one row."""
    nearest = round((axis.boundary_bytes - axis.base_bytes) * height / max(axis.peak_bytes - axis.base_bytes, 1))
    least = 1 if axis.boundary_bytes > axis.base_bytes else 0
    return max(least, min(nearest, height - 1 if axis.peak_bytes > axis.boundary_bytes else height))


def _times(end_s: float, width: int) -> str:
    if end_s <= 0:
        return "0 s"
    middle, end = format_duration(end_s / 2), format_duration(end_s)
    left = f"0 s{middle:^{width - 6}}" if width >= 10 + len(middle) + 2 * len(end) else "0 s"
    return left[: width - len(end) - 1].ljust(width - len(end)) + end


def svg(profile: Profile) -> str:
    """The timeline of a profile as an SVG without other files, its text as text. Equal profiles give equal SVGs."""
    from ecoshare.reporting import charts  # matplotlib takes half a second to import, and most commands draw nothing

    text = io.StringIO()
    with charts.settings("memory-timeline"), warnings.catch_warnings():
        # Letters that matplotlib's own font lacks are in the fonts of the viewer.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        title = f"Memory inside an iteration of {printable(profile.job_class)}"
        figure(profile).savefig(
            text, format="svg", facecolor="white", metadata={"Title": title, "Date": None, "Creator": None}
        )
    # Document type and metadata name addresses on other machines.
    return re.sub(r"<!DOCTYPE[^>]*>\s*|<metadata>.*?</metadata>\s*", "", text.getvalue(), flags=re.DOTALL)


def figure(profile: Profile) -> Figure:
    """The timeline as a figure of matplotlib. Call it, and save the figure, inside `charts.settings`."""
    from matplotlib.figure import Figure

    drawing = Figure((8.0, 3.6), layout="constrained")
    axes = drawing.add_subplot()
    name = printable(profile.job_class)
    name = name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
    where = printable(f"{profile.origin.device_model} ({profile.machine.device})")
    axes.set_title(f"Memory inside an iteration of {name}\n{where}", loc="left", fontsize=9)
    if profile.memory.timeline:
        _draw(axes, profile.memory.timeline)
    else:
        axes.set_axis_off()
        note = printable(profile.memory.note)
        said = textwrap.fill(f"No timeline is known{': ' if note else '.'}{note}", 100)
        axes.text(0.5, 0.5, said, ha="center", va="center")
    return drawing


def _draw(axes: Axes, timeline: Sequence[Point]) -> None:
    axis = _Axis.of(timeline)
    end_s = timeline[-1][0]
    time_unit = next((unit for unit in ("s", "ms") if end_s >= SECONDS_BY_UNIT[unit]), "us")
    largest = axis.peak_bytes - axis.base_bytes if axis.is_cut else axis.peak_bytes
    unit = next((unit for unit in ("GiB", "MiB", "KiB") if largest >= BYTES_BY_UNIT[unit]), "B")
    zero_bytes = axis.boundary_bytes if axis.is_cut else 0
    at = [at_s / SECONDS_BY_UNIT[time_unit] for at_s, _ in timeline]
    if end_s <= 0:  # one instant: the level is drawn as a line
        timeline, at = [timeline[-1]] * 2, [0.0, 1.0]

    def shown(level_bytes: int) -> float:
        return (level_bytes - zero_bytes) / BYTES_BY_UNIT[unit]

    level, base, boundary = (
        [shown(height) for _, height in timeline],
        shown(axis.base_bytes),
        shown(axis.boundary_bytes),
    )
    under = [min(each, boundary) for each in level]
    axes.fill_between(
        at, base, under, step="post", color=_KEPT_COLOUR, linewidth=0, label="alive between iterations, a part of P"
    )
    axes.fill_between(at, under, level, step="post", color=_BEYOND_COLOUR, linewidth=0, label="beyond it: ephemeral, T")
    axes.step(at, level, where="post", color="black", linewidth=0.8)
    axes.axhline(boundary, color="black", linewidth=0.8, linestyle=(0, (4, 3)))
    peak = shown(axis.peak_bytes)
    peak_at = axis.peak_at_s / SECONDS_BY_UNIT[time_unit]
    axes.plot([peak_at], [peak], "v", color="black", markersize=4, clip_on=False)
    label = f"peak {format_size(axis.peak_bytes)} at {format_duration(axis.peak_at_s)}"
    side = "right" if peak_at > at[-1] / 2 else "left"
    axes.annotate(label, (peak_at, peak), (0, 6), textcoords="offset points", ha=side)
    axes.set_xlim(0.0, at[-1])
    axes.set_ylim(base, base + 1.15 * ((peak - base) or 1.0))
    axes.grid(axis="y")
    axes.set_xlabel(f"time since the iteration began, {time_unit}" if end_s > 0 else "nothing changed inside it")
    if end_s <= 0:
        axes.set_xticks([])
    kept = format_size(axis.boundary_bytes)
    axes.set_ylabel(f"{unit} from the {kept}\nalive between iterations" if axis.is_cut else f"tensors alive, {unit}")
    axes.figure.legend(loc="outside lower left", ncols=3, title=axis.words(), alignment="left", title_fontsize=8)
