"""Equal time for all jobs."""

from __future__ import annotations

from typing import ClassVar

from ecoshare.core.policies.common import Usual
from ecoshare.core.records import Job, Key


class Fair(Usual):
    """Policy that runs as many jobs at once as fit, with equal shares of the time of their lane.

    This is the FAIR policy of Salus (Yu and Chowdhury, MLSys 2020, section 4). Lanes are kept equally full, so shares
    are as equal between lanes as the number of jobs allows.
    """

    name: ClassVar[str] = "fair"
    preempts: ClassVar[bool] = False
    rotates: ClassVar[bool] = True

    def order(self, job: Job, at_s: float) -> Key:
        """Time held, the least first; a new job has held none. Ties go by arrival."""
        return (job.attained_s(at_s),)

    def rank(self, job: Job) -> float:
        """Zero: all ranks are equal."""
        return 0.0
