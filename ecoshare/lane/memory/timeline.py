"""Memory of one iteration over time: turns allocations and frees into a line of a few hundred points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Point = tuple[float, int]
"""Seconds since the iteration began, and the bytes alive from then on."""


def levels(start_bytes: int, changes: Iterable[tuple[float, int]]) -> list[Point]:
    """Bytes alive at the beginning and after each change.

    Args:
        start_bytes: Bytes alive when the iteration began.
        changes: (seconds since then, bytes allocated (positive) or freed (negative)), in order.
    """
    points = [(0.0, start_bytes)]
    level_bytes = start_bytes
    for at_s, change_bytes in changes:
        level_bytes += change_bytes
        points.append((at_s, level_bytes))
    return points


def reduce(points: Sequence[Point], most: int) -> list[Point]:
    """At most `most` of `points`: the first, the last, and turning points, with the exact peak.

    Swings below a tolerance are left out; the tolerance grows until the rest fits. So each kept local maximum is exact.
    A maximum that is left out stands out from its surroundings by less than any that is kept.
    """
    if len(points) <= most:
        return list(points)
    heights = [level_bytes for _, level_bytes in points]
    tolerance_bytes = max(1.0, (max(heights) - min(heights)) / 1000)
    while len(kept := _turning(points, tolerance_bytes)) > most:
        tolerance_bytes *= 1.5
    return kept


def _turning(points: Sequence[Point], tolerance_bytes: float) -> list[Point]:
    """First point, last point, and the extremes between swings of at least `tolerance_bytes`."""
    kept = [points[0]]
    high = low = points[0]  # since the last extreme that was kept
    rising: bool | None = None
    for point in points[1:]:
        if point[1] > high[1]:
            high = point
        if point[1] < low[1]:
            low = point
        if rising is not False and high[1] - point[1] >= tolerance_bytes:
            kept.append(high)
            rising, low = False, point
        elif rising is not True and point[1] - low[1] >= tolerance_bytes:
            kept.append(low)
            rising, high = True, point
    # The last swing has not turned yet: its extreme may be the peak.
    tail = low if rising is False else high
    for point in (tail, points[-1]):
        if point[0] >= kept[-1][0] and point != kept[-1]:
            kept.append(point)
    return kept
