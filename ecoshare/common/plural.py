"""Counts in words. Imported by all layers, the core too, so it uses nothing."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str = "") -> str:
    """The count with its noun, such as `1 job`, `3 jobs`, `0 classes`.

    Args:
        noun: Of one, with any words before it.
        plural: Of several, where an `s` does not make it.
    """
    return f"{count} {noun if count == 1 else plural or noun + 's'}"
