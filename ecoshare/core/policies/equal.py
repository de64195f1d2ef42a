"""Equal shares of the devices, whatever a job needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ecoshare.core.placement.water_filling import poured
from ecoshare.core.policies.fluid import Fluid


class Equal(Fluid):
    """As many devices for one as for the other, or a place beside others where there are more jobs than devices.

    What Ray Tune's `DistributeResources` does with the GPUs of a cluster; to be compared with `fluid`.
    """

    name: ClassVar[str] = "equal"

    def pour(self, needs: Sequence[float], devices: int, share: float, most: Sequence[int]) -> list[float]:
        """Widths as if all needed the same."""
        return poured([1.0] * len(needs), devices, share, most)
