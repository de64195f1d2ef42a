"""Counts in words. All layers import this module, the core too, so it imports nothing."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str = "") -> str:
    """Count with its noun, such as `1 job`, `3 jobs`, `0 classes`.

    Args:
        count: The count.
        noun: Singular noun, with any words before it.
        plural: Plural noun, if it is not the singular with an `s`.
    """
    return f"{count} {noun if count == 1 else plural or noun + 's'}"
