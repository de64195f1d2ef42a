"""What a chart is, and how jobs look in all of them.

A job has one colour: six hues that the colour-blind can tell apart, and from the seventh job on the same hues again
with a hatch. Of more than forty jobs the fifteen largest have colours, and the others are drawn as one. Ink, grid and
ground are marker colours that the report replaces by the reader's own, light or dark.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from ecoshare.common.plural import counted

INK, GRID, GROUND = "#010203", "#c0c1c2", "#fdfeff"
HUES = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7")
_HATCHES = ("", "////", "xxxx", "----", "\\\\\\\\", "||||", "++++")
"""Of lines alone: dots take half a megabyte in the file."""
GREY = "#8c8c8c"
_MOST_JOBS = 40
_NAMED_OF_MANY = 15
"""Jobs with a colour of their own where there are more than that: their legends and rows stay short."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart, or why there is none.

    Attributes:
        key: Short and unique in a report.
        caption: What is to be seen, and how it is known.
        alt: The same for who cannot see it.
        figure: None where nothing is known that could be drawn.
        tips: Words for single bars, by the id that they have in the figure.
    """

    key: str
    title: str
    caption: str
    alt: str = ""
    figure: Figure | None = None
    tips: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Look:
    """One job, or several that are drawn as one."""

    label: str
    jobs: tuple[str, ...]
    colour: str
    hatch: str = ""

    @property
    def fill(self) -> dict[str, Any]:
        """How its areas are drawn; the ground's colour is that of the hatch."""
        return {"facecolor": self.colour, "hatch": self.hatch or None, "edgecolor": GROUND, "linewidth": 0.0}


@contextmanager
def settings(key: str) -> Iterator[None]:
    """Settings of matplotlib in which charts are drawn and written, whatever the user's own are; put back after."""
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


def looks_of(jobs: list[dict[str, Any]]) -> list[Look]:
    """The jobs in the order of the summary; where there are too many, those with the least energy (or JCT) as one."""
    names = [job["name"] for job in jobs]
    if len(jobs) > _MOST_JOBS:
        ranked = sorted(jobs, key=lambda job: (-(job["energy"] or {}).get("value_j", 0.0), -(job["jct_s"] or 0.0)))
        kept = {job["name"] for job in ranked[:_NAMED_OF_MANY]}
        names = [name for name in names if name in kept]
    looks = [
        Look(name, (name,), HUES[index % len(HUES)], _HATCHES[index // len(HUES) % len(_HATCHES)])
        for index, name in enumerate(names)
    ]
    rest = tuple(job["name"] for job in jobs if job["name"] not in set(names))
    return [*looks, Look(counted(len(rest), "other job"), rest, GREY)] if rest else looks
