"""Restores devices within a time limit: a driver that never returns costs its own device, and no other one.

::

    restore ──► daemon thread ──► in time ──► knobs that were put back
                     │
                     └──► no answer ──► knobs of the journal: not put back

The journal stays for `ecoshare restore`. The thread keeps the device's lock while its process lives. If the driver
answers after all, the thread completes the restore.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Protocol

from ecoshare.devices import driver_answers, journal
from ecoshare.devices.driver_answers import NoAnswer, in_time
from ecoshare.devices.journal import UntrustedJournal
from ecoshare.devices.restore import Foreign, KnobOutcome, Restored, mend
from ecoshare.devices.state_folder import StateFolder

_REMEDY = "a driver that hangs needs a reset of the device or a restart of the machine"


class Claimed(Protocol):
    """Devices that this process has claimed."""

    @property
    def claimed(self) -> tuple[tuple[str, str], ...]:
        """Vendor and key of each device."""
        ...

    def restore(self) -> list[Restored]:
        """Restore all knobs and give the devices back."""
        ...


def mend_in_time(
    path: Path,
    state: StateFolder,
    wait_s: float = 0.0,
    foreign: Foreign = Foreign.LEAVE,
    of_any_machine: bool = False,
) -> list[Restored]:
    """Same as `mend`, within the time limit. Knobs of a device without an answer are `FAILED`.

    Raises:
        UntrustedJournal: See `mend`.
        Busy: See `mend`.
    """
    try:
        return in_time(
            partial(mend, path, state, wait_s, foreign, of_any_machine), wait_s + driver_answers.SETS_WITHIN_S
        )
    except NoAnswer:
        return _left(path)


def restore_in_time(control: Claimed, name: str) -> list[Restored]:
    """Restore claimed devices within the time limit. Knobs of a device without an answer are `FAILED`.

    Args:
        control: The devices. Their journals are in the folder of this user.
        name: Name of the first device for the user; the journals name the others.
    """
    try:
        return in_time(control.restore, driver_answers.SETS_WITHIN_S)
    except NoAnswer:
        state = StateFolder.of_this_user()
        names = (name, *("" for _ in control.claimed[1:]))
        left = []
        for (_, device), shown in zip(control.claimed, names, strict=True):
            try:
                left += _left(state.journal(device), shown)
            except UntrustedJournal as error:
                words = f"the driver of {shown or device} does not answer, and what was set is not known: {error}"
                left.append(Restored(device, "settings", KnobOutcome.FAILED, words, _REMEDY))
        return left


def _left(path: Path, name: str = "") -> list[Restored]:
    """Knobs that the journal still has."""
    known = journal.read(path)
    if known is None:
        return []
    words = f"the driver of {name or known.model} does not answer"
    return [
        Restored(
            known.device, knob, KnobOutcome.FAILED, f"{words}: {knob} may still be as ecoshare has set it", _REMEDY
        )
        for knob in known.knobs
    ]
