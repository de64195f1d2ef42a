"""Defines a chart, and colours and hatches that jobs have in all charts.

Six hues can be told apart by colour-blind readers; from the seventh job on they repeat with a hatch. With more than
forty jobs, the fifteen largest have colours of their own, and all others are drawn as one. Ink, grid and ground are
marker colours, which the report replaces by those of the reader's theme, light or dark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from ecoshare.common.plural import counted
from ecoshare.record.results.job_summary import JobSummary

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
