"""Counts and lists in words. All layers import this module, the core too, so it imports nothing."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, noun: str, plural: str = "") -> str:
    """Count with its noun, such as `1 job`, `3 jobs`, `0 classes`.

    Args:
        count: The count.
        noun: Singular noun, with any words before it.
        plural: Plural noun, if it is not the singular with an `s`.
    """
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def listed(names: Sequence[str], most: int = 3) -> str:
    """Names in a row, such as `a, b, c and 4 more`.

    Args:
        names: The names.
        most: Most names that are spelled out.
    """
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
