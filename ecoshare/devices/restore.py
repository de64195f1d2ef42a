"""Restores a device from its journal. A value that another program has set since then stays, and is reported."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from ecoshare.common.plural import counted
from ecoshare.devices import journal
from ecoshare.devices.journal import Entry, Journal, UntrustedJournal
from ecoshare.devices.knob import Cause, DeviceKnob, KnobFault, Knobs, Reading
from ecoshare.devices.registry import open_knobs
from ecoshare.devices.state_folder import DeviceLock, StateFolder, holder
from ecoshare.errors import EcoshareError

_ROUNDED = 1.0
"""Tolerance (W or MHz): kernels and boards round values, and a process may die before it reads the rounded value."""

_TRIES, _PAUSE_S = 3, 0.05
_TAKE_S, _LOOK_S = 3.0, 0.02


class Foreign(Enum):
    """Treatment of a value that another program has set since."""

    LEAVE = "leave"
    """Report the value and remove the journal: for a run that begins or ends."""
    ASK = "ask"
    """Report the value and keep the journal until the user decides."""
    OVERWRITE = "overwrite"
    """Replace the value by the one from before ecoshare."""


class KnobOutcome(Enum):
    """Result of the attempt to restore a knob."""

    RESTORED = "put back"
    UNTOUCHED = "as it was"
    FOREIGN = "left as another program has set it"
    GONE = "gone with a restart of the machine"
    FAILED = "not put back"


@dataclass(frozen=True, slots=True)
class Restored:
    """One knob of one device after the attempt to restore it.

    Attributes:
        device: Key of the device.
        words: Report for the user: what happened, with values.
    """

    device: str
    knob: str
    outcome: KnobOutcome
    words: str
    remedy: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "outcome": self.outcome.value}


class Busy(Exception):
    """A live process uses the device, and will restore it itself. The message names the process and its user."""


def mend(path: Path, state: StateFolder, wait_s: float = 0.0, foreign: Foreign = Foreign.LEAVE) -> list[Restored]:
    """Restore what a dead run left, and remove its journal if nothing is left to do.

    Args:
        path: Path of the journal.
        state: Folders of journals and locks.
        wait_s: Time (s) to wait for the device's lock, which a process that has just died may still hold.
        foreign: Treatment of values that another program has set since.

    Raises:
        UntrustedJournal: The journal is not ecoshare's, or the device's lock cannot be taken.
        Busy: Another process holds the lock.
    """
    known = journal.read(path)
    if known is None:
        return []
    lock = _take(state.lock(known.device), wait_s)
    try:
        known = journal.read(path)  # the last holder of the lock may have restored the device
        return put_back(known, path, foreign=foreign) if known is not None else []
    finally:
        lock.release()


def put_back(
    known: Journal, path: Path, find: Callable[[], Knobs] | None = None, foreign: Foreign = Foreign.LEAVE
) -> list[Restored]:
    """Restore a device from its journal, as `mend` does, for a caller that holds the device's lock.

    Args:
        known: Content of the journal.
        path: Path of the journal.
        find: Opens the device's knobs, which are closed again; by default those of this machine.
        foreign: Treatment of values that another program has set since.
    """
    try:
        knobs = find() if find is not None else open_knobs(known.vendor, known.device)
    except EcoshareError as error:
        return [_failed(known, name, f"{known.model}: {error}", error.hint) for name in known.knobs]
    try:
        by_name = {knob.spec.name: knob for knob in knobs.knobs}
        done = [_knob(known, name, entry, by_name.get(name), foreign) for name, entry in known.knobs.items()]
    finally:
        knobs.close()
    kept = {KnobOutcome.FAILED, KnobOutcome.FOREIGN} if foreign is Foreign.ASK else {KnobOutcome.FAILED}
    if not any(each.outcome in kept for each in done):
        journal.remove(path)
    return done


def _knob(known: Journal, name: str, entry: Entry, knob: DeviceKnob | None, foreign: Foreign) -> Restored:
    def result(outcome: KnobOutcome, words: str, remedy: str = "") -> Restored:
        return Restored(known.device, name, outcome, f"{known.model}: {name} {words}", remedy)

    if knob is None:
        return result(KnobOutcome.FAILED, "is not offered any more", "see `ecoshare devices`")
    unit, force = knob.spec.unit, foreign is Foreign.OVERWRITE
    try:
        if entry.before is None:
            if known.boot != journal.boot() and not force:
                # A lock ends with the driver. So a lock that exists now is another program's.
                return result(KnobOutcome.GONE, "was locked before the machine was started again")
            _write(knob, None)
            return result(KnobOutcome.RESTORED, "is unlocked")
        now = knob.read()
        if now is not None and len(now) != len(entry.before):
            return result(
                KnobOutcome.FAILED,
                f"has {counted(len(now), 'place')}, and had {len(entry.before)} before: put it back by hand",
            )
        if now is None or same(now, entry.before):
            return result(KnobOutcome.UNTOUCHED, f"is {in_words(entry.before, unit)} as before")
        if not force and not _is_ours(now, entry):
            return result(
                KnobOutcome.FOREIGN,
                f"is {in_words(now, unit)}, which another program has set; before ecoshare it was "
                f"{in_words(entry.before, unit)}",
            )
        _write(knob, entry.before)
        return result(KnobOutcome.RESTORED, f"is {in_words(entry.before, unit)} again")
    except KnobFault as fault:
        return result(KnobOutcome.FAILED, f"was not put back: {fault}", fault.remedy)


def _write(knob: DeviceKnob, values: Reading | None) -> None:
    """Write values and check them, in several tries: a daemon may still carry out a request of a dead process.

    Raises:
        KnobFault: The device refuses the values, or does not show them after the last try.
    """
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_PAUSE_S)
        try:
            knob.write(values)
            time.sleep(_PAUSE_S)
            now = knob.read()
        except KnobFault:
            if attempt == _TRIES - 1:
                raise
            continue
        if values is None:
            # A lock cannot be read, so it is reset twice. The second reset does no harm.
            knob.write(None)
            return
        if now is not None and all(abs(a - b) <= _ROUNDED / 2 for a, b in zip(now, values, strict=True)):
            return
    raise KnobFault(Cause.IGNORED, "the device reports success and shows another value")


def _is_ours(now: Reading, entry: Entry) -> bool:
    """Whether every place has a value that ecoshare found or set there. A run may have died between two places."""
    assert entry.before is not None
    known = [each for each in (entry.before, *entry.ours) if len(each) == len(now)]
    return bool(known) and all(
        any(abs(value - each[place]) <= _ROUNDED for each in known) for place, value in enumerate(now)
    )


def same(one: Reading, other: Reading) -> bool:
    """Whether two readings are equal but for float rounding. A step of 1 MHz counts: it can mean that turbo is off."""
    return len(one) == len(other) and all(math.isclose(a, b, rel_tol=1e-6) for a, b in zip(one, other, strict=True))


def in_words(values: Reading, unit: str) -> str:
    """Values in words, such as `250 W`; a value that several places have appears once."""
    return " and ".join(f"{value:g} {unit}" for value in dict.fromkeys(values))


def _failed(known: Journal, name: str, words: str, remedy: str) -> Restored:
    return Restored(known.device, name, KnobOutcome.FAILED, words, remedy)


def _take(path: Path, wait_s: float) -> DeviceLock:
    until_s = time.monotonic() + wait_s
    while True:
        try:
            return DeviceLock(path)
        except BlockingIOError:
            if time.monotonic() >= until_s:
                raise Busy(holder(path)) from None
            time.sleep(_LOOK_S)
        except OSError as error:  # another user put something else there
            raise UntrustedJournal(f"{path} cannot be locked: {error.strerror}") from error


__all__ = ["Busy", "KnobOutcome", "Restored", "UntrustedJournal", "mend", "put_back"]
