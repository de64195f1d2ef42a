"""Puts a device back as a journal says; what somebody else has changed since then is left and told."""

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
from ecoshare.devices.cpu_knobs import CpuKnobs
from ecoshare.devices.journal import Entry, Journal, UntrustedJournal
from ecoshare.devices.knob import Cause, DeviceKnob, KnobFault, Knobs, Reading
from ecoshare.devices.nvidia_knobs import GpuKnobs
from ecoshare.devices.state_folder import DeviceLock, StateFolder, holder
from ecoshare.errors import EcoshareError

_ROUNDED = 1.0
"""A watt or a megahertz: kernels and boards round what they are given, and a death may come before we have seen how."""

_TRIES, _PAUSE_S = 3, 0.05
_TAKE_S, _LOOK_S = 3.0, 0.02


class Foreign(Enum):
    """What is done with a value that somebody else has set since."""

    LEAVE = "leave"
    """It is told, and no journal remembers ours: a run that ends, or begins."""
    ASK = "ask"
    """It is told, and the journal stays, until the user decides."""
    OVERWRITE = "overwrite"


class KnobOutcome(Enum):
    """What became of a knob."""

    RESTORED = "put back"
    UNTOUCHED = "as it was"
    FOREIGN = "left as somebody else has set it"
    GONE = "gone with a restart of the machine"
    FAILED = "not put back"


@dataclass(frozen=True, slots=True)
class Restored:
    """One knob of one device after the attempt.

    Attributes:
        words: For the user; what happened, with values.
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
    """The device is in use by a live process, which will put it back itself; the words say by whose."""


def mend(path: Path, state: StateFolder, wait_s: float = 0.0, foreign: Foreign = Foreign.LEAVE) -> list[Restored]:
    """Put back what a dead run has left, and remove its journal once nothing is left to do.

    Args:
        wait_s: How long to wait for the device's lock, which a process that has just died may still hold.

    Raises:
        UntrustedJournal: The journal, or the device's lock, is not one of ours.
        Busy: Somebody else holds the device.
    """
    known = journal.read(path)
    if known is None:
        return []
    lock = _take(state.lock(known.device), wait_s)
    try:
        known = journal.read(path)  # whoever held the lock may have done it
        return put_back(known, path, foreign=foreign) if known is not None else []
    finally:
        lock.release()


def put_back(
    known: Journal, path: Path, find: Callable[[], Knobs] | None = None, foreign: Foreign = Foreign.LEAVE
) -> list[Restored]:
    """The same for whoever holds the device's lock.

    Args:
        find: Opens the device's knobs, which are closed again; by default those of this machine.
    """
    try:
        knobs = find() if find is not None else open_knobs(known.kind, known.device)
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


def open_knobs(kind: str, device: str) -> Knobs:
    """The knobs of a device of a journal.

    Raises:
        UnfitEnvironment: It is not there.
    """
    return CpuKnobs() if kind == "cpu" else GpuKnobs(device)


def _knob(known: Journal, name: str, entry: Entry, knob: DeviceKnob | None, foreign: Foreign) -> Restored:
    def result(outcome: KnobOutcome, words: str, remedy: str = "") -> Restored:
        return Restored(known.device, name, outcome, f"{known.model}: {name} {words}", remedy)

    if knob is None:
        return result(KnobOutcome.FAILED, "is not offered any more", "see `ecoshare devices`")
    unit, force = knob.spec.unit, foreign is Foreign.OVERWRITE
    try:
        if entry.before is None:
            if known.boot != journal.boot() and not force:
                # Locks end with the driver. Whatever is locked now was locked by somebody else.
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
                f"is {in_words(now, unit)}, which somebody else has set; before ecoshare it was "
                f"{in_words(entry.before, unit)}",
            )
        _write(knob, entry.before)
        return result(KnobOutcome.RESTORED, f"is {in_words(entry.before, unit)} again")
    except KnobFault as fault:
        return result(KnobOutcome.FAILED, f"was not put back: {fault}", fault.remedy)


def _write(knob: DeviceKnob, values: Reading | None) -> None:
    """Write and look twice: what a daemon still had to do for a dead process may come after ours.

    Raises:
        KnobFault: It is not there after several tries.
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
            # There is nothing to read; a reset that is repeated harms nobody.
            knob.write(None)
            return
        if now is not None and all(abs(a - b) <= _ROUNDED / 2 for a, b in zip(now, values, strict=True)):
            return
    raise KnobFault(Cause.IGNORED, "the device reports success and shows another value")


def _is_ours(now: Reading, entry: Entry) -> bool:
    """Whether every place has a value that we found or set there: a death may have come between two places."""
    assert entry.before is not None
    known = [each for each in (entry.before, *entry.ours) if len(each) == len(now)]
    return bool(known) and all(
        any(abs(value - each[place]) <= _ROUNDED for each in known) for place, value in enumerate(now)
    )


def same(one: Reading, other: Reading) -> bool:
    """Whether two readings are of one setting: a step of 1 MHz can be a turbo that is off."""
    return len(one) == len(other) and all(math.isclose(a, b, rel_tol=1e-6) for a, b in zip(one, other, strict=True))


def in_words(values: Reading, unit: str) -> str:
    """`250 W`; of several places each value once."""
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
        except OSError as error:  # another user has put something else there
            raise UntrustedJournal(f"{path} cannot be locked: {error.strerror}") from error


__all__ = ["Busy", "KnobOutcome", "Restored", "UntrustedJournal", "mend", "put_back"]
