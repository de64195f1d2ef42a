"""Writes figures and foreign text for the user, in addition to `jobs.quantities`."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from ecoshare.common.plural import listed
from ecoshare.common.printable import spelled
from ecoshare.jobs.quantities import format_duration, format_energy, number
from ecoshare.reporting.prose import say

UNKNOWN = "-"
_HASH = re.compile(r"-[0-9a-f]{12}$")
_PLAINER = str.maketrans({"±": "+-", "…": "..."})


def printable(text: str, encoding: str = "utf-8") -> str:
    """The text in one line, without control characters and with only those that `encoding` can show.

    Names and notes come from scripts and foreign files. They must not move a cursor or end an XML document.
    """
    spaced = "".join(" " if char.isspace() else char for char in text)
    safe = spelled(spaced)
    if can_show(safe, encoding):
        return safe
    return safe.translate(_PLAINER).encode(encoding, "backslashreplace").decode(encoding)


def can_show(text: str, encoding: str) -> bool:
    """Whether an encoding has all characters of a text."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def share(part: float) -> str:
    """A part of a whole in percent."""
    return f"{number(100 * part)} %"


def short_class(name: str) -> str:
    """Name of a job class without the hash that tells it from other classes of its script."""
    return _HASH.sub("", name)


def with_steps(count: str, by_steps: bool) -> str:
    """Number of iterations of a job. It says so if they are steps of optimizers that step by turns: see `Usage`."""
    return f"{count} optimizer steps" if by_steps else count


def turn_wait(wait_s: float, behind: Sequence[str]) -> str:
    """Long wait for the turn in words."""
    return f"waits behind {listed(behind) if behind else 'others'} for {format_duration(round(wait_s))}"


def small_energy(energy_j: float) -> str:
    """Energy in words; in microjoules if it would read as `0 J` otherwise."""
    if 0 < abs(energy_j) < 0.9995e-3:
        return f"{energy_j * 1e6:.3g} uJ"
    return format_energy(energy_j)


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of a profile.

    Attributes:
        group: Heading under which the figure stands.
        shown: Figure with its unit; `-` if it is not known.
        value: Value for comparisons, in any unit; None if it cannot be compared.
        relative_error: Standard error / value; 0 if there is none.
        remark: Meaning of the figure, or why it is not known.
        basis: Basis of the measurement; two figures compare only if they have the same.
        is_share: Whether figures are compared by difference instead of ratio.
        is_optional: Whether the line is left out if the figure is not known.
    """

    group: str
    name: str
    shown: str
    value: float | None = None
    relative_error: float = 0.0
    remark: str = ""
    basis: str = ""
    is_share: bool = False
    is_optional: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """Key that matches the same figure of another profile."""
        return self.group, self.name

    def against(self, first: Figure) -> str:
        """Ratio to `first`, or difference of shares; `-` if only one has a value, empty if there is no ratio."""
        if self.value is None or first.value is None:
            return "" if self.value is first.value else UNKNOWN
        if self.basis != first.basis:
            return "not comparable"
        if self.is_share:
            return f"{100 * (self.value - first.value):+.3g} points"
        if first.value == 0:
            return ""
        times = self.value / first.value
        error = times * math.hypot(self.relative_error, first.relative_error)  # the two errors are independent
        return number(times) + (f" ± {error:.2g}" if error else "")


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes text literally: without markup, and spelled in characters that the console can show."""

    console: Console

    def text(self, words: str, style: str = "") -> Text:
        """Text for a table cell, with its indentation."""
        indent = len(words) - len(words.lstrip(" "))
        return Text(words[:indent] + printable(words[indent:], self.console.encoding), style=style)

    def line(self, words: str, style: str = "") -> None:
        """Print a line; a terminal gets line breaks between words."""
        say(self.console, self.text(words, style))
