"""World of simulated gangs that plays their iterations one by one.

::

    device 0   gang A  ████████          │      ███        an iteration has its device to itself, first come first
               gang B          ████      │██████           served, as `ecoshare.contrib.spb.partial` does it;
    device 1   gang A  ████              │ ████████        the next iteration of a gang begins when its last rank
               gang B      ████████      │         ███     has ended

It knows nothing of how the policy `jigsaw` estimates its sums of busy parts. It shares with it that an iteration is a
forward pass and a backward pass in proportion to the depth of the rank (`ecoshare.contrib.spb.depth`).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from ecoshare.base.job_spec import PARTIAL_CLASS
from ecoshare.base.measurement import Setting
from ecoshare.contrib.spb import depth
from ecoshare.simulation.traces.job_trace import TraceJob
from ecoshare.simulation.world import World

BACKWARD = 2 / 3
"""Part of a full iteration that the backward pass takes: it has about twice the operations of the forward pass."""

JITTER = 0.1
"""Standard deviation of the logarithm of an iteration's time. Without any, equal gangs can stay in step for ever."""

STEPS = 100
"""Iterations of the first gang from which its speed follows."""


@dataclass(frozen=True, order=True)
class PlayedGang:
    """A gang among those that are played.

    Attributes:
        devices: Number of the device of each rank.
        is_partial: Whether its ranks propagate back to different depths.
    """

    devices: tuple[int, ...]
    is_partial: bool


@cache
def steps_per_second(gangs: tuple[PlayedGang, ...], in_turn: bool) -> float:
    """Iterations a second of the first gang beside the others, where one alone takes about a second.

    Args:
        in_turn: Whether an iteration has its device to itself. Otherwise all iterations there share it equally.
    """
    draws = random.Random(0)
    done = [draws.randrange(8) for _ in gangs]  # they do not begin at one depth
    first_s, end = 0.0, done[0] + STEPS
    left: list[dict[tuple[int, int], float]] = [{} for _ in range(1 + max(max(each.devices) for each in gangs))]
    working = [0] * len(gangs)

    def begin(number: int) -> None:
        gang = gangs[number]
        ranks = working[number] = len(gang.devices)
        for rank, device in enumerate(gang.devices):
            part = depth(rank, ranks, done[number]) / ranks if gang.is_partial else 1.0
            time_s = (1.0 - BACKWARD + BACKWARD * part) * draws.lognormvariate(0.0, JITTER)
            left[device][number, rank] = time_s

    for number in range(len(gangs)):
        begin(number)
    while done[0] < end:
        at_work = [(each, [next(iter(each))] if in_turn else list(each)) for each in left if each]
        passed_s = min(each[key] * len(keys) for each, keys in at_work for key in keys)
        first_s += passed_s
        for each, keys in at_work:
            for key in keys:
                each[key] -= passed_s / len(keys)
                if each[key] < 1e-9:
                    del each[key]
                    working[key[0]] -= 1
        for number, count in enumerate(working):
            if not count:
                done[number] += 1
                begin(number)
    return STEPS / first_s


@dataclass(frozen=True, slots=True)
class PlayedWorld(World):
    """World in which the speed of a gang beside others comes from their iterations.

    The neighbours of a gang have all their devices beyond its own to themselves. Their iterations are as long as its.

    Attributes:
        in_turn: Whether an iteration has its device to itself.
    """

    in_turn: bool = True

    def speed(
        self,
        job: TraceJob,
        devices: Sequence[str],
        beside: Sequence[TraceJob],
        setting: Setting = (),
        at_s: float = 0.0,
    ) -> float:
        """Rate of the job beside others / its rate alone, at most 1.

        Args:
            beside: Jobs in other lanes of its devices, once for each device.
        """
        own = PlayedGang(tuple(range(job.gpus)), job.job_class.startswith(PARTIAL_CLASS))
        load, free, others = [1] * job.gpus, job.gpus, []
        kinds = Counter((each.name, each.gpus, each.job_class.startswith(PARTIAL_CLASS)) for each in beside)
        for (_, gpus, is_partial), common in sorted(kinds.items(), key=lambda each: (each[0][1:], each[1])):
            shared = sorted(range(job.gpus), key=lambda device: (load[device], device))[:common]
            for device in shared:
                load[device] += 1
            others.append(PlayedGang((*sorted(shared), *range(free, free + gpus - common)), is_partial))
            free += gpus - common
        if not others:
            return 1.0
        return min(1.0, steps_per_second((own, *others), self.in_turn) / steps_per_second((own,), self.in_turn))
