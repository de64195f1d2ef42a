"""Reduces quantities over time to as many columns as a chart can show.

Columns lie between `edges` (s), shape (n_columns + 1,). Values of columns have shape (n_columns,).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

COLUMNS = 400
"""Most columns of a curve: details narrower than a pixel cannot be seen."""

Array = NDArray[np.float64]


def edges_of(times_s: Sequence[float]) -> Array:  # (n,) -> (<= COLUMNS + 1,)
    """The distinct times, if they are at most `COLUMNS` + 1; else equal columns over the whole time."""
    if len(times_s) - 1 <= COLUMNS:
        edges = np.unique(np.array(times_s, dtype=float))
        return edges if len(edges) > 1 else np.array([times_s[0], times_s[0] + 1e-3])
    return np.linspace(times_s[0], times_s[-1], COLUMNS + 1)


def spread(spans: list[tuple[float, float]], amounts: list[float], edges: Array) -> Array:  # -> (n_edges - 1,)
    """Amount in each column, if each amount is spread evenly over its span; spans must not overlap."""
    at_s = np.array(spans).ravel()
    total = np.repeat(np.concatenate(([0.0], np.cumsum(amounts))), 2)[1:-1]
    return np.diff(np.interp(edges, at_s, total))


def part_held(turns: Array, edges: Array) -> Array:  # (n_turns, 2), (n_edges,) -> (n_edges - 1,)
    """Part of each column that the turns take, 0 to 1, rounded to 0.01."""
    if not len(turns):
        return np.zeros(len(edges) - 1)
    spans = [(float(from_s), float(to_s)) for from_s, to_s in turns]
    parts = spread(spans, [to_s - from_s for from_s, to_s in spans], edges) / np.diff(edges)
    return np.round(parts, 2)  # finer steps cannot be seen, and equal neighbours make the file smaller


def means(values: list[tuple[float, float | None]], edges: Array) -> tuple[Array, Array]:
    """Times (s) and means of columns; NaN, a gap in the line, if no value is known. Few values are kept as they are."""
    if len(values) <= len(edges):
        return np.array([at_s for at_s, _ in values]), np.array([math.nan if v is None else v for _, v in values])
    known = [(at_s, value) for at_s, value in values if value is not None]
    at_s, value = np.array(known, dtype=float).T
    count, _ = np.histogram(at_s, edges)
    total, _ = np.histogram(at_s, edges, weights=value)
    return (edges[1:] + edges[:-1]) / 2, np.where(count, total / np.maximum(count, 1), np.nan)


def steps(edges: Array, *values: Array) -> list[Array]:
    """x, then one y for each of `values`: corners of staircases, without edges at which no value changes."""
    stacked = np.array(values)
    changes = np.flatnonzero(np.concatenate(([True], (stacked[:, 1:] != stacked[:, :-1]).any(axis=0))))
    x = np.repeat(np.append(edges[:-1][changes], edges[-1]), 2)[1:-1]
    return [x, *np.repeat(stacked[:, changes], 2, axis=1)]


def stretches(mask: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """First and last edge of each stretch of columns in which the mask is true."""
    padded = np.concatenate(([False], mask, [False])).astype(int)
    return list(zip(np.flatnonzero(np.diff(padded) == 1), np.flatnonzero(np.diff(padded) == -1), strict=True))
