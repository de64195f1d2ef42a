"""Looks at many jobs are spread over their period, and each job is looked at once in it."""

from __future__ import annotations

import asyncio
from collections import Counter
from unittest import mock

import pytest

from ecoshare.runtime.nodes.job_looks import spread


@pytest.mark.parametrize(("count", "at_once"), [(0, 0), (1, 1), (3, 3), (42, 5), (400, 40)])
def test_each_item_comes_once_in_a_period_and_few_come_at_once(count: int, at_once: int) -> None:
    slept_s, seen = [0.0], list[tuple[float, int]]()

    async def sleep(seconds: float) -> None:
        slept_s[0] += seconds
        if slept_s[0] > 3.05:
            raise asyncio.CancelledError

    async def look() -> None:
        async for each in spread(lambda: range(count), 1.0):
            seen.append((slept_s[0], each))

    with mock.patch("asyncio.sleep", sleep), pytest.raises(asyncio.CancelledError):
        asyncio.run(look())
    assert Counter(each for _, each in seen) == dict.fromkeys(range(count), 3)
    assert max(Counter(at_s for at_s, _ in seen).values(), default=0) == at_once


def test_items_that_come_are_looked_at_in_the_next_period() -> None:
    items = ["a"]

    async def look() -> list[str]:
        seen = list[str]()
        async for each in spread(lambda: items, 0.001):
            seen.append(each)
            items[:] = ["a", "b"]
            if len(seen) == 5:
                break
        return seen

    assert asyncio.run(look()) == ["a", "a", "b", "a", "b"]
