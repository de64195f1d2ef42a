"""Max-min fairness: the job that gets least gets as much as can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from ecoshare.core.events import Config
from ecoshare.core.policies.shares import OPTIONS, Shares, with_spare
from ecoshare.core.policies.usual import Usual
from ecoshare.core.records import Job, Key


class MaxMin(Usual):
    """Equal GPU-time for all, in rounds.

    Source: Narayanan et al., "Gavel", OSDI 2020, section 4.1 (least attained service as max-min fairness), on devices
    of one kind: level = max min_i g_i x_i, x_i the share of time of a job with g_i GPUs.
    """

    name: ClassVar[str] = "max-min"
    options: ClassVar[tuple[str, ...]] = OPTIONS

    def __init__(self, options: Mapping[str, float]) -> None:
        shares = Shares(options, _allocate)
        self.round_s, self.arrange = shares.round_s, shares.arrange

    @classmethod
    def from_config(cls, config: Config) -> MaxMin:
        """With the options of a run."""
        return cls(dict(config.options))

    def order(self, job: Job, at_s: float) -> Key:
        """As arranged when the round began."""
        return (job.level,)


def _allocate(jobs: Sequence[Job], devices: int, _at_s: float) -> list[float]:
    gpus = [job.spec.gpus for job in jobs]
    level = min(devices / len(jobs), min(gpus))
    return with_spare([min(1.0, level / count) for count in gpus], gpus, devices)
