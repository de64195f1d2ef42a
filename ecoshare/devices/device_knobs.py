"""Knobs of a claimed device, as a search for its settings sees them: values that can travel to another machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ecoshare.devices.knob import GPU_CLOCK, MEMORY_CLOCK, UNLOCKED, ClocksMhz, KnobSpec


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
