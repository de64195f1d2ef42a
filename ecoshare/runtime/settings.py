"""The device that a run may set: claimed at the beginning, put back at the end."""

from __future__ import annotations

import asyncio
import time

from ecoshare.core.events import Setting
from ecoshare.errors import UnfitEnvironment
from ecoshare.hardware.control import Control
from ecoshare.hardware.devices import DeviceInfo
from ecoshare.hardware.knob import Cause, Clocks, KnobFault
from ecoshare.hardware.restore import Outcome, Restored
from ecoshare.hardware.state import StateFolder
from ecoshare.hardware.survey import key

_TOLD_WITHIN_S, _ASK_AGAIN_S = 120.0, 1.0
"""How long jobs may load before their GPU is busy: whether its clocks are locked can be told only then."""


class Settings:
    """Applies settings; a knob that fails is told once, and the run goes on with those that are left."""

    def __init__(self, control: Control, exact: bool) -> None:
        """Of a device that was claimed.

        Args:
            exact: Whether a setting of which one knob is refused is refused as a whole: a trial must be what it says.
        """
        self.control, self._exact = control, exact
        self.notes: list[str] = list(control.notes)
        self.unrestored: list[Restored] = []

    async def apply(self, setting: Setting) -> str:
        """Set every knob; those that are not named go back to what they were found with. Why not, or nothing.

        Raises:
            UnfitEnvironment: The journal cannot be written.
        """
        end_s = time.monotonic() + _TOLD_WITHIN_S
        while True:
            wanted = {**self.control.default, **dict(setting)}
            applied = await asyncio.to_thread(self.control.apply, wanted)
            untold = any(fault.cause is Cause.UNTOLD for fault in applied.refused.values())
            if not untold or time.monotonic() > end_s:
                break
            await asyncio.sleep(_ASK_AGAIN_S)
        for fault in applied.refused.values():
            self._tell(fault)
        if not applied.refused or not (self._exact or not applied.setting):
            return ""
        return "; ".join(str(fault) for fault in applied.refused.values())

    async def clocks(self) -> Clocks | None:
        """What the device's clocks do now; None for processors."""
        return await asyncio.to_thread(self.control.clocks)

    async def readings(self) -> dict[str, float]:
        """What its knobs are set to, as far as they can be read back."""
        return await asyncio.to_thread(self.control.readings)

    def restore(self) -> None:
        """Put everything back; what cannot be is in `unrestored`."""
        for each in self.control.restore():
            if each.outcome is Outcome.FAILED:
                self.unrestored.append(each)
            elif each.outcome is Outcome.FOREIGN:
                self.notes.append(each.words)

    def _tell(self, fault: KnobFault) -> None:
        words = f"{self.control.model}: {fault}" + (f" ({fault.remedy})" if fault.remedy else "")
        if words not in self.notes:
            self.notes.append(words)


def claim(device: DeviceInfo, exact: bool, assume_unlocked: bool = False) -> Settings:
    """Claim a device for a run, and put back what a dead one has left there.

    Raises:
        UnfitEnvironment: Somebody else has it, this user may set nothing, or there is nothing to set.
    """
    kind = "cpu" if device.kind == "cpu" else "gpu"
    control = Control(key(device), kind, device.model, StateFolder.of_this_user(), assume_unlocked)
    if control.specs and control.access.allowed:
        return Settings(control, exact)
    why = "; ".join(f"{name}: {words}" for name, words in control.missing.items()) or "it offers no knobs"
    if control.specs:
        why = control.access.how
    remedy = control.access.remedy if control.specs else "see `ecoshare devices`"
    control.restore()
    raise UnfitEnvironment(f"nothing can be set on {device.model}: {why}", remedy)
