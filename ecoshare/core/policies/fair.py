"""Equal time for everybody."""

from __future__ import annotations

from typing import ClassVar

from ecoshare.core.policies.common import Usual
from ecoshare.core.records import Job, Key


class Fair(Usual):
    """As many jobs at once as fit, with equal shares of their lane's time.

    The FAIR policy of Salus (Yu and Chowdhury, MLSys 2020, section 4). Lanes are kept equally full, so shares are as
    equal between lanes as jobs can be divided.
    """

    name: ClassVar[str] = "fair"
    preempts: ClassVar[bool] = False

    def order(self, job: Job, at_s: float) -> Key:
        """Least time held first (a new job has held none), then order of arrival."""
        return (job.attained_s(at_s),)

    def rank(self, job: Job) -> float:
        """All equal."""
        return 0.0
