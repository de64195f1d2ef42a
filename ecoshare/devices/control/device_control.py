"""Sets the knobs of one device for one run, and restores them.

::

    claim ──► lock the device, restore what a dead run left
    apply ──► for each knob that changes:  journal ──► set ──► read back
              back to no profile, rising limits │ power profile │ clocks, falling limits
    restore ► set the original values ──► no journal, no lock

A power profile may move clocks and limits, so it is set before them: what the setting says of them then holds. It may
also hide the full clock, so clocks are checked for locks before it is set.

A knob that cannot be set is dropped and reported in one line; the other knobs stay in use. If this process is killed,
the guard reads the journal and does what `restore` does.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial

from ecoshare.devices.control import journal
from ecoshare.devices.control import restore as restoring
from ecoshare.devices.control.journal import Journal, UntrustedJournal
from ecoshare.devices.control.restore import KnobOutcome, Restored
from ecoshare.devices.control.state_folder import STATE_HINT, DeviceLock, StateFolder, holder
from ecoshare.devices.knob import Access, Cause, Clocks, ClocksMhz, DeviceKnob, KnobFault, Knobs, KnobSpec, Reading
from ecoshare.devices.registry import open_knobs
from ecoshare.errors import UnfitEnvironment

Value = float | str
Setting = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Applied:
    """Result of applying a setting.

    Attributes:
        setting: Values that are set now, by knob.
        refused: Knobs that did not take their value, each with the reason.
    """

    setting: dict[str, Value]
    refused: dict[str, KnobFault] = field(default_factory=dict)


class _Turn(IntEnum):
    """Order in which the knobs of a setting are set."""

    NO_PROFILE = 0
    """Back to the profile that was found: it gives clocks and limits their room."""
    RISING_LIMIT = 1
    """So that full clocks can be seen."""
    PROFILE = 2
    CLOCK = 3
    FALLING_LIMIT = 4


_NOTHING_SET = (Cause.NO_PERMISSION, Cause.NOT_SUPPORTED, Cause.REFUSED)
"""Causes for which the device has changed nothing. After any other cause it may have."""


@dataclass(slots=True)
class _Held:
    """A knob that this run may set.

    Attributes:
        before: Reading when the device was claimed; None for a clock, since no driver reports its lock.
        now: Reading that ecoshare set; None if the knob is as it was found.
    """

    knob: DeviceKnob
    before: Reading | None
    now: Reading | None = None

    @property
    def in_force(self) -> Reading | None:
        """Reading that the device should show; None for a clock that ecoshare has not locked."""
        return self.now if self.now is not None else self.before


class DeviceControl:
    """One device, claimed for this run."""

    def __init__(
        self,
        device: str,
        vendor: str,
        model: str,
        state: StateFolder,
        assume_unlocked: bool = False,
        find: Callable[[], Knobs] | None = None,
        only: Collection[str] | None = None,
        keeps: bool = False,
    ) -> None:
        """Claim a device and restore what a dead run left. Nothing else is set.

        Args:
            device: Key of the device, such as a GPU's UUID.
            vendor: Name of the vendor, as in the registry.
            model: Name of the device for messages and the journal.
            state: Folders of journals and locks.
            assume_unlocked: Whether to lock clocks without a check for locks of other programs.
            find: Opens the device's knobs; by default those of this machine. It is called again after a dead run's
                values are restored, so that none of them passes for an original value.
            only: Names of the knobs that may be set; None for all knobs of the device.
            keeps: Whether a knob that is dropped keeps its last value until `restore`, as a power budget needs.

        Raises:
            UnfitEnvironment: The device is not there, another process holds it, or a dead run's values cannot be
                restored.
        """
        self._find = find or partial(open_knobs, vendor, device)
        self.vendor, self.device, self.model = vendor, device, model
        self.notes: list[str] = []
        self.dropped: dict[str, KnobFault] = {}
        self._keeps = keeps
        self._assume_unlocked, self._seen_unlocked = assume_unlocked, set[str]()
        self._path = state.journal(device)
        self._lock = _claim(state, device, model)
        self._mutex = threading.Lock()  # a setting that is being applied is finished before a restore
        self._journal: Journal | None = None
        self._closed = False
        self._new = Journal.new(device, vendor, model)
        try:
            self._mend()
            self._knobs = self._find()
        except BaseException:
            self._lock.release()
            raise
        try:
            offered = [knob for knob in self._knobs.knobs if only is None or knob.spec.name in only]
            choices = [knob for knob in offered if knob.spec.choices > 1]
            self._held = {knob.spec.name: _Held(knob, knob.read()) for knob in choices}
        except KnobFault as fault:
            self._release()
            raise UnfitEnvironment(f"{model}: {fault}", fault.remedy) from fault

    @property
    def claimed(self) -> tuple[tuple[str, str], ...]:
        """Vendor and key of each claimed device, for the guard."""
        return ((self.vendor, self.device),)

    @property
    def access(self) -> Access:
        """Whether this user may set the device."""
        return self._knobs.access

    @property
    def missing(self) -> Mapping[str, str]:
        """Knobs that the device lacks, each with the reason."""
        return self._knobs.missing

    @property
    def specs(self) -> tuple[KnobSpec, ...]:
        """Specs of the knobs that can still be set."""
        return tuple(held.knob.spec for held in list(self._held.values()))  # a thread may drop a knob meanwhile

    @property
    def default(self) -> dict[str, Value]:
        """Setting with which the device was found."""
        return {spec.name: spec.default for spec in self.specs}

    @property
    def clocks_mhz(self) -> ClocksMhz:
        return self._knobs.clocks_mhz

    def readings(self) -> dict[str, Value]:
        """Present value of each knob, as the mean over its places. Knobs that cannot be read are left out."""
        found: dict[str, Value] = {}
        with self._mutex:
            for name, held in self._held.items() if not self._closed else ():
                with contextlib.suppress(KnobFault):
                    shown = held.knob.read()
                    value = held.knob.spec.value(shown) if shown is not None else None
                    if value is not None:
                        found[name] = value
        return found

    def clocks(self) -> Clocks | None:
        """Present clocks of the device; None if it does not report them, or after `restore`."""
        with self._mutex:
            return None if self._closed else self._knobs.clocks()

    def look(self) -> None:
        """Check whether clocks are locked, while jobs keep the device busy at its original setting.

        It does nothing once a knob is set.
        """
        with self._mutex:
            if self._closed or self._assume_unlocked or any(held.now is not None for held in self._held.values()):
                return
            for name, held in self._held.items():
                if held.before is None:
                    with contextlib.suppress(KnobFault):  # reported when the clock is to be set
                        self._look(name)

    def apply(self, setting: Setting) -> Applied:
        """Set every knob that `setting` names; other knobs stay as they are.

        A knob that fails for good (no permission, not supported, changed by another program) is dropped: it is restored
        if possible (with `keeps`, to its last value), and not set again.

        Raises:
            RuntimeError: The device was given back.
        """
        with self._mutex:
            if self._closed:
                raise RuntimeError("the device has been given back")
            taken: dict[str, Value] = {}
            refused: dict[str, KnobFault] = {}
            turns = {name: self._turn(name, value) for name, value in setting.items()}
            order = sorted(setting, key=lambda name: turns[name])
            if _Turn.PROFILE in turns.values():  # the profile may have moved a limit that was raised before it
                order += [name for name in order if turns[name] is _Turn.RISING_LIMIT]
            for name in order:
                held = self._held.get(name)
                if held is None:
                    refused[name] = self.dropped.get(name) or KnobFault(Cause.NOT_SUPPORTED, f"there is no {name}")
                    continue
                try:
                    if turns[name] is _Turn.PROFILE:
                        self._look_before_profile(held, setting)
                    with self._moves_of(held):
                        self._set(held, setting[name])
                    taken[name] = setting[name]
                except KnobFault as fault:
                    refused[name] = fault
                    taken.pop(name, None)
                    if fault.cause not in (Cause.REFUSED, Cause.UNTOLD):
                        self._drop(name, fault)
            return Applied(taken, refused)

    def _turn(self, name: str, value: Value) -> _Turn:
        """Turn of a knob when it gets this value."""
        held = self._held.get(name)
        if held is None or held.before is None:
            return _Turn.CLOCK
        spec = held.knob.spec
        if spec.is_categorical:
            return _Turn.NO_PROFILE if value == spec.default else _Turn.PROFILE
        now = held.in_force or held.before
        wanted = held.before[0] if value == spec.default or isinstance(value, str) else value
        return _Turn.RISING_LIMIT if wanted > now[0] else _Turn.FALLING_LIMIT

    def restore(self) -> list[Restored]:
        """Restore all knobs and give the device back; a knob that could not be restored is `FAILED`.

        If a knob failed, the journal stays for `ecoshare restore`. A second call does nothing.
        """
        with self._mutex:
            if self._closed:
                return []
            self._closed = True
            try:
                if self._journal is None:
                    return []
                return restoring.put_back(self._journal, self._path, self._find)
            finally:
                self._release()

    def _set(self, held: _Held, value: Value) -> None:
        """Note a value in the journal, set it, and read it back.

        Raises:
            KnobFault: The knob does not have this value.
        """
        spec = held.knob.spec
        if not spec.takes(value):
            words = repr(value) if isinstance(value, str) else f"{value:g} {spec.unit}".rstrip()
            raise KnobFault(Cause.REFUSED, f"{spec.name} cannot be {words}")
        wanted = self._wanted(held, value)
        if wanted == held.in_force:
            return
        if held.before is None and held.now is None and not self._assume_unlocked:
            self._look(spec.name)
        self._still_ours(held)
        now = held.in_force
        beside = self._note(spec.name, held.before, tuple(each for each in (now, wanted) if each is not None))
        try:
            held.knob.write(wanted)
        except KnobFault as fault:
            one_place = spec.is_categorical or len(held.before or (0.0,)) == 1
            if fault.cause in _NOTHING_SET and held.now is None and one_place:
                self._forget(spec.name, *beside)
            raise
        shown = held.knob.read()
        if wanted is None:
            held.now = None
            self._forget(spec.name)
            return
        if shown is not None and not spec.same(shown, wanted):
            if spec.is_categorical:  # neither what was there nor what was asked for: it must be put back all the same
                self._note(spec.name, held.before, (wanted, shown))
            if spec.is_categorical or (now is not None and spec.same(shown, now)):
                raise KnobFault(
                    Cause.IGNORED,
                    f"{spec.name}: the device takes {spec.in_words(wanted)} without an error and still shows "
                    f"{spec.in_words(shown)}",
                )
            self._note(spec.name, held.before, (wanted, shown))  # the device rounded it, or another limit caps it
        held.now = None if wanted == held.before else shown if shown is not None else wanted

    @staticmethod
    def _wanted(held: _Held, value: Value) -> Reading | None:
        """Reading that a value of the knob stands for; None releases a lock."""
        spec = held.knob.spec
        if value == spec.default:
            return held.before
        if isinstance(value, str):
            return spec.named[value]
        return (float(value),) * len(held.before or (0.0,))

    def _look_before_profile(self, held: _Held, setting: Setting) -> None:
        """Check clocks that the setting locks before a power profile is set, which may hide their full clock.

        Raises:
            KnobFault: It cannot be told yet whether a clock is locked.
        """
        if self._assume_unlocked:
            return
        for name, each in list(self._held.items()):
            default = each.knob.spec.default
            is_new = each.before is None and each.now is None and name not in self._seen_unlocked
            if not is_new or setting.get(name, default) == default:
                continue
            with self._moves_of(held):
                self._set(held, held.knob.spec.default)
            try:
                self._look(name)
            except KnobFault as fault:
                if fault.cause is Cause.UNTOLD:
                    raise
                self._drop(name, fault)

    @contextlib.contextmanager
    def _moves_of(self, held: _Held) -> Iterator[None]:
        """Context manager: limits that a power profile moves meanwhile count as ecoshare's.

        Else they would pass for changes by another program, and stay as the profile has left them.
        """
        others = {name: each for name, each in self._held.items() if each is not held and each.before is not None}
        readings = {name: self._reading(each) for name, each in others.items()} if held.knob.spec.is_categorical else {}
        try:
            yield
        finally:
            noted = self._journal
            for name, shown in readings.items():
                each, now = others[name], self._reading(others[name])
                if noted is None or name not in noted.knobs or noted.knobs[name].ours or now is None:
                    continue  # no profile was written, or any value must count as its doing
                assert each.before is not None and each.in_force is not None
                same = each.knob.spec.same
                if shown is not None and not same(shown, now) and same(shown, each.in_force):
                    each.now = None if same(now, each.before) else now
                noted = noted.noting(name, each.before, (each.in_force,))
            if noted is not None and noted is not self._journal:
                self._write(noted)

    @staticmethod
    def _reading(held: _Held) -> Reading | None:
        try:
            return held.knob.read()
        except KnobFault:
            return None

    def _look(self, name: str) -> None:
        """Check that no other program has locked a clock; called before ecoshare locks it.

        Once the clock was seen unlocked, only a sign of a lock counts: the power limit that ecoshare set may hide the
        full clock. Under a power profile of ecoshare, no sign counts: it may keep the clock low without a reason.

        Raises:
            KnobFault: The clock looks locked, or it cannot be told yet.
        """
        if any(each.knob.spec.is_categorical and each.now is not None for each in self._held.values()):
            if name in self._seen_unlocked:
                return
            raise KnobFault(Cause.UNTOLD, f"under a power profile it cannot be told whether {name} is locked")
        limited = any(each.before is not None and each.now is not None for each in self._held.values())
        try:
            if not self._knobs.looks_unlocked(name) and limited and name not in self._seen_unlocked:
                raise KnobFault(Cause.UNTOLD, f"under ecoshare's own limit it cannot be told whether {name} is locked")
        except KnobFault as fault:
            if fault.cause is not Cause.UNTOLD or name not in self._seen_unlocked:
                raise
        self._seen_unlocked.add(name)

    def _still_ours(self, held: _Held) -> None:
        """Check that no other program has changed a knob, since such a change is never overwritten.

        Raises:
            KnobFault: Another program has changed it.
        """
        shown, ours = held.knob.read(), held.in_force
        spec = held.knob.spec
        if shown is not None and ours is not None and not spec.same(shown, ours):
            raise KnobFault(
                Cause.CHANGED,
                f"{spec.name} is {spec.in_words(shown)} now, and ecoshare has not set that: it is left alone",
            )

    def _drop(self, name: str, fault: KnobFault) -> None:
        held = self._held[name]
        self.dropped[name] = fault
        entry = self._journal.knobs.get(name) if self._journal is not None else None
        if entry is not None and fault.cause is not Cause.CHANGED:
            with contextlib.suppress(KnobFault), self._moves_of(held):
                if held.knob.spec.is_categorical:
                    self._note(name, held.before, entry.ours)
                # If this fails, the journal still has the knob, and `restore` tries again.
                held.knob.write(held.in_force if self._keeps else held.before)
        del self._held[name]

    def _note(self, knob: str, before: Reading | None, ours: tuple[Reading, ...]) -> list[str]:
        """Note a knob in the journal; with a power profile also the limits that it may move, to any value.

        Returns:
            Limits that the journal did not have before.
        """
        noted = (self._journal or self._new).noting(knob, before, ours)
        beside = []
        if knob in self._held and self._held[knob].knob.spec.is_categorical:
            for name, each in self._held.items():
                if name != knob and each.before is not None:
                    beside += [] if name in noted.knobs else [name]
                    noted = noted.noting(name, each.before, ())
        self._write(noted)
        return beside

    def _forget(self, *knobs: str) -> None:
        """Remove knobs from the journal: never set, or unlocked again. A later lock is another program's."""
        assert self._journal is not None
        left = self._journal
        for knob in knobs:
            left = left.without(knob)
        if left.knobs:
            self._write(left)
        else:
            self._journal = None
            journal.remove(self._path)

    def _write(self, noted: Journal) -> None:
        try:
            noted.write(self._path)
        except OSError as error:
            raise KnobFault(
                Cause.FAILED,
                f"cannot write {self._path} ({error.strerror}), and nothing is set without it",
                STATE_HINT,
            ) from error
        self._journal = noted

    def _mend(self) -> None:
        try:
            left = journal.read(self._path)
        except UntrustedJournal as error:
            raise UnfitEnvironment(f"what a run before this one has set is not known: {error}", _LOOK) from error
        if left is None:
            return
        done = restoring.put_back(left, self._path, self._find)
        owner = f"process {left.owner.pid} of {left.owner.user} ({left.owner.command}, {left.made_utc})"
        if failed := [each for each in done if each.outcome is KnobOutcome.FAILED]:
            raise UnfitEnvironment(f"{failed[0].words}; it was set by {owner}", failed[0].remedy or _LOOK)
        self.notes += [f"{each.words}: left by {owner}" for each in done if each.outcome is not KnobOutcome.UNTOUCHED]

    def _release(self) -> None:
        self._knobs.close()
        self._lock.release()


_LOOK = "`ecoshare devices` shows it; remove the journal once the device is as it should be"


_ENDS_WITHIN_S = 1.0
"""Longest time (s) to wait for a device. The guard of a killed run has put it back by then, and looks are over."""


def _claim(state: StateFolder, device: str, model: str) -> DeviceLock:
    path = state.lock(device)
    try:
        return DeviceLock(path, _ENDS_WITHIN_S)
    except BlockingIOError:
        raise UnfitEnvironment(
            f"{model} is being set by {holder(path)}",
            "wait for it; `ecoshare run --control off` sets nothing",
        ) from None
    except OSError as error:
        raise UnfitEnvironment(f"cannot lock {path}: {error.strerror}", STATE_HINT) from error
