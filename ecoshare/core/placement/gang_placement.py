"""Which devices a gang gets where some are slower than others: it waits for the slowest in every iteration."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import nlargest
from itertools import chain, islice

from ecoshare.core.records import Lane


def together(
    lanes: Iterable[Lane], gpus: int, nodes: int | None, slowness: Callable[[Lane], float]
) -> tuple[Lane, ...]:
    """Those so many lanes, of so few nodes, whose slowest is least slow; empty where there are too few.

    The bound is raised lane by lane, until the nodes with the most lanes below it have enough: no other choice has a
    lower one. Of equal lanes the earlier are taken, and as few nodes as can be.

    Args:
        lanes: To choose from, each on a device of its own.
        nodes: Most nodes of theirs; None for any number.
    """
    below: dict[str, list[Lane]] = {}
    for count, lane in enumerate(sorted(lanes, key=slowness), 1):
        below.setdefault(lane.device.node, []).append(lane)
        if count >= gpus:
            fullest = nlargest(nodes or len(below), below.values(), key=len)
            if sum(map(len, fullest)) >= gpus:
                return tuple(islice(chain.from_iterable(fullest), gpus))
    return ()
