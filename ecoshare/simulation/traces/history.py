"""History for policies that learn from past jobs: a text file of GPU-seconds, one number on a line."""

from __future__ import annotations

import math
from pathlib import Path

from ecoshare.errors import InvalidJobFile, Mistake
from ecoshare.knowledge.advisers.delimited import MOST_MISTAKES, lines_of, quoted
from ecoshare.simulation.traces.sheet import number


def read(path: Path) -> tuple[float, ...]:
    """GPU-seconds of each past job; a first line of words is skipped.

    Raises:
        UsageError: The file cannot be read, or is not text.
        InvalidJobFile: Some lines are not numbers of seconds.
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
