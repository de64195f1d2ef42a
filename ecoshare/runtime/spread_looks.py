"""Looks at the jobs of a run, again and again, spread over a period: many looks at once would hold up the jobs.

::

    period    ▏▌  ▌  ▌  ▌  ▏▌  ▌  ▌  ▌  ▏        not    ▏████        ▏████        ▏
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")

_AT_ONCE = 4
"""Fewest items that are looked at at once, as far as there are so many."""

_MOST_PARTS = 10
"""Most parts of a period."""


async def spread(items: Callable[[], Collection[Item]], period_s: float) -> AsyncIterator[Item]:
    """Yield each item once in a period, without end.

    Args:
        items: Returns the items of the next period. Some of them may be gone before they are yielded.
        period_s: Time (s) between two looks at an item.
    """
    while True:
        left = list(items())
        parts = min(_MOST_PARTS, max(1, len(left) // _AT_ONCE))
        for part in range(parts):
            await asyncio.sleep(period_s / parts)
            for each in islice(left, part, None, parts):
                yield each
