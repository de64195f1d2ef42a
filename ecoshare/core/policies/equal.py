"""Equal shares of the devices for all jobs, whatever they need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ecoshare.core.policies.fluid import Fluid, poured


class Equal(Fluid):
    """Equal number of devices for every job, or a place on a shared device if there are more jobs than devices.

    Ray Tune's `DistributeResources` divides the GPUs of a cluster like this. The policy is a baseline for `fluid`.
    """

    name: ClassVar[str] = "equal"

    def pour(self, needs: Sequence[float], devices: int, share: float, most: Sequence[int]) -> list[float]:
        """Widths of the jobs, as if all had equal needs."""
        return poured([1.0] * len(needs), devices, share, most)
