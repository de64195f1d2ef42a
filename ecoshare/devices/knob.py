"""Protocols of a device and of its knobs, the values that can be set.

::

    knob              read()             write(value)                        restored by
    power_limit       the limit (W)      nvmlDeviceSetPowerManagementLimit   writing what was read before
    gpu_clock         None: NVML tells   nvmlDeviceSetGpuLockedClocks        write(None), which resets
    memory_clock      no locked range    nvmlDeviceSetMemoryLockedClocks     the same
    cpu_frequency     caps (MHz)         scaling_max_freq of each policy     writing what was read before
    cpu_power_limit   limits (W)         constraint_0_power_limit_uw         the same
    power_profile     requested profiles nvmlDeviceWorkloadPowerProfile*     requesting what was requested before

A reading is a tuple with one value for each place. A GPU has one limit; a machine has several frequency policies and
packages. The reading of a categorical knob is the set of its choices that are in force, as ascending numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

GPU_CLOCK, MEMORY_CLOCK = "gpu_clock", "memory_clock"

UNLOCKED = "unlocked"
"""Special value of a clock that ecoshare does not lock."""

NOTHING = "none"
"""Special value of a categorical knob with no choice in force."""

_EQUAL = 1e-6
"""Relative difference of readings that float rounding explains."""

ClocksMhz = dict[float, tuple[float, ...]]
"""GPU clocks (MHz) of a device at each of its memory clocks (MHz); empty if all values of its knobs go together."""

Reading = tuple[float, ...]
"""Values of a knob in its unit, one for each place; the numbers of the choices in force for a categorical knob."""


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
        unit: Unit of the values: `W` or `MHz`; empty for a categorical knob.
        values: Values that may be set, ascending. None is above the value that was found, since a limit has a reason.
            Empty for a categorical knob, which has special values only.
        special: Values that are no number, each with the number that it is most like.
        between: Whether values between those in `values` can be set, too.
        named: Reading that each special value of a categorical knob stands for. The first one is what was found.
    """

    name: str
    unit: str
    values: tuple[float, ...]
    special: dict[str, float] = field(default_factory=dict)
    between: bool = False
    named: dict[str, Reading] = field(default_factory=dict)

    @property
    def is_categorical(self) -> bool:
        """Whether the values have names only, without an order."""
        return not self.values

    @property
    def default(self) -> float | str:
        """Value with which the knob was found."""
        return next(iter(self.special)) if self.special else self.values[-1]

    @property
    def lowest(self) -> float | None:
        """Smallest number; None for a categorical knob."""
        return None if self.is_categorical else self.values[0]

    @property
    def highest(self) -> float | None:
        """Largest number, those of special values included; None for a categorical knob."""
        return None if self.is_categorical else max((*self.values, *self.special.values()))

    @property
    def choices(self) -> int:
        """Number of values, special ones included."""
        return len(self.values) + len(self.special)

    def takes(self, value: float | str) -> bool:
        """Whether the knob can be set to `value`."""
        if isinstance(value, str):
            return value in self.special
        if self.is_categorical:
            return False
        return value in self.values or (self.between and self.values[0] <= value <= self.values[-1])

    def same(self, one: Reading, other: Reading) -> bool:
        """Whether two readings are equal but for float rounding; those of a categorical knob must be equal.

        A step of 1 MHz counts: it can mean that turbo is off.
        """
        if self.is_categorical:
            return one == other
        return len(one) == len(other) and all(
            math.isclose(a, b, rel_tol=_EQUAL) for a, b in zip(one, other, strict=True)
        )

    def value(self, reading: Reading) -> float | str | None:
        """Value that a reading shows: the mean over its places, or the name of a choice; None for no places."""
        if self.is_categorical:
            return next((name for name, each in self.named.items() if each == reading), self.in_words(reading))
        return sum(reading) / len(reading) if reading else None

    def in_words(self, reading: Reading) -> str:
        """Reading in words, such as `250 W` or `max_q`; a value that several places have appears once."""
        if not self.is_categorical:
            return " and ".join(f"{value:g} {self.unit}" for value in dict.fromkeys(reading))
        names = {each[0]: name for name, each in self.named.items() if len(each) == 1}
        return " and ".join(names.get(number, f"number {number:g}") for number in reading) or NOTHING


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
        power_profiles: Power profiles that the device enforces, by name. They can be fewer than the requested ones.
    """

    gpu_mhz: float | None
    memory_mhz: float | None
    throttles: tuple[str, ...]
    temperature_c: float | None = None
    power_profiles: tuple[str, ...] | None = None


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
    def knobs(self) -> tuple[DeviceKnob, ...]: ...

    @property
    def access(self) -> Access:
        """Whether this user may set the knobs."""
        ...

    @property
    def missing(self) -> Mapping[str, str]:
        """Knobs that the device lacks, each with the reason."""
        ...

    @property
    def clocks_mhz(self) -> ClocksMhz: ...

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


@dataclass(frozen=True, slots=True)
class DeviceKnobs:
    """Knobs of a claimed device that can still be set.

    Attributes:
        specs: Specs of the knobs.
        clocks_mhz: See `ClocksMhz`.
        with_processors: Whether the joules of the processors beside the device count, too.
        apart: Reason why the frequency of these processors is no knob, in words; empty if it is one, or was not asked
            for.
    """

    specs: tuple[KnobSpec, ...]
    clocks_mhz: ClocksMhz = field(default_factory=dict)
    with_processors: bool = False
    apart: str = ""

    def allows(self, setting: Mapping[str, float | str]) -> bool:
        """Whether the device has the GPU clock of a setting at the memory clock of that setting."""
        clock, memory = setting.get(GPU_CLOCK, UNLOCKED), setting.get(MEMORY_CLOCK, UNLOCKED)
        if clock == UNLOCKED or not self.clocks_mhz:
            return True
        memory_mhz = max(self.clocks_mhz) if memory == UNLOCKED else float(memory)
        return float(clock) in self.clocks_mhz[memory_mhz]
