"""Sets one device's knobs, for one run, and puts them back.

::

    claim ──► lock the device, mend what a dead run left
    apply ──► for each knob that changes:  journal ──► set ──► read back
    restore ► put back what was before ──► no journal, no lock

A knob that cannot be set is dropped with one line, and the others go on. The guard does what `restore` does when this
process is killed: it knows the journal.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from ecoshare.devices import journal
from ecoshare.devices import restore as restoring
from ecoshare.devices.journal import Journal, UntrustedJournal
from ecoshare.devices.knob import Access, Cause, Clocks, DeviceKnob, KnobFault, Knobs, KnobSpec, Reading
from ecoshare.devices.restore import KnobOutcome, Restored, in_words, same
from ecoshare.devices.state_folder import STATE_HINT, DeviceLock, StateFolder, holder
from ecoshare.errors import UnfitEnvironment

Value = float | str
Setting = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Applied:
    """What came of a setting.

    Attributes:
        refused: Knobs that did not take their value, and why.
    """

    setting: dict[str, Value]
    refused: dict[str, KnobFault] = field(default_factory=dict)


_NOTHING_SET = (Cause.NO_PERMISSION, Cause.NOT_SUPPORTED, Cause.REFUSED)
"""What the device says when it has changed nothing; anything else may mean that it has."""


@dataclass(slots=True)
class _Held:
    """A knob that we may set.

    Attributes:
        before: What it was found with; None for a lock, and before it was looked at.
        now: What we have set it to; None where it is as it was.
    """

    knob: DeviceKnob
    before: Reading | None
    now: Reading | None = None

    @property
    def in_force(self) -> Reading | None:
        """What it should show; None for a lock that nobody holds."""
        return self.now if self.now is not None else self.before


class DeviceControl:
    """One device, claimed."""

    def __init__(
        self,
        device: str,
        kind: str,
        model: str,
        state: StateFolder,
        assume_unlocked: bool = False,
        find: Callable[[], Knobs] | None = None,
    ) -> None:
        """Claim a device; nothing is set.

        Args:
            device: Its key: a GPU's UUID.
            kind: `gpu` or `cpu`.
            assume_unlocked: Whether to lock clocks without looking whether somebody else has.
            find: Its knobs, where they are not those of this machine. They are looked for when what a dead run has left
                is put back: no limit of its may pass for the one that was found.

        Raises:
            UnfitEnvironment: It is not there, somebody else has it, or what a dead run left there cannot be mended.
        """
        self._find = find or partial(restoring.open_knobs, kind, device)
        self.device, self.model = device, model
        self.notes: list[str] = []
        self.dropped: dict[str, KnobFault] = {}
        self._assume_unlocked, self._seen_unlocked = assume_unlocked, set[str]()
        self._path = state.journal(device)
        self._lock = _claim(state, device, model)
        self._mutex = threading.Lock()  # a setting that is being applied ends before anything is put back
        self._journal: Journal | None = None
        self._closed = False
        self._new = Journal.new(device, kind, model)
        try:
            self._mend()
            self._knobs = self._find()
        except BaseException:
            self._lock.release()
            raise
        try:
            choices = [knob for knob in self._knobs.knobs if knob.spec.choices > 1]
            self._held = {knob.spec.name: _Held(knob, knob.read()) for knob in choices}
        except KnobFault as fault:
            self._release()
            raise UnfitEnvironment(f"{model}: {fault}", fault.remedy) from fault

    @property
    def access(self) -> Access:
        """Whether this user may set it."""
        return self._knobs.access

    @property
    def missing(self) -> Mapping[str, str]:
        """Knobs that the device lacks, and why."""
        return self._knobs.missing

    @property
    def specs(self) -> tuple[KnobSpec, ...]:
        """The knobs that can still be set."""
        return tuple(held.knob.spec for held in self._held.values())

    @property
    def default(self) -> dict[str, Value]:
        """The setting that the device was found with."""
        return {spec.name: spec.default for spec in self.specs}

    def allows(self, setting: Setting) -> bool:
        """Whether the values of a setting go together."""
        return self._knobs.allows(setting)

    def readings(self) -> dict[str, float]:
        """What knobs that can be read back are set to now, over all places; nothing of one that does not answer."""
        found: dict[str, float] = {}
        with self._mutex:
            for name, held in self._held.items() if not self._closed else ():
                with contextlib.suppress(KnobFault):
                    shown = held.knob.read()
                    if shown:
                        found[name] = sum(shown) / len(shown)
        return found

    def clocks(self) -> Clocks | None:
        """What the device's clocks do now."""
        with self._mutex:
            return None if self._closed else self._knobs.clocks()

    def look(self) -> None:
        """See, while the device is busy at the setting that it was found with, whether its clocks are locked."""
        with self._mutex:
            if self._closed or self._assume_unlocked or any(held.now is not None for held in self._held.values()):
                return
            for name, held in self._held.items():
                if held.before is None:
                    with contextlib.suppress(KnobFault):  # told when it is to be set
                        self._look(name)

    def apply(self, setting: Setting) -> Applied:
        """Set every knob that is named; others stay as they are.

        A knob that refuses its value for good (no permission, not supported, somebody else's) is dropped: put back
        where that is possible, and never touched again.
        """
        with self._mutex:
            if self._closed:
                raise RuntimeError("the device has been given back")
            taken: dict[str, Value] = {}
            refused: dict[str, KnobFault] = {}
            for name, value in sorted(setting.items(), key=lambda item: self._late(*item)):
                held = self._held.get(name)
                if held is None:
                    refused[name] = self.dropped.get(name) or KnobFault(Cause.NOT_SUPPORTED, f"there is no {name}")
                    continue
                try:
                    self._set(held, value)
                    taken[name] = value
                except KnobFault as fault:
                    refused[name] = fault
                    if fault.cause not in (Cause.REFUSED, Cause.UNTOLD):
                        self._drop(name, fault)
            return Applied(taken, refused)

    def _late(self, name: str, value: Value) -> int:
        """A limit that is raised comes before the clocks, so that they can be seen; one that is lowered after them."""
        held = self._held.get(name)
        if held is None or held.before is None:
            return 1
        now = held.in_force or held.before
        wanted = held.before[0] if value == held.knob.spec.default or isinstance(value, str) else value
        return 0 if wanted > now[0] else 2

    def restore(self) -> list[Restored]:
        """Put everything back and give the device up; what could not be put back is `FAILED` there.

        The journal of what failed stays, for `ecoshare restore`. Called again it does nothing.
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
        """Journal, set, read back.

        Raises:
            KnobFault: The knob is not set to this.
        """
        spec = held.knob.spec
        if not spec.takes(value):
            words = repr(value) if isinstance(value, str) else f"{value:g} {spec.unit}"
            raise KnobFault(Cause.REFUSED, f"{spec.name} cannot be {words}")
        wanted = held.before if value == spec.default else (float(value),) * len(held.before or (0.0,))
        if wanted == held.in_force:
            return
        if held.before is None and held.now is None and not self._assume_unlocked:
            self._look(spec.name)
        self._still_ours(held)
        now = held.in_force
        self._note(spec.name, held.before, tuple(each for each in (now, wanted) if each is not None))
        try:
            held.knob.write(wanted)
        except KnobFault as fault:
            if fault.cause in _NOTHING_SET and held.now is None and len(held.before or (0.0,)) == 1:
                self._forget(spec.name)
            raise
        shown = held.knob.read()
        if wanted is None:
            held.now = None
            self._forget(spec.name)
            return
        if shown is not None and not same(shown, wanted):
            if now is not None and same(shown, now):
                raise KnobFault(
                    Cause.IGNORED,
                    f"{spec.name}: the device takes {in_words(wanted, spec.unit)} without an error and still shows "
                    f"{in_words(shown, spec.unit)}",
                )
            self._note(spec.name, held.before, (wanted, shown))  # rounded, or capped by another limit
        held.now = None if wanted == held.before else shown if shown is not None else wanted

    def _look(self, name: str) -> None:
        """Look whether somebody else has locked a clock, each time that we are about to.

        Once it was seen unlocked, only what looks locked counts: our own power limit hides the clock then.

        Raises:
            KnobFault: It looks locked, or nothing can be told yet.
        """
        limited = any(each.before is not None and each.now is not None for each in self._held.values())
        try:
            if not self._knobs.looks_unlocked(name) and limited and name not in self._seen_unlocked:
                raise KnobFault(Cause.UNTOLD, f"under ecoshare's own limit it cannot be told whether {name} is locked")
        except KnobFault as fault:
            if fault.cause is not Cause.UNTOLD or name not in self._seen_unlocked:
                raise
        self._seen_unlocked.add(name)

    def _still_ours(self, held: _Held) -> None:
        """Somebody else's change is not overwritten.

        Raises:
            KnobFault: There is one.
        """
        shown, ours = held.knob.read(), held.in_force
        if shown is not None and ours is not None and not same(shown, ours):
            spec = held.knob.spec
            raise KnobFault(
                Cause.CHANGED,
                f"{spec.name} is {in_words(shown, spec.unit)} now, and ecoshare has not set that: it is left alone",
            )

    def _drop(self, name: str, fault: KnobFault) -> None:
        held = self._held.pop(name)
        self.dropped[name] = fault
        touched = self._journal is not None and name in self._journal.knobs
        if touched and fault.cause is not Cause.CHANGED:
            with contextlib.suppress(KnobFault):  # the journal knows it still, and `restore` tries again
                held.knob.write(held.before)

    def _note(self, knob: str, before: Reading | None, ours: tuple[Reading, ...]) -> None:
        self._write((self._journal or self._new).noting(knob, before, ours))

    def _forget(self, knob: str) -> None:
        """Nothing of a knob is to be put back: it was never set, or is unlocked again, and a lock is another one's."""
        assert self._journal is not None
        left = self._journal.without(knob)
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


def _claim(state: StateFolder, device: str, model: str) -> DeviceLock:
    path = state.lock(device)
    try:
        return DeviceLock(path)
    except BlockingIOError:
        raise UnfitEnvironment(
            f"{model} is being set by {holder(path)}",
            "wait for it; `ecoshare run --control off` sets nothing",
        ) from None
    except OSError as error:
        raise UnfitEnvironment(f"cannot lock {path}: {error.strerror}", STATE_HINT) from error
