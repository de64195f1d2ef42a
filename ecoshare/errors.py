"""Every error that ecoshare raises on purpose.

::

    EcoshareError            exit code 1
     ├─ JobFailed            1   a job ended without success
     ├─ UsageError           2   the command line asks for what cannot be
     ├─ InvalidJobFile       3   of a job file or a table: one `Mistake` a line, each with file, line and column
     ├─ UnfitEnvironment     4   this machine lacks what was asked for
     ├─ LimitNotMet          5   a limit in the job file was broken
     ├─ NotRestored          6   clocks or power could not be put back
     └─ Interrupted          130 the user pressed Ctrl-C

The command line prints the message, then the hint, and leaves with the exit code. Anything else that reaches
the user is a defect.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import ClassVar

from ecoshare.common.printable import legible


class EcoshareError(Exception):
    """An error with a message for the user and, where one is known, the remedy.

    Attributes:
        exit_code: What `ecoshare` leaves with.
        hint: What the user can do about it; empty where nothing is known.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(legible(message))
        self.hint = legible(hint)


class JobFailed(EcoshareError):
    """At least one job of a run ended without success."""

    exit_code = 1


class UsageError(EcoshareError):
    """The options of a command contradict each other or name what does not exist."""

    exit_code = 2


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """A hint that names the word which is most like a wrong one; empty where none is."""
    # The comparison takes quadratic time in the length of what it is given.
    close = get_close_matches(given[:100].lower(), list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else ""


@dataclass(frozen=True, slots=True, order=True)
class Mistake:
    """One thing that is wrong in a file, with its place.

    Attributes:
        line: Counted from 1.
        column: Counted from 1.
        where: Path inside the document, such as `jobs[0].timeout`; empty for the document as a whole.
        what: What is wrong, in words.
    """

    line: int
    column: int
    where: str
    what: str

    def describe(self, file: str) -> str:
        """`file:line:column: where: what`, the form that editors can jump to."""
        place = f"{file}:{self.line}:{self.column}: "
        return place + (f"{self.where}: {self.what}" if self.where else self.what)


class InvalidJobFile(EcoshareError):
    """A job file with mistakes: all of them, in the order of the file.

    Attributes:
        file: The file as the user named it.
        mistakes: At least one.
    """

    exit_code = 3

    def __init__(self, file: str, mistakes: list[Mistake], hint: str = "") -> None:
        self.file = file
        self.mistakes = tuple(sorted(mistakes))
        super().__init__("\n".join(mistake.describe(file) for mistake in self.mistakes), hint)


class UnfitEnvironment(EcoshareError):
    """The machine lacks what was asked for: a device, a permission, room on the disk."""

    exit_code = 4


class LimitNotMet(EcoshareError):
    """A limit that the job file sets was broken."""

    exit_code = 5


class NotRestored(EcoshareError):
    """A device's settings are not what they were before."""

    exit_code = 6


class Interrupted(EcoshareError):
    """The user stopped the run."""

    exit_code = 130
