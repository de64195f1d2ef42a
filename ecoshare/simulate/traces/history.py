"""What past jobs have needed, as some policies learn from it: a text file of GPU-seconds, one number a line."""

from __future__ import annotations

import math
from pathlib import Path

from ecoshare.advisers.delimited import MOST_MISTAKES, lines_of, quoted
from ecoshare.errors import InvalidJobFile, Mistake
from ecoshare.simulate.traces.sheet import number


def read(path: Path) -> tuple[float, ...]:
    """GPU-seconds of each past job; a first line of words is passed over.

    Raises:
        UsageError: The file cannot be read, or is no text.
        InvalidJobFile: Lines that are no numbers of seconds.
    """
    found, mistakes = [], []
    for place, line in enumerate(lines_of(path, "a history has a number of GPU-seconds a line"), 1):
        value = number(line)
        if value >= 0.0:
            found.append(value)
        elif line.strip() and not (place == 1 and math.isnan(value)):
            mistakes.append(Mistake(place, 1, "", f"{quoted(line.strip())} is not a number of seconds"))
    if mistakes:
        raise InvalidJobFile(str(path), mistakes[:MOST_MISTAKES])
    return tuple(found)
