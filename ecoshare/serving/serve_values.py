"""Checks the values that a program gives to `ecoshare.serve`. Each mistake is one clear line."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any


def checked_batch(batch: int | Iterable[int]) -> tuple[int, ...]:
    """Batch sizes in ascending order.

    Raises:
        TypeError: It is neither a whole number nor several of them.
        ValueError: A size is below 1 or given twice, or there is none.
    """
    if isinstance(batch, str | bytes) or not isinstance(batch, int | Iterable):
        raise TypeError(f"batch: expected whole numbers such as (1, 2, 4, 8), got {batch!r}")
    sizes = [_count(size, "batch") for size in ([batch] if isinstance(batch, int) else batch)]
    if not sizes:
        raise ValueError("batch: expected at least one size, got none")
    if len(set(sizes)) < len(sizes):
        raise ValueError(f"batch: expected each size once, got {tuple(sizes)}")
    return tuple(sorted(sizes))


def checked_queue(queue: int) -> int:
    """Most requests that wait.

    Raises:
        TypeError: It is no whole number.
        ValueError: It is below 1.
    """
    return _count(queue, "queue")


def checked_target_s(p99: str | float | None) -> float:
    """Target in seconds; infinity for none.

    Raises:
        TypeError: It is neither a number nor text.
        ValueError: It is not above 0, or the text is no duration.
    """
    if p99 is None:
        return math.inf
    if isinstance(p99, str):
        from ecoshare.jobs.quantities import parse_duration_s

        try:
            target_s = parse_duration_s(p99)
        except ValueError as error:
            raise ValueError(f"p99: {error}") from None
        return _above_zero(target_s, "p99", p99)
    return _above_zero(p99, "p99", p99)


def checked_within_s(within_s: float) -> float:
    """Time (s) in which one request is due.

    Raises:
        TypeError: It is no number.
        ValueError: It is not above 0.
    """
    return _above_zero(within_s, "within_s", within_s)


def _above_zero(value_s: float, name: str, given: object) -> float:
    if isinstance(value_s, bool) or not isinstance(value_s, int | float):
        raise TypeError(f"{name}: expected a number of seconds, got {given!r}")
    if not 0.0 < value_s < math.inf:
        raise ValueError(f"{name}: expected a time above 0, got {given!r}")
    return float(value_s)


def _count(value: Any, name: str) -> int:
    """Whole number of at least 1, also of numpy."""
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise TypeError(f"{name}: expected a whole number, got {value!r}")
    if (count := operator.index(value)) < 1:
        raise ValueError(f"{name}: expected a whole number of at least 1, got {count}")
    return count
