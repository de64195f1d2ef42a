"""Placement of a gang on devices of unequal speed: in every iteration the gang waits for its slowest device."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import nlargest
from itertools import chain, islice

from ecoshare.core.placement.linked_lanes import LinkedLanes
from ecoshare.core.records import Lane


def together(
    lanes: Iterable[Lane],
    gpus: int,
    nodes: int | None,
    slowness: Callable[[Lane], float],
    linked: LinkedLanes | None = None,
) -> tuple[Lane, ...]:
    """Choose the lanes of a gang so that the slowest of them is as little slow as possible; empty if too few exist.

    The bound on slowness rises lane by lane until the nodes with the most lanes below it have enough. No other choice
    has a lower bound. The fewest nodes are used. Lanes of one node that are linked best win ties, then earlier lanes.

    Args:
        lanes: Lanes to choose from, each on a device of its own.
        gpus: Number of lanes to choose.
        nodes: Most nodes that the lanes may span; None for any number.
        slowness: Time of the gang in a lane / time on a typical device.
        linked: Choice by the links of the devices; None for a choice without it.
    """
    below: dict[str, list[Lane]] = {}
    ordered = sorted(lanes, key=slowness)
    for count, lane in enumerate(ordered, 1):
        below.setdefault(lane.device.node, []).append(lane)
        if count >= gpus:
            fullest = nlargest(nodes or len(below), below.values(), key=len)
            if linked and len(fullest[0]) >= gpus:
                node, bound = fullest[0][0].device.node, slowness(lane)
                able = [each for each in ordered if each.device.node == node and slowness(each) <= bound]
                return linked.nearest(able, gpus)
            if sum(map(len, fullest)) >= gpus:
                return tuple(islice(chain.from_iterable(fullest), gpus))
    return ()


def nearer(
    within: tuple[Lane, ...], over: tuple[Lane, ...], slowness: Callable[[Lane], float], across: float
) -> tuple[Lane, ...]:
    """Lanes in one node, unless those over several nodes are less slow although the gang spans nodes there.

    Args:
        within: Lanes in one node; empty if too few exist.
        over: Lanes over any nodes.
        slowness: Time of the gang in a lane / time on a typical device.
        across: Slowness of a gang over several nodes / slowness in one node.
    """
    return within if within and max(map(slowness, within)) <= across * max(map(slowness, over)) else over
