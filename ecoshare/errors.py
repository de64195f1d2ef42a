"""Errors that ecoshare raises on purpose.

::

    EcoshareError            exit code 1
     ├─ JobFailed            1   a job ended without success
     ├─ UsageError           2   the options of a command are wrong or contradict each other
     ├─ InvalidJobFile       3   a job file or table has mistakes: one `Mistake` a line, with file, line and column
     ├─ UnfitEnvironment     4   the machine lacks a device, a permission or disk space
     │   └─ QueueDown        7   a queue is down, and jobs of it wait for `ecoshare up --resume`
     ├─ LimitNotMet          5   a limit in the job file was broken
     ├─ NotRestored          6   clocks or power could not be restored
     └─ Interrupted          130 the user pressed Ctrl-C

The command line prints the message, then the hint, and exits with the exit code. Any other error that reaches the user
is a defect.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import ClassVar

from ecoshare.base.printable import legible


class EcoshareError(Exception):
    """Error with a message for the user and, if one is known, a remedy.

    Attributes:
        exit_code: Exit code of the process.
        hint: Remedy for the user; empty if none is known.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(legible(message))
        self.hint = legible(hint)


class JobFailed(EcoshareError):
    """At least one job of a run ended without success."""

    exit_code = 1


class UsageError(EcoshareError):
    """The options of a command contradict each other or name something that does not exist."""

    exit_code = 2


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Hint that names the known word closest to a wrong one; empty if none is close."""
    # The comparison takes quadratic time in the length of the word.
    close = get_close_matches(given[:100].lower(), list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else ""


@dataclass(frozen=True, slots=True, order=True)
class Mistake:
    """One mistake in a file, with its place.

    Attributes:
        line: Line, counted from 1.
        column: Column, counted from 1.
        where: Path inside the document, such as `jobs[0].timeout`; empty for the document as a whole.
        what: Description of the mistake.
    """

    line: int
    column: int
    where: str
    what: str

    def describe(self, file: str) -> str:
        """Text `file:line:column: where: what`. Editors can jump to this form."""
        place = f"{file}:{self.line}:{self.column}: "
        return place + (f"{self.where}: {self.what}" if self.where else self.what)


class InvalidJobFile(EcoshareError):
    """A job file or table has mistakes. The message lists all of them, in the order of the file.

    Attributes:
        file: File as the user named it.
        mistakes: Mistakes, at least one.
    """

    exit_code = 3

    def __init__(self, file: str, mistakes: list[Mistake], hint: str = "") -> None:
        self.file = file
        self.mistakes = tuple(sorted(mistakes))
        super().__init__("\n".join(mistake.describe(file) for mistake in self.mistakes), hint)


class UnfitEnvironment(EcoshareError):
    """The machine lacks a device, a permission or disk space that was asked for."""

    exit_code = 4


class QueueDown(UnfitEnvironment):
    """A queue is down, or goes down, and jobs of it wait for `ecoshare up --resume`.

    Attributes:
        jobs: Names of the jobs that were waited for and have not ended.
    """

    exit_code = 7

    def __init__(self, message: str, hint: str = "", jobs: Iterable[str] = ()) -> None:
        super().__init__(message, hint)
        self.jobs = tuple(jobs)


class LimitNotMet(EcoshareError):
    """A limit that the job file sets was broken."""

    exit_code = 5


class NotRestored(EcoshareError):
    """The settings of a device could not be restored."""

    exit_code = 6


class Interrupted(EcoshareError):
    """The user stopped the run."""

    exit_code = 130


def exit_code(status: object) -> int:
    """Exit code that the interpreter makes of the status of a `SystemExit`. An object that is no number is printed."""
    if status is None:
        return 0
    if isinstance(status, int):
        return status & 0xFF if -_C_LONG <= status < _C_LONG else 255
    print(status, file=sys.stderr)
    return 1


_C_LONG = 1 << 63
"""Limit of exit statuses: larger numbers do not fit into the C long to which the interpreter converts them."""
