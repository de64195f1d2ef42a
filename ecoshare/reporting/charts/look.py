"""Defines a chart, and colours and hatches that jobs have in all charts.

Six hues can be told apart by colour-blind readers; from the seventh job on they repeat with a hatch. With more than
forty jobs, the fifteen largest have colours of their own, and all others are drawn as one. Ink, grid and ground are
marker colours, which the report replaces by those of the reader's theme, light or dark.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator, NullFormatter

from ecoshare.base.plural import counted
from ecoshare.record.results.job_summary import JobSummary
from ecoshare.reporting.time_columns import Array, steps

INK, GRID, GROUND = "#010203", "#c0c1c2", "#fdfeff"
HUES = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7")
_HATCHES = ("", "////", "xxxx", "----", "\\\\\\\\", "||||", "++++")
"""Hatches of lines only: dots take half a megabyte in the file."""
_DASHES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)), (0, (9, 2)), (0, (3, 1, 1, 1, 1, 1)), (0, (2, 2)))
"""Dashes of lines, for each hatch."""
GREY = "#8c8c8c"
_MOST_JOBS = 40
_NAMED_OF_MANY = 15
"""Number of jobs with a colour of their own if there are more than `_MOST_JOBS`, for short legends and few rows."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart, or the reason why there is none.

    Attributes:
        key: Short name, unique in a report.
        caption: Description of the drawing and its sources; without a figure, the reason why there is none.
        alt: Content in words, for screen readers.
        figure: Drawing; None if nothing is known that could be drawn.
        tips: Words that a browser shows over a bar, by the id of the bar in the figure.
    """

    key: str
    title: str
    caption: str
    alt: str = ""
    figure: Figure | None = None
    tips: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Look:
    """Label, colour and hatch of one job, or of several that are drawn as one."""

    label: str
    jobs: tuple[str, ...]
    colour: str
    hatch: str = ""

    @property
    def fill(self) -> dict[str, Any]:
        """Arguments for matplotlib to draw an area; the hatch has the colour of the ground."""
        return {"facecolor": self.colour, "hatch": self.hatch or None, "edgecolor": GROUND, "linewidth": 0.0}

    @property
    def stroke(self) -> dict[str, Any]:
        """Arguments for matplotlib to draw a line."""
        return {"color": self.colour, "linestyle": _DASHES[_HATCHES.index(self.hatch)], "linewidth": 1.2}


@contextmanager
def settings(key: str) -> Iterator[None]:
    """Context manager with the matplotlib settings of all charts; it restores the user's own settings.

    Args:
        key: Salt of the ids in an SVG, so that equal charts give equal files.
    """
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(
            {
                "svg.fonttype": "none",
                "svg.hashsalt": key,
                "text.parse_math": False,
                "font.size": 8.0,
                "font.family": ["DejaVu Sans"],
                "text.color": INK,
                "axes.labelcolor": INK,
                "axes.edgecolor": GRID,
                "axes.facecolor": "none",
                "axes.spines.top": False,
                "axes.spines.right": False,
                "axes.axisbelow": True,
                "grid.color": GRID,
                "grid.linewidth": 0.5,
                "xtick.color": GRID,
                "xtick.labelcolor": INK,
                "ytick.color": GRID,
                "ytick.labelcolor": INK,
                "legend.frameon": False,
                "figure.facecolor": "none",
                "hatch.linewidth": 0.7,
            }
        )
        yield


def are_many(jobs: Sequence[JobSummary]) -> bool:
    """Whether only some of the jobs have looks of their own."""
    return len(jobs) > _MOST_JOBS


def looks_of(jobs: Sequence[JobSummary]) -> list[Look]:
    """Looks of the jobs, in the order of the summary; of too many, those with the least energy (or JCT) share one."""
    names = [job.name for job in jobs]
    if are_many(jobs):
        ranked = sorted(jobs, key=lambda job: (-job.energy.value_j if job.energy else 0.0, -(job.jct_s or 0.0)))
        kept = {job.name for job in ranked[:_NAMED_OF_MANY]}
        names = [name for name in names if name in kept]
    looks = [
        Look(name, (name,), HUES[index % len(HUES)], _HATCHES[index // len(HUES) % len(_HATCHES)])
        for index, name in enumerate(names)
    ]
    rest = tuple(job.name for job in jobs if job.name not in set(names))
    return [*looks, Look(counted(len(rest), "other job"), rest, GREY)] if rest else looks


WIDTH_IN = 9.0
ROW_IN = 0.24
_WIDE = 100.0
"""Ratio of largest to smallest value above which an axis of values is logarithmic."""
_TICKS_S = (0.001, 0.01, 0.1, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)


def figure_of(height_in: float) -> tuple[Figure, Axes]:
    """A figure as wide as the page, with one `Axes`."""
    figure = Figure((WIDTH_IN, height_in), layout="constrained")
    return figure, figure.add_subplot()


def bars_of(looks: Sequence[Look]) -> tuple[Figure, Axes]:
    """A figure for horizontal bars, with a row for each look, the first on top."""
    figure, axes = figure_of(len(looks) * ROW_IN + 0.6)
    name_rows(axes, [look.label for look in looks])
    axes.grid(axis="x")
    return figure, axes


def name_rows(axes: Axes, labels: list[str]) -> None:
    """Set up rows from the top, with their labels on the left; long labels are cut."""
    axes.set_yticks(range(len(labels)), [label if len(label) <= 34 else label[:33] + "…" for label in labels])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(labels) - 0.45, -0.55)


def add_legend(figure: Figure, handles: Sequence[Any]) -> None:
    """Add a legend below the axes, and make the figure higher by its height."""
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = max(1, min(len(handles), int(140 / (longest + 7))))
    rows = -(-len(handles) // columns)
    figure.set_figheight(figure.get_figheight() + 0.17 * rows + 0.1)
    figure.legend(handles=list(handles), loc="outside lower left", ncols=columns, handlelength=1.6, columnspacing=1.4)


def label_bar(axes: Axes, value: float, row: int, words: str) -> None:
    """Write words right of the end of a bar. An offset makes the gap, since browsers drop leading blanks of a text."""
    axes.annotate(words, (value, row), (4.0, 0.0), textcoords="offset points", va="center", annotation_clip=False)


def add_tip(artist: Any, key: str, words: str, tips: dict[str, str]) -> None:
    """Give an artist the id `key`, and store the words that a browser shows over it in `tips`."""
    artist.set_gid(key)
    tips[key] = words


def time_axis(axes: Axes, label: str) -> None:
    """Set ticks at round times, in seconds, min:s or h:min, depending on the length of the axis."""
    length_s = axes.get_xlim()[1] - axes.get_xlim()[0]
    step_s = next((step for step in _TICKS_S if length_s / step <= 10), 86400 * math.ceil(length_s / 864000))
    axes.xaxis.set_major_locator(MultipleLocator(step_s))
    if length_s < 120:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda at_s, _: f"{at_s:.10g}"))
        unit = "s"
    elif length_s < 7200:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda at_s, _: f"{at_s // 60:.0f}:{at_s % 60:02.0f}"))
        unit = "min:s"
    else:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda at_s, _: f"{at_s // 3600:.0f}:{at_s % 3600 / 60:02.0f}"))
        unit = "h:min"
    axes.set_xlabel(f"{label}, {unit}")


def scale_values(axes: Axes, values: Sequence[float]) -> None:
    """Make the axis of values logarithmic if they are positive and differ much."""
    if values and min(values) > 0 and max(values) > _WIDE * min(values):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())


def fill_area(axes: Axes, edges: Array, low: Array, high: Array, **style: Any) -> None:
    """Fill the area between two staircases over the same edges."""
    x, below, above = steps(edges, low, high)
    axes.fill_between(x, below, above, **style)


def energy_unit(value_j: float) -> tuple[float, str]:
    """Size in joules and name of the unit that suits the value."""
    return next(
        pair for pair in ((3.6e6, "kWh"), (1e3, "kJ"), (1.0, "J"), (1e-3, "mJ"), (0.0, "J")) if value_j >= pair[0]
    )


def byte_unit(value: float) -> tuple[float, str]:
    """Size in bytes and name of the unit that suits the value."""
    return next(pair for pair in ((2.0**30, "GiB"), (2.0**20, "MiB"), (1.0, "B"), (0.0, "B")) if value >= pair[0])


_SVG, _XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
_COLOURS = {INK: "currentColor", GRID: "var(--grid)", GROUND: "var(--ground)"}
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_DECIMALS = re.compile(r"-?\d+\.\d{3,}")


def inline_svg(chart: Chart) -> Markup | None:
    """The chart as an SVG element with theme colours and ids that are unique in the page; None without a figure."""
    if chart.figure is None:
        return None
    text = io.StringIO()
    with settings(chart.key):
        chart.figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(text.getvalue())
    for child in list(root):
        if child.tag == f"{_SVG}metadata":
            root.remove(child)
    for parent in root.iter():
        for child in list(parent):
            if child.tag == f"{_SVG}style" or (child.tag == f"{_SVG}defs" and child.find(f"{_SVG}style") is not None):
                parent.remove(child)  # the style would apply to the whole page
    for element in root.iter():
        _settle(element, chart)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.set("role", "img")
    root.set("aria-label", f"{chart.title}. {chart.alt}")
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _settle(element: ElementTree.Element, chart: Chart) -> None:
    """Make ids, references and colours of an element fit a page with other charts."""
    element.tag = element.tag.removeprefix(_SVG)
    tip = chart.tips.get(element.get("id", ""))
    for name, value in list(element.attrib.items()):
        if name.startswith(_XLINK):
            del element.attrib[name]
            name = name.removeprefix(_XLINK)
        if name == "id":
            value = f"{chart.key}-{value}"
        elif name == "href":
            value = value.replace("#", f"#{chart.key}-", 1)
        elif name == "d":  # a precision of 0.01 pixels halves the size
            value = _DECIMALS.sub(lambda number: f"{float(number[0]):.2f}", value)
        else:
            value = _REFERENCE.sub(rf"url(#{chart.key}-\1)", value)
            for marker, colour in _COLOURS.items():
                value = value.replace(marker, colour)
        if value.startswith(("currentColor", "var(")):  # variables work in a style, not in an attribute
            element.attrib.pop(name, None)
            name, value = "style", f"{element.get('style', '')};{name}:{value}".lstrip(";")
        element.set(name, value)
    if tip is not None:
        title = ElementTree.Element("title")
        title.text = tip
        element.insert(0, title)
