"""Cells of a trace's file as numbers and names, with one error for all faults, each with line and column."""

from __future__ import annotations

import csv
import math
import re
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from ecoshare.base.plural import counted
from ecoshare.errors import InvalidJobFile, Mistake, UsageError
from ecoshare.knowledge.advisers import delimited
from ecoshare.knowledge.advisers.delimited import MOST_MISTAKES, begin_of, quoted

_MOST = 1e15
"""Largest number in a trace (30 million years, a petabyte). Up to here a float holds whole numbers exactly."""

_NAME = re.compile(r"[A-Za-z0-9._-]+")

Row = tuple[int, list[str]]
"""Line number of a row, from 1, and the cells of the row."""


def lines_of(path: Path) -> list[str]:
    """Lines of a trace's file, with their line ends; at least one is not blank.

    Raises:
        UsageError: The file cannot be read, is not text, or is empty.
    """
    lines = delimited.lines_of(path, "a trace is a text file")
    if not any(map(str.strip, lines)):
        raise UsageError(f"{path} is empty", "a trace has a line for each job")
    return lines


def timestamp_s(text: str) -> float:
    """Date and time, in seconds. Without a time zone it is UTC, since only gaps matter.

    Raises:
        ValueError: The text has no date and time.
    """
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"expected a date and time such as 2017-10-09 07:01:55, got {quoted(text)}") from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


class Sheet:
    """A file with one job on each line. The sheet collects mistakes, and `finish` raises them.

    Attributes:
        file: Name of the file, for messages.
        mistakes: Mistakes so far. Do not use the numbers of a row with a mistake.
    """

    def __init__(self, file: str, lines: Sequence[str], delimiter: str, names: Sequence[str] = ()) -> None:
        """Sheet of the cells of `lines`.

        Args:
            names: Names of the columns; empty if the first line has them.
        """
        self.file = file
        self.mistakes: list[Mistake] = []
        self._lines, self._delimiter, self._names = lines, delimiter, list(names)
        # In files with tabs or bars, quotation marks belong to a command line or a name and have no meaning.
        self._quotes = delimiter == ","
        self._rest = 0
        self._seen: dict[str, int] = {}
        self._records = self._read()
        self._first = 1
        if not names:
            self._first, cells = next(self._records)
            self._names = [cell.strip() for cell in cells]

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return self._names

    def columns(self, needed: Sequence[str], kind: str) -> list[int]:
        """Indices of the columns `needed`.

        Raises:
            InvalidJobFile: A column is missing, or is there twice.
        """
        for name in needed:
            count = self._names.count(name)
            if count != 1:
                what = f"two columns are named {name!r}" if count else f"{kind} has a column {name!r}, this has none"
                self._add(Mistake(self._first, 1, "", what))
        self.finish()
        return [self._names.index(name) for name in needed]

    def rows(self) -> Iterator[Row]:
        """Rows that are not blank and have one cell for each column; other rows become mistakes."""
        width = len(self._names)
        for line, cells in self._records:
            if len(cells) == width:
                yield line, cells
            else:
                self._add(Mistake(line, 1, "", f"expected {counted(width, 'cell')}, got {len(cells)}"))

    def positive(self, row: Row, cell: int) -> float:
        """Number above 0 in a cell; NaN after a mistake."""
        value = number(row[1][cell])
        if value > 0.0:
            return value
        return self._not_a(row, cell, "a positive number")

    def timestamp_s(self, row: Row, cell: int) -> float:
        """Date and time in a cell, in seconds; 0 after a mistake."""
        try:
            return timestamp_s(row[1][cell])
        except ValueError as error:
            self.wrong(row, cell, str(error))
            return 0.0

    def number(self, row: Row, cell: int) -> float:
        """Number of 0 or more in a cell; NaN after a mistake."""
        value = number(row[1][cell])
        if value >= 0.0:
            return value
        return self._not_a(row, cell, "a number of 0 or more")

    def whole(self, row: Row, cell: int, least: int | None = 1) -> int:
        """Whole number in a cell, which may be written as `4.0`; 0 after a mistake."""
        value = number(row[1][cell])
        if value.is_integer() and (value >= least if least is not None else value >= -_MOST):
            return int(value)
        self._not_a(row, cell, "a whole number" if least is None else f"a whole number of {least} or more")
        return 0

    def text(self, row: Row, cell: int) -> str:
        """Text of a cell, without spaces around it. Equal texts share one string object."""
        text = sys.intern(row[1][cell].strip())
        if not text:
            self._not_a(row, cell, "a name")
        return text

    def name(self, row: Row, cell: int) -> str:
        """Name in a cell, which no other row may have."""
        name = row[1][cell].strip()
        if not _NAME.fullmatch(name):
            self._not_a(row, cell, "a name of letters, digits, '.', '_' and '-'")
        elif (first := self._seen.setdefault(name, row[0])) != row[0]:
            self.wrong(row, cell, f"{name!r} is also the name of the job in line {first}")
        return name

    def wrong(self, row: Row, cell: int, what: str) -> None:
        """Add a mistake at a cell."""
        line, _ = row
        _, column = begin_of([self._lines[line - 1]], cell, self._delimiter, self._quotes)
        self._add(Mistake(line, column, self._names[cell], what))

    def finish(self) -> None:
        """Raise the mistakes, if there are any.

        Raises:
            InvalidJobFile: The file has mistakes. The error lists the first ones and the number of the rest.
        """
        if self.mistakes:
            raise InvalidJobFile(self.file, self.mistakes, f"and {self._rest} more" if self._rest else "")

    def _not_a(self, row: Row, cell: int, wanted: str) -> float:
        self.wrong(row, cell, f"expected {wanted}, got {quoted(row[1][cell].strip())}")
        return math.nan

    def _add(self, mistake: Mistake) -> None:
        if len(self.mistakes) < MOST_MISTAKES:
            self.mistakes.append(mistake)
        else:
            self._rest += 1

    def _read(self) -> Iterator[Row]:
        """Rows that are not blank.

        Raises:
            InvalidJobFile: The quotation marks of a row do not match.
        """
        if self._quotes:
            reader = csv.reader(self._lines, delimiter=self._delimiter, strict=True)
        else:
            reader = csv.reader(self._lines, delimiter=self._delimiter, quoting=csv.QUOTE_NONE)
        line = 0
        try:
            for cells in reader:
                line += 1
                if reader.line_num != line:
                    raise InvalidJobFile(self.file, [Mistake(line, 1, "", "a quotation mark is not closed")])
                if any(map(str.strip, cells)):
                    yield line, cells
        except csv.Error as error:
            raise InvalidJobFile(self.file, [Mistake(line + 1, 1, "", f"no CSV: {error}")]) from error


def number(text: str) -> float:
    """Number in the text of a cell; NaN, which fails every comparison, if it holds no valid number."""
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if value <= _MOST and "_" not in text else math.nan
