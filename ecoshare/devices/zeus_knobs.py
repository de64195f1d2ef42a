"""Parts that all vendors share where zeus sets or reads: the power limit, the causes of errors, reads that may fail."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ecoshare.base.class_profile import POWER_LIMIT
from ecoshare.devices.knob import Cause, KnobFault, KnobSpec, Reading
from ecoshare.errors import UnfitEnvironment

_LIMITS = 16
"""Number of power limits on offer, evenly spaced."""


def cause_of(error: Exception) -> Cause:
    """Cause that an error of zeus stands for; `FAILED` for an error that says nothing."""
    from zeus.device.gpu import common

    causes: dict[type[Exception], Cause] = {
        common.ZeusGPUNoPermissionError: Cause.NO_PERMISSION,
        common.ZeusGPUNotSupportedError: Cause.NOT_SUPPORTED,
        common.ZeusGPUInvalidArgError: Cause.REFUSED,
        common.ZeusGPULostError: Cause.LOST,
        common.ZeusGPUNotFoundError: Cause.LOST,
    }
    return next((cause for kind, cause in causes.items() if isinstance(error, kind)), Cause.FAILED)


def reported(typed: Callable[[], AbstractContextManager[None]], read: Callable[[], Any]) -> Any:
    """Result of a read; None if the device does not report the value.

    Args:
        typed: Context manager that turns errors of the driver and of zeus into errors of ecoshare.
        read: Reads the value from the driver.
    """
    try:
        with typed():
            return read()
    except (KnobFault, UnfitEnvironment):
        return None


class ZeusPowerLimit:
    """Power limit of a board (W), with one place."""

    def __init__(self, gpu: Any, typed: Callable[[], AbstractContextManager[None]]) -> None:
        """Read the range and the present limit.

        Args:
            gpu: zeus' object for the GPU.
            typed: Context manager that turns errors of the driver and of zeus into `KnobFault`.

        Raises:
            KnobFault: The board has no power limit, or does not answer.
        """
        self._gpu, self._typed = gpu, typed
        with typed():
            lowest_mw, _ = gpu.get_power_management_limit_constraints()
            found_mw = gpu.get_power_management_limit()
        # At the lowest limit there is nothing to choose. The knob still exists, to restore what a dead run left.
        step = (found_mw - lowest_mw) / (_LIMITS - 1)
        # Whole watts, which an administrator would write, too.
        inner = {round((lowest_mw + place * step) / 1000) * 1000 for place in range(_LIMITS - 1)}
        limits_mw = sorted({max(lowest_mw, each) for each in inner if each < found_mw} | {found_mw})
        self.spec = KnobSpec(POWER_LIMIT, "W", tuple(each / 1000 for each in limits_mw), between=True)

    def read(self) -> Reading | None:
        """The limit (W) that is set."""
        with self._typed():
            return (self._gpu.get_power_management_limit() / 1000,)

    def write(self, values: Reading | None) -> None:
        """Set the limit."""
        assert values is not None, "a power limit has a value"
        with self._typed():
            self._gpu.set_power_management_limit(round(values[0] * 1000))
