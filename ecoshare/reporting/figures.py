"""How figures and foreign words are written for people, beyond what `jobs.quantities` has."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from ecoshare.common.printable import spelled
from ecoshare.jobs.quantities import format_energy, number
from ecoshare.reporting.prose import say

UNKNOWN = "-"
_HASH = re.compile(r"-[0-9a-f]{12}$")
_PLAINER = str.maketrans({"±": "+-", "…": "..."})


def printable(text: str, encoding: str = "utf-8") -> str:
    """The text in one line without control characters, spelled so that `encoding` can show all of it.

    Names and notes come from scripts and from other people's files: none may move a cursor or end an XML document.
    """
    spaced = "".join(" " if char.isspace() else char for char in text)
    safe = spelled(spaced)
    if can_show(safe, encoding):
        return safe
    return safe.translate(_PLAINER).encode(encoding, "backslashreplace").decode(encoding)


def can_show(text: str, encoding: str) -> bool:
    """Whether an encoding has all characters of the text."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def share(part: float) -> str:
    """A part of a whole in percent."""
    return f"{number(100 * part)} %"


def short_class(name: str) -> str:
    """The name of a job class without the digits that tell it from others of its script."""
    return _HASH.sub("", name)


def small_energy(energy_j: float) -> str:
    """An energy, also of an iteration so short that it would read as `0 J`."""
    if 0 < abs(energy_j) < 0.9995e-3:
        return f"{energy_j * 1e6:.3g} uJ"
    return format_energy(energy_j)


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of a profile.

    Attributes:
        shown: The figure with its unit; `-` where it is not known.
        value: What can be compared, in any unit; None where nothing can.
        relative_error: Standard error over the value, where it has one.
        remark: What it means, or why it is not known.
        basis: Two figures can be compared where theirs are equal.
        is_share: Compared by difference; else by ratio.
        is_optional: Not worth a line where it is not known.
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
        """The same figure of another profile has the same."""
        return self.group, self.name

    def against(self, first: Figure) -> str:
        """How it relates to the first: a ratio, or the difference of shares; empty where nothing compares."""
        if self.value is None or first.value is None:
            return "" if self.value is first.value else UNKNOWN
        if self.basis != first.basis:
            return "not comparable"
        if self.is_share:
            return f"{100 * (self.value - first.value):+.3g} points"
        if first.value == 0:
            return ""
        times = self.value / first.value
        error = times * math.hypot(self.relative_error, first.relative_error)  # as of independent ones
        return number(times) + (f" ± {error:.2g}" if error else "")


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes text as it is, markup and control characters included, in what the console can show."""

    console: Console

    def text(self, words: str, style: str = "") -> Text:
        """The words with their indentation, for a cell."""
        indent = len(words) - len(words.lstrip(" "))
        return Text(words[:indent] + printable(words[indent:], self.console.encoding), style=style)

    def line(self, words: str, style: str = "") -> None:
        """Print them, in a terminal broken between words."""
        say(self.console, self.text(words, style))
