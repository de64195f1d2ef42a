"""Restores a device from its journal. A value that another program has set since then stays, and is reported.

::

    look at every knob ──► power profile ──► clocks, limits       in the order in which they are set, too:
    is the value ours?     put back first    put back after it    a power profile may move the others

All knobs are looked at before one is written. Else a limit that the profile moves on its way back would pass for
another program's.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ecoshare.base.device import PROCESSORS
from ecoshare.base.plural import counted
from ecoshare.devices.control import journal
from ecoshare.devices.control.journal import Entry, Journal, UntrustedJournal
from ecoshare.devices.control.state_folder import DeviceLock, StateFolder, holder, key
from ecoshare.devices.knob import Cause, DeviceKnob, KnobFault, Knobs, KnobSpec, Reading
from ecoshare.devices.registry import open_knobs, processors
from ecoshare.errors import EcoshareError

T = TypeVar("T")

SETS_WITHIN_S = 20.0
"""Longest time (s) to open, set or restore a device.

It is long: without persistence mode a driver first initialises its GPUs, and a daemon has time limits of its own.
"""


class NoAnswer(Exception):
    """The driver has not answered within the time limit. The call goes on.

    A call that blocks in the driver cannot be ended. It goes on in a daemon thread, which keeps no process from its
    end.
    """


def in_time(call: Callable[[], T], limit_s: float, late: Callable[[T], object] = lambda _result: None) -> T:
    """Result of a call of the driver, made in a daemon thread. An error of the call is raised here.

    Args:
        call: Calls the driver.
        limit_s: Longest time (s) to wait for the result.
        late: Undoes what the call has done, if its result comes after the limit. It is called in the daemon thread.

    Raises:
        NoAnswer: There is no result within the limit.
    """
    results: list[T] = []
    errors: list[BaseException] = []
    over, mutex = threading.Event(), threading.Lock()
    gave_up = False

    def work() -> None:
        try:
            result = call()
        except BaseException as error:
            errors.append(error)
            over.set()
            return
        with mutex:
            is_late = gave_up
            if not is_late:
                results.append(result)
        over.set()
        if is_late:
            late(result)

    threading.Thread(target=work, name="driver call", daemon=True).start()
    try:
        over.wait(limit_s)
    finally:  # after an interrupt, too: nothing takes the result any more
        with mutex:
            gave_up = not results
    if errors:
        raise errors[0]
    if not results:
        raise NoAnswer(f"no answer within {limit_s:g} s")
    return results[0]


_ROUNDED = 1.0
"""Tolerance (W or MHz): kernels and boards round values, and a process may die before it reads the rounded value."""

_TRIES, _PAUSE_S = 3, 0.05
_TAKE_S = 3.0


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
    ELSEWHERE = "of another machine"
    """The device is of a machine that shares the folder of journals, such as the home folder of a user."""
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


_LEFT = (KnobOutcome.UNTOUCHED, KnobOutcome.FOREIGN)
"""Outcomes of knobs that are left as they are found."""


class Busy(Exception):
    """A live process uses the device, and will restore it itself. The message names the process and its user."""


def mend(
    path: Path,
    state: StateFolder,
    wait_s: float = 0.0,
    foreign: Foreign = Foreign.LEAVE,
    of_any_machine: bool = False,
) -> list[Restored]:
    """Restore what a dead run left, and remove its journal if nothing is left to do.

    Args:
        path: Path of the journal.
        state: Folders of journals and locks.
        wait_s: Time (s) to wait for the device's lock, which a process that has just died may still hold.
        foreign: Treatment of values that another program has set since.
        of_any_machine: Whether the journal may be of another machine that shares the folder. Then nothing is done.

    Raises:
        UntrustedJournal: The journal is not ecoshare's, or the device's lock cannot be taken.
        Busy: Another process holds the lock.
    """
    known = journal.read(path)
    if known is None:
        return []
    if of_any_machine and _is_elsewhere(known):
        words = f"{known.model} is not on this machine, but on one that shares {path.parent}"
        return [Restored(known.device, each, KnobOutcome.ELSEWHERE, f"{words}: {each} stays") for each in known.knobs]
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
        looks = [_Look(known, name, entry, by_name.get(name), foreign) for name, entry in known.knobs.items()]
        if any(look.is_first for look in looks):
            with contextlib.suppress(OSError):  # without the note, only a kill in the next moment is not mended
                _with_moves(known, looks).write(path)
        done = [look.put_back() for look in sorted(looks, key=lambda look: not look.is_first)]
    finally:
        knobs.close()
    kept = {KnobOutcome.FAILED, KnobOutcome.FOREIGN} if foreign is Foreign.ASK else {KnobOutcome.FAILED}
    if not any(each.outcome in kept for each in done):
        journal.remove(path)
    return done


def _with_moves(known: Journal, looks: Sequence[_Look]) -> Journal:
    """Journal for the moment in which a power profile is put back, and may move limits to any value."""
    for look in looks:
        if not look.is_first and look.entry.before is not None and look.result.outcome is not KnobOutcome.FOREIGN:
            known = known.noting(look.name, look.entry.before, ())
    return known


class _Look:
    """A knob of the journal as it was found, before any knob was written.

    Attributes:
        name: Name of the knob.
        entry: Entry of the journal.
        result: Outcome, as far as it can be told before a knob is written.
        is_first: Whether the knob is put back before the others.
    """

    def __init__(self, known: Journal, name: str, entry: Entry, knob: DeviceKnob | None, foreign: Foreign) -> None:
        """Read the knob and decide what becomes of it."""
        self._known, self.name, self.entry, self._knob = known, name, entry, knob
        self.is_first = knob is not None and knob.spec.is_categorical
        self._writes, self._left = False, entry.before  # `_look` may change both
        self.result = self._look(foreign)

    def put_back(self) -> Restored:
        """Write the reading from before ecoshare, unless the knob has it or another program has set it."""
        knob, before = self._knob, self.entry.before
        if knob is None:
            return self.result
        try:
            if self._writes:
                _write(knob, before)
            elif not self.is_first and before is not None and self.result.outcome in _LEFT:
                # A power profile that was put back meanwhile may have moved it.
                now, left = knob.read(), self._left
                if now is None or left is None or knob.spec.same(now, left):
                    return self.result
                _write(knob, left)
                if self.result.outcome is KnobOutcome.FOREIGN:
                    return self.result
            else:
                return self.result
        except KnobFault as fault:
            return self._told(KnobOutcome.FAILED, f"was not put back: {fault}", fault.remedy)
        words = "is unlocked" if before is None else f"is {knob.spec.in_words(before)} again"
        return self._told(KnobOutcome.RESTORED, words)

    def _look(self, foreign: Foreign) -> Restored:
        knob, before, force = self._knob, self.entry.before, foreign is Foreign.OVERWRITE
        if knob is None:
            return self._told(KnobOutcome.FAILED, "is not offered any more", "see `ecoshare devices`")
        spec = knob.spec
        if before is None:
            if self._restarted and not force:
                # A lock ends with the driver. So a lock that exists now is another program's.
                return self._told(KnobOutcome.GONE, "was locked before the machine was started again")
            return self._to_write("is unlocked")
        try:
            now = knob.read()
        except KnobFault as fault:
            return self._told(KnobOutcome.FAILED, f"was not put back: {fault}", fault.remedy)
        if now is not None and len(now) != len(before) and not spec.is_categorical:
            return self._told(
                KnobOutcome.FAILED,
                f"has {counted(len(now), 'place')}, and had {len(before)} before: put it back by hand",
            )
        if now is None or spec.same(now, before):
            return self._told(KnobOutcome.UNTOUCHED, f"is {spec.in_words(before)} as before")
        if not force and not _is_ours(spec, now, self.entry):
            if spec.is_categorical and not now and self._restarted:
                # The requests of before ended with the driver, too: they would be gone without ecoshare.
                return self._told(KnobOutcome.GONE, "was requested before the machine was started again")
            self._left = now
            return self._told(
                KnobOutcome.FOREIGN,
                f"is {spec.in_words(now)}, which another program has set; before ecoshare it was "
                f"{spec.in_words(before)}",
            )
        return self._to_write(f"is {spec.in_words(before)} again")

    @property
    def _restarted(self) -> bool:
        return self._known.boot != journal.boot()

    def _to_write(self, words: str) -> Restored:
        self._writes = True
        return self._told(KnobOutcome.RESTORED, words)

    def _told(self, outcome: KnobOutcome, words: str, remedy: str = "") -> Restored:
        known = self._known
        return Restored(known.device, self.name, outcome, f"{known.model}: {self.name} {words}", remedy)


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
        if now is not None and (
            now == values
            if knob.spec.is_categorical
            else all(abs(a - b) <= _ROUNDED / 2 for a, b in zip(now, values, strict=True))
        ):
            return
    raise KnobFault(Cause.IGNORED, "the device reports success and shows another value")


def _is_ours(spec: KnobSpec, now: Reading, entry: Entry) -> bool:
    """Whether every place has a value that ecoshare found or set there. A run may have died between two places.

    If none is noted, the run died while it set a power profile, and any value may be that profile's doing.
    The choices of a categorical knob are added before others are cleared. So two known readings together are one, too.
    """
    assert entry.before is not None
    if not entry.ours:
        return True
    known = [entry.before, *entry.ours]
    if spec.is_categorical:
        return any(set(now) == {*one, *other} for one in known for other in known)
    known = [each for each in known if len(each) == len(now)]
    return bool(known) and all(
        any(abs(value - each[place]) <= _ROUNDED for each in known) for place, value in enumerate(now)
    )


def _is_elsewhere(known: Journal) -> bool:
    """Whether a journal was written by another start of a machine, and its device is not on this one."""
    if known.boot == journal.boot():
        return False
    if known.vendor == PROCESSORS:  # the knobs of any processors are those of this machine
        return known.device != key(processors())
    try:
        open_knobs(known.vendor, known.device).close()
    except EcoshareError:
        return True
    return False


def _failed(known: Journal, name: str, words: str, remedy: str) -> Restored:
    return Restored(known.device, name, KnobOutcome.FAILED, words, remedy)


def _take(path: Path, wait_s: float) -> DeviceLock:
    try:
        return DeviceLock(path, wait_s)
    except BlockingIOError:
        raise Busy(holder(path)) from None
    except OSError as error:  # another user put something else there
        raise UntrustedJournal(f"{path} cannot be locked: {error.strerror}") from error


__all__ = ["Busy", "KnobOutcome", "Restored", "UntrustedJournal", "mend", "put_back"]


_REMEDY = "a driver that hangs needs a reset of the device or a restart of the machine"


class Claimed(Protocol):
    """Devices that this process has claimed.

    ::

        restore ──► daemon thread ──► in time ──► knobs that were put back
                         │
                         └──► no answer ──► knobs of the journal: not put back

    The journal stays for `ecoshare restore`. The thread keeps the device's lock while its process lives. If the driver
    answers after all, the thread completes the restore.
    """

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
        return in_time(partial(mend, path, state, wait_s, foreign, of_any_machine), wait_s + SETS_WITHIN_S)
    except NoAnswer:
        return _left(path)


def restore_in_time(control: Claimed, name: str) -> list[Restored]:
    """Restore claimed devices within the time limit. Knobs of a device without an answer are `FAILED`.

    Args:
        control: The devices. Their journals are in the folder of this user.
        name: Name of the first device for the user; the journals name the others.
    """
    try:
        return in_time(control.restore, SETS_WITHIN_S)
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
