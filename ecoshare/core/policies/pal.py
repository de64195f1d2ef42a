"""PAL: those that suffer most from slow devices choose theirs first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from ecoshare.core.events import Device
from ecoshare.core.placement.rounds import pick
from ecoshare.core.policies.common import InRounds
from ecoshare.core.records import Job, Lane

ROUND_S, ACROSS = 300.0, 1.7


class Pal(InRounds):
    """The earliest run, in rounds; of those that begin, the class whose speed differs most by device chooses first.

    Devices of one model differ, and by kind of job: computing suffers from a slow clock, waiting for memory does not.
    Source: Jain et al., "PAL: A Variability-Aware Policy for Scheduling ML Workloads in GPU Clusters", SC 2024. A job
    of one GPU gets the fastest for its class; a gang those whose slowest device, times `across` where they are of
    several nodes, is least slow. Defaults are those of the authors' simulator (hal-uw/blox-pal).

    Otherwise than there: who does not fit is passed by until the next round, where theirs cuts the queue; classes are
    in the order of fastest over slowest device, where theirs are named by hand; speeds are taken as they are, not by
    clusters of like devices; and those that run keep their places, where theirs chooses anew for all in each round. So
    jobs of one GPU stay spread over the nodes: gangs must be free to span some, or they wait for a whole one.

    Attributes:
        round_s: Option `round`: seconds of a round (300).
        across: Option `across`: by how much a gang over several nodes counts as slower (1.7).
    """

    name: ClassVar[str] = "pal"
    options: ClassVar[tuple[str, ...]] = ("across", "blind", "las", "round")

    def __init__(self, options: Mapping[str, float]) -> None:
        """`las=1`: those that had the least GPU-time run, not the earliest; `blind=1`: all devices count as alike."""
        self.round_s, self.across = options.get("round", ROUND_S), options.get("across", ACROSS)
        self._las, self._blind = bool(options.get("las", 0.0)), bool(options.get("blind", 0.0))
        self._spread: dict[str, float] = {}

    def meet(self, devices: Sequence[Device]) -> None:
        """How sensitive each class is: its fastest device over its slowest."""
        for job_class in {"", *(job_class for device in devices for job_class, _ in device.speeds)}:
            speeds = [device.speed(job_class) for device in devices]
            self._spread[job_class] = max(speeds) / min(speeds)

    def slowness(self, job: Job, lane: Lane) -> float:
        """By the speed of its class on that device."""
        return 1.0 if self._blind else 1.0 / lane.device.speed(job.spec.job_class)

    def arrange(self, jobs: Sequence[Job], devices: int, at_s: float) -> list[Job]:
        """Those that run in the round that begins, the most sensitive first."""
        if self._las:
            jobs = sorted(jobs, key=lambda job: (job.attained_s(at_s) * job.spec.gpus, job.number))
        chosen = pick(jobs, devices)
        return chosen if self._blind else sorted(chosen, key=self._sensitivity, reverse=True)

    def _sensitivity(self, job: Job) -> float:
        return self._spread.get(job.spec.job_class, self._spread[""])
