"""Protocols of a device and of its knobs, the values that can be set.

::

    knob              read()             write(value)                        restored by
    power_limit       the limit (W)      nvmlDeviceSetPowerManagementLimit   writing what was read before
    gpu_clock         None: NVML tells   nvmlDeviceSetGpuLockedClocks        write(None), which resets
    memory_clock      no locked range    nvmlDeviceSetMemoryLockedClocks     the same
    cpu_frequency     caps (MHz)         scaling_max_freq of each policy     writing what was read before
    cpu_power_limit   limits (W)         constraint_0_power_limit_uw         the same

A reading is a tuple with one value for each place. A GPU has one limit; a machine has several frequency policies and
packages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

UNLOCKED = "unlocked"
"""Special value of a clock that ecoshare does not lock."""

Reading = tuple[float, ...]
"""Values of a knob in its unit, one for each place."""


class Cause(Enum):
    """Cause why a knob was not set."""

    NO_PERMISSION = "no permission"
    NOT_SUPPORTED = "not supported"
    REFUSED = "value refused"
    IGNORED = "value not taken"
    LOST = "device lost"
    UNREACHABLE = "zeusd does not answer"
    CHANGED = "changed by another program"
    LOCKED = "locked by another program"
    UNTOLD = "cannot be told yet"
    FAILED = "failed"


class KnobFault(Exception):
    """A knob was not set. The message says in one line what happened.

    Attributes:
        cause: Kind of failure.
        remedy: Advice for the user; empty if there is none.
    """

    def __init__(self, cause: Cause, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.cause, self.remedy = cause, remedy


@dataclass(frozen=True, slots=True)
class KnobSpec:
    """A knob as a search sees it.

    Attributes:
        name: Name, such as `power_limit`.
        unit: Unit of the values: `W` or `MHz`.
        values: Values that may be set, ascending. None is above the value that was found, since a limit has a reason.
        special: Values that are no number, each with the number that it is most like.
        between: Whether values between those in `values` can be set, too.
    """

    name: str
    unit: str
    values: tuple[float, ...]
    special: dict[str, float] = field(default_factory=dict)
    between: bool = False

    @property
    def default(self) -> float | str:
        """Value with which the knob was found."""
        return next(iter(self.special), self.values[-1])

    @property
    def highest(self) -> float:
        """Largest number, those of special values included."""
        return max((*self.values, *self.special.values()))

    @property
    def choices(self) -> int:
        """Number of values, special ones included."""
        return len(self.values) + len(self.special)

    def takes(self, value: float | str) -> bool:
        """Whether the knob can be set to `value`."""
        if isinstance(value, str):
            return value in self.special
        return value in self.values or (self.between and self.values[0] <= value <= self.values[-1])


@dataclass(frozen=True, slots=True)
class Access:
    """Whether this user may set a device, as far as can be known without setting it.

    Attributes:
        allowed: Whether the user may set it.
        how: Means in words, such as `as root` or `through zeusd`; the reason if the user may not.
        remedy: Advice for the user; empty if there is none.
    """

    allowed: bool
    how: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Clocks:
    """Clocks of a device at one moment. A value that the device does not report is None.

    Attributes:
        throttles: Present causes of lower clocks, in words.
    """

    gpu_mhz: float | None
    memory_mhz: float | None
    throttles: tuple[str, ...]
    temperature_c: float | None = None


class DeviceKnob(Protocol):
    """One value of a device that can be set."""

    @property
    def spec(self) -> KnobSpec:
        """Values that the knob takes."""
        ...

    def read(self) -> Reading | None:
        """Present reading in the unit of the spec; None if no driver reports it.

        Raises:
            KnobFault: The device does not answer.
        """
        ...

    def write(self, values: Reading | None) -> None:
        """Set the knob to one value for each place, or to None, which releases a lock.

        Raises:
            KnobFault: The knob was not set.
        """
        ...


class Knobs(Protocol):
    """All knobs of one device."""

    @property
    def knobs(self) -> tuple[DeviceKnob, ...]:
        """Knobs that the device has."""
        ...

    @property
    def access(self) -> Access:
        """Whether this user may set the knobs."""
        ...

    @property
    def missing(self) -> Mapping[str, str]:
        """Knobs that the device lacks, each with the reason."""
        ...

    def allows(self, setting: Mapping[str, float | str]) -> bool:
        """Whether the device supports this combination of values."""
        ...

    def clocks(self) -> Clocks | None:
        """Present clocks; None if the device does not report them."""
        ...

    def looks_unlocked(self, knob: str) -> bool:
        """Whether a knob that cannot be read was seen unlocked; False if there is merely no sign of a lock.

        Raises:
            KnobFault: The knob looks locked, or it cannot be told.
        """
        ...

    def close(self) -> None:
        """Release the device."""
        ...
