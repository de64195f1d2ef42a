"""PAL: jobs that suffer most from slow devices choose their devices first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

from ecoshare.base.device import Device
from ecoshare.core.policies.common import InRounds, pick
from ecoshare.core.records import Job, Lane

ROUND_S, ACROSS, MOVE_S = 300.0, 1.7, 60.0


class Pal(InRounds):
    """Policy that runs the earliest jobs, in rounds. Among those that start, the most sensitive class chooses first.

    Devices of one model differ in speed, and the difference depends on the job: computing suffers from a slow clock,
    waiting for memory does not. The sensitivity of a class is the speed of its fastest device / its slowest device. A
    job of one GPU gets the fastest device for its class. A gang gets the devices on which it is least slow: the
    slowness of the slowest device, multiplied by `across` if they span several nodes. When a round begins, jobs
    exchange devices if their remaining times together become shorter by more than the moves cost
    (`placement/strategies/round_placement.py`). A running job then stops and starts again.

    Source: Jain et al., "PAL: A Variability-Aware Policy for Scheduling ML Workloads in GPU Clusters", SC 2024. The
    defaults are those of the authors' simulator (hal-uw/blox-pal).

    Differences from the authors' simulator: a job that does not fit is passed by until the next round; theirs cuts the
    queue there. Classes are ordered by their sensitivity; theirs are named by hand. Speeds are used as they are, not by
    clusters of similar devices. Theirs chooses places for all jobs anew in each round, and a move costs nothing there;
    here a running job moves only if that pays, and keeps its place if its remaining time is unknown. So jobs of one GPU
    stay spread over the nodes, and a gang that must not span nodes waits for a whole node.

    Attributes:
        round_s: Option `round`: length of a round (s, 300).
        across: Option `across`: slowness of a gang over several nodes / slowness of the gang in one node (1.7).
        move_s: Option `move`: time (s, 60) that a stop and a start cost. Infinity if `blind`: no job moves then.
    """

    name: ClassVar[str] = "pal"
    options: ClassVar[tuple[str, ...]] = ("across", "blind", "las", "move", "round")

    def __init__(self, options: Mapping[str, float]) -> None:
        """Policy with the options of a run.

        Args:
            options: `round`, `across` and `move`: see the class. `las=1`: the jobs with the least GPU-time run, not the
                earliest. `blind=1`: all devices count as alike.
        """
        self.round_s, self.across = options.get("round", ROUND_S), options.get("across", ACROSS)
        self.move_s = math.inf if options.get("blind", 0.0) else options.get("move", MOVE_S)
        self._las, self._blind = bool(options.get("las", 0.0)), bool(options.get("blind", 0.0))
        self._spread: dict[str, float] = {}
        self._slow: dict[str, dict[str, float]] = {}

    def meet(self, devices: Sequence[Device]) -> None:
        """Note the slowness of each class on each device, and its sensitivity: largest slowness / smallest."""
        for job_class in {"", *(job_class for device in devices for job_class, _ in device.speeds)}:
            slow = {device.name: 1.0 / device.speed(job_class) for device in devices}
            self._slow[job_class], self._spread[job_class] = slow, max(slow.values()) / min(slow.values())

    def slowness(self, job: Job, lane: Lane) -> float:
        """Inverse of the speed of the job's class on the device of the lane; 1 if `blind`."""
        return 1.0 if self._blind else self._slow.get(job.spec.job_class, self._slow[""])[lane.device.name]

    def arrange(self, jobs: Sequence[Job], devices: int, at_s: float) -> list[Job]:
        """Jobs that run in the round that begins, the most sensitive first."""
        if self._las:
            jobs = sorted(jobs, key=lambda job: (job.attained_s(at_s) * job.spec.gpus, job.number))
        chosen = pick(jobs, devices)
        return chosen if self._blind else sorted(chosen, key=self._sensitivity, reverse=True)

    def _sensitivity(self, job: Job) -> float:
        return self._spread.get(job.spec.job_class, self._spread[""])
