"""JigSaw: gangs with iterations that differ in length from rank to rank fill each other's idle ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from ecoshare.base.device import Device
from ecoshare.base.job_spec import PARTIAL_CLASS
from ecoshare.core.policies.common import WithOptions
from ecoshare.core.records import Job, Key, Lane

BACKWARD, ACROSS = 2 / 3, 1.7


def busy_share(ranks: int, backward: float) -> float:
    """Part of the time of its gang's iterations for which a rank computes, in the mean over the steps.

    An iteration lasts as long as that of the rank that propagates back through all layers.

    Args:
        ranks: Number of ranks.
        backward: Part of a full iteration that the backward pass takes.
    """
    return 1.0 - backward * (ranks - 1) / (2 * ranks)


class Jigsaw(WithOptions):
    """Policy that gives each job the devices on which the iterations of their jobs leave it the most time.

    ::

        device 0   gang A  ██████████ │ ███████    │      a rank with few layers ends early and waits for the others;
                   gang B  ░░░░░░░          ░░░░░░        in that time the device works for another gang
        device 1   gang A  ███████    │ ██████████ │
                   gang B  ░░░       ░░░░░░░░░░

    The class of gangs that use `ecoshare.contrib.spb` begins with `spb-`, in a trace, too. A rank of them computes for
    a part of each iteration, which follows from the number of ranks; any other job computes all the time. Busy parts of
    the jobs of a device add up. Above 1, the jobs share the time of the device. So a job goes where the sum is the
    least, and a gang where the largest sum of its devices is. Empty devices go first. The jobs begin in the order of
    their arrivals, and one that does not fit is passed by.

    Gangs in different lanes of a device take turns by iterations, so `--lanes 2` or more is needed. With one lane this
    is `fifo` with backfill.

    Source: Kumar et al., "Doing More by Doing Less: How Structured Partial Backpropagation Improves Deep Learning
    Clusters", DistributedML 2021 (arXiv 2111.10672).

    Difference from the paper: theirs schedules each iteration of each rank. Here a job stays where it is, and the ranks
    of a device take it in turn.

    Attributes:
        across: Option `across`: slowness of a gang over several nodes / slowness of the gang in one node (1.7).
    """

    name: ClassVar[str] = "jigsaw"
    places: ClassVar[int | None] = 1
    preempts: ClassVar[bool] = False
    options: ClassVar[tuple[str, ...]] = ("across", "backward")

    def __init__(self, options: Mapping[str, float]) -> None:
        """Policy with the options of a run.

        Args:
            options: `across`: see the class. `backward`: part of a full iteration that the backward pass takes (2/3).
        """
        self.across, self._backward = options.get("across", ACROSS), options.get("backward", BACKWARD)
        self._lanes: dict[str, dict[int, Lane]] = {}  # lanes of each device, by their numbers

    def meet(self, devices: Sequence[Device]) -> None:
        """Nothing to note: all devices count as alike."""

    def order(self, job: Job, at_s: float) -> Key:
        """Order of arrival."""
        return (job.arrival_s,)

    def lane(self, lane: Lane) -> Key:
        """No preference. The lane is noted as one of its device."""
        self._lanes.setdefault(lane.device.name, {})[lane.number] = lane
        return ()

    def slowness(self, job: Job, lane: Lane) -> float:
        """Sum of the busy parts of the job and of the jobs in all lanes of the device, at least 1."""
        names = {each.spec.name: each for at in self._lanes[lane.device.name].values() for each in at.jobs.values()}
        busy = self._busy(job) + sum(self._busy(each) for name, each in names.items() if name != job.spec.name)
        return max(1.0, busy)

    def _busy(self, job: Job) -> float:
        is_partial = job.spec.job_class.startswith(PARTIAL_CLASS)
        return busy_share(job.spec.gpus, self._backward) if is_partial else 1.0
