"""Writes figures and foreign text for the user, in addition to `jobs.quantities`."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ecoshare.base.measurement import class_of, phase_words
from ecoshare.base.plural import listed
from ecoshare.base.printable import spelled
from ecoshare.jobs.quantities import format_duration, format_energy, number

_HEAD = re.compile(r" +\S+(?: \S+)*  +(?=\S)")
"""Head of a line: indented words and a gap, such as `  3.7 s to 3.8 s  `. Later lines are indented past the gap."""

_WORD = re.compile(r"[(+-]?\d[\d.]* (?:%|[munkM]?[JsW]|min|h|d|MHz|[KMGT]?i?B)(?!\w)\S*|\S+")
"""Unit that is never broken: a word, or a number with its unit."""

_MOST_HEAD = 0.4
"""Largest part of the width that a head may take."""


def say(console: Console, words: str | Text, style: str = "") -> None:
    """Print a sentence. A terminal gets line breaks between words only; a word longer than a line stays whole.

    Control characters in a plain string are spelled out, since names come from foreign files.
    """
    text = words if isinstance(words, Text) else Text(spelled(words), style=style)
    for line in broken(text, console.width) if console.is_terminal else [text]:
        console.print(line, soft_wrap=True)


def filled(words: str, console: Console) -> str:
    """The text that `say` prints, without style."""
    if not console.is_terminal:
        return words
    return "\n".join(line.plain for line in broken(Text(words), console.width))


def broken(text: Text, width: int) -> list[Text]:
    """The text in lines of at most `width` cells; if the first line is indented, the others are, too."""
    plain = text.plain
    indent = len(plain) - len(plain.lstrip(" "))
    head = _HEAD.match(plain)
    below = indent + 2 if indent else 0
    if head is not None and head.end() <= _MOST_HEAD * width:
        below = head.end()
    lines: list[Text] = []
    margin, begin, end = 0, 0, 0  # the current line
    for word in _WORD.finditer(plain):
        begins_at, ends_at = (margin + cell_len(plain[begin:place]) for place in word.span())
        if ends_at > width and begins_at > below:
            lines.append(Text(" " * margin).append_text(text[begin:end]))
            margin, begin = below, word.start()
        end = word.end()
    return [*lines, Text(" " * margin).append_text(text[begin:])]


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
    """Name of a job class, or of a class in a packing, without the hash that tells it from others of its script."""
    return _HASH.sub("", class_of(name)) + phase_words(name)


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
