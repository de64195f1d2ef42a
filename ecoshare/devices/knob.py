"""What can be set on a device, behind one protocol.

::

    knob              read()             write(value)                        put back by
    power_limit       the limit (W)      nvmlDeviceSetPowerManagementLimit   writing what was read before
    gpu_clock         None: NVML tells   nvmlDeviceSetGpuLockedClocks        write(None), which resets
    memory_clock      no locked range    nvmlDeviceSetMemoryLockedClocks     the same
    cpu_frequency     caps (MHz)         scaling_max_freq of each policy     writing what was read before
    cpu_power_limit   limits (W)         constraint_0_power_limit_uw         the same

A reading is a tuple: a GPU has one limit, a machine several frequency policies and packages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

UNLOCKED = "unlocked"
"""The special value of a clock that ecoshare does not lock."""

Reading = tuple[float, ...]


class Cause(Enum):
    """Why a knob cannot be set."""

    NO_PERMISSION = "no permission"
    NOT_SUPPORTED = "not supported"
    REFUSED = "value refused"
    IGNORED = "value not taken"
    LOST = "device lost"
    UNREACHABLE = "zeusd does not answer"
    CHANGED = "changed by somebody else"
    LOCKED = "locked by somebody else"
    UNTOLD = "cannot be told yet"
    FAILED = "failed"


class KnobFault(Exception):
    """A knob was not set; one line with what happened, and the remedy where one is known.

    Attributes:
        cause: What kind of trouble.
        remedy: What the user can do; empty where nothing is known.
    """

    def __init__(self, cause: Cause, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.cause, self.remedy = cause, remedy


@dataclass(frozen=True, slots=True)
class KnobSpec:
    """A knob as a search sees it.

    Attributes:
        name: Such as `power_limit`.
        unit: Of its values: `W` or `MHz`.
        values: That may be set, ascending; never above what was found, since whoever set a limit had a reason.
        special: Values that are no number, with the number that each is most like.
        between: Whether values between these can be set, too.
    """

    name: str
    unit: str
    values: tuple[float, ...]
    special: dict[str, float] = field(default_factory=dict)
    between: bool = False

    @property
    def default(self) -> float | str:
        """The value that it was found with."""
        return next(iter(self.special), self.values[-1])

    @property
    def highest(self) -> float:
        """The largest number that it stands for, what it was found with included."""
        return max((*self.values, *self.special.values()))

    @property
    def choices(self) -> int:
        """Values, special ones included."""
        return len(self.values) + len(self.special)

    def takes(self, value: float | str) -> bool:
        """Whether it can be set to this."""
        if isinstance(value, str):
            return value in self.special
        return value in self.values or (self.between and self.values[0] <= value <= self.values[-1])


@dataclass(frozen=True, slots=True)
class Access:
    """Whether this user may set anything on a device, by what can be known without setting it.

    Attributes:
        how: In words: `as root`, `through zeusd`, or why not.
    """

    allowed: bool
    how: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Clocks:
    """What a device's clocks do at one moment; None where it does not say.

    Attributes:
        throttles: What takes clock away now, in words.
    """

    gpu_mhz: float | None
    memory_mhz: float | None
    throttles: tuple[str, ...]
    temperature_c: float | None = None


class DeviceKnob(Protocol):
    """One thing that can be set."""

    @property
    def spec(self) -> KnobSpec:
        """What it takes."""
        ...

    def read(self) -> Reading | None:
        """What is set now, in the unit of the spec; None for what no driver tells.

        Raises:
            KnobFault: The device does not answer.
        """
        ...

    def write(self, values: Reading | None) -> None:
        """Set it: one value for each place, or None to give up a lock.

        Raises:
            KnobFault: It was not set.
        """
        ...


class Knobs(Protocol):
    """All knobs of one device."""

    @property
    def knobs(self) -> tuple[DeviceKnob, ...]:
        """Those that it has."""
        ...

    @property
    def access(self) -> Access:
        """Whether this user may set them."""
        ...

    @property
    def missing(self) -> Mapping[str, str]:
        """Knobs that this device lacks, and why."""
        ...

    def allows(self, setting: Mapping[str, float | str]) -> bool:
        """Whether the values of a setting go together."""
        ...

    def clocks(self) -> Clocks | None:
        """What the clocks do now; None where nothing tells."""
        ...

    def looks_unlocked(self, knob: str) -> bool:
        """Whether a knob that cannot be read was seen unlocked; False where it is only not seen to be locked.

        Raises:
            KnobFault: Somebody seems to have, or it cannot be told.
        """
        ...

    def close(self) -> None:
        """Let go of the device."""
        ...
