"""The device that a run may set: claimed at the beginning, put back at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from ecoshare.core.events import Setting
from ecoshare.devices import journal
from ecoshare.devices.device_control import DeviceControl
from ecoshare.devices.discovery import DeviceInfo
from ecoshare.devices.journal import UntrustedJournal
from ecoshare.devices.knob import Cause, Clocks, KnobFault
from ecoshare.devices.knob_survey import key
from ecoshare.devices.restore import Busy, KnobOutcome, Restored, mend
from ecoshare.devices.state_folder import StateFolder, in_use
from ecoshare.errors import NotRestored, UnfitEnvironment

_TOLD_WITHIN_S, _ASK_AGAIN_S = 120.0, 1.0
"""How long jobs may load before their GPU is busy: whether its clocks are locked can be told only then."""


class Settings:
    """Applies settings; a knob that fails is told once, and the run goes on with those that are left."""

    def __init__(self, control: DeviceControl, exact: bool) -> None:
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
        changed = [name for name, value in applied.setting.items() if value != self.control.default.get(name)]
        if not applied.refused or (changed and not self._exact):
            return ""
        return "; ".join(dict.fromkeys(str(fault) for fault in applied.refused.values()))

    async def look(self) -> None:
        """See now, while jobs keep the device busy, whether somebody has locked its clocks."""
        await asyncio.to_thread(self.control.look)

    async def clocks(self) -> Clocks | None:
        """What the device's clocks do now; None for processors."""
        return await asyncio.to_thread(self.control.clocks)

    async def readings(self) -> dict[str, float]:
        """What its knobs are set to, as far as they can be read back."""
        return await asyncio.to_thread(self.control.readings)

    def restore(self) -> None:
        """Put everything back; what cannot be is in `unrestored`."""
        for each in self.control.restore():
            if each.outcome is KnobOutcome.FAILED:
                self.unrestored.append(each)
            elif each.outcome is KnobOutcome.FOREIGN:
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
    control = DeviceControl(key(device), kind, device.model, StateFolder.of_this_user(), assume_unlocked)
    if control.specs and control.access.allowed:
        return Settings(control, exact)
    why = "; ".join(f"{name}: {words}" for name, words in control.missing.items()) or "it offers no knobs"
    if control.specs:
        why = control.access.how
    remedy = control.access.remedy if control.specs else "see `ecoshare devices`"
    control.restore()
    raise UnfitEnvironment(f"nothing can be set on {device.model}: {why}", remedy)


def not_restored(left: Sequence[Restored], besides: str = "") -> NotRestored:
    """What a run could not put back: the most important thing that it has to say."""
    more = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
    remedy = f"{left[0].remedy}; then `ecoshare restore`" if left[0].remedy else "`ecoshare restore`"
    return NotRestored(left[0].words + more + (f"; besides: {besides}" if besides else ""), remedy)


def leftovers(device: DeviceInfo, may_set: bool) -> tuple[list[str], bool]:
    """What stands in the way of a device being as its owner wants it, a line each, and whether it is as it should be.

    Where this run may set it, what a dead run has left is put back; what a live one sets is only told.
    """
    state = StateFolder.of_this_user()
    path = state.journal(key(device))
    try:
        if (user := in_use(state.lock(key(device)))) is not None:
            raise Busy(user)
        if not may_set:
            left = journal.read(path) is not None
            words = f"a run that died has left settings on {device.model}: `ecoshare restore` puts them back"
            return ([words] if left else []), not left
        done = mend(path, state)
    except UntrustedJournal as error:
        return [f"what a run before this one has set on {device.model} is not known: {error}"], False
    except Busy as busy:
        return [f"{device.model} is being set by {busy}: times and joules are those of its settings"], False
    notes = [f"{each.words}: left by a run that died" for each in done if each.outcome is not KnobOutcome.UNTOUCHED]
    return notes, all(each.outcome is not KnobOutcome.FAILED for each in done)
