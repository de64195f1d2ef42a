"""Claim of the device that a run may set. The run claims it at the beginning and restores it at the end."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from ecoshare.base.class_profile import POWER_LIMIT
from ecoshare.base.clock import loop_s
from ecoshare.base.device import DeviceInfo
from ecoshare.base.measurement import Setting
from ecoshare.devices.control import journal, restore
from ecoshare.devices.control.device_control import DeviceControl
from ecoshare.devices.control.joint_control import JointControl, claim_processors
from ecoshare.devices.control.journal import UntrustedJournal
from ecoshare.devices.control.restore import (
    Busy,
    KnobOutcome,
    NoAnswer,
    Restored,
    in_time,
    mend_in_time,
    restore_in_time,
)
from ecoshare.devices.control.state_folder import StateFolder, in_use, key
from ecoshare.devices.knob import Cause, Clocks, DeviceKnobs, KnobFault
from ecoshare.devices.meter import Meter, PowerModel
from ecoshare.devices.occupancy import why_not_allocated
from ecoshare.devices.registry import processors
from ecoshare.devices.vendor import OpenDevice
from ecoshare.errors import NotRestored, UnfitEnvironment

T = TypeVar("T")

_Work = Callable[[], None]


class DriverCalls:
    """Calls of the driver of one device, with a time limit. While one is without an answer, no other begins.

    A call that blocks in the driver cannot be ended. So the calls of each device have a daemon thread of their own:
    they take no thread from other devices, and neither the end of the loop nor that of the process waits for them.
    """

    def __init__(self, limit_s: float) -> None:
        """No call so far; `limit_s` is the longest time (s) to wait for an answer."""
        self._limit_s = limit_s
        self._unanswered = 0
        self._queue: SimpleQueue[_Work | None] | None = None

    async def apart(self, call: Callable[[], T]) -> T:
        """Result of a long call, in a thread of its own. If the caller is cancelled, the result is lost."""
        answer, work = _with_answer(call)
        threading.Thread(target=work, name="driver", daemon=True).start()
        return await answer

    async def answer(self, call: Callable[[], T]) -> T | None:
        """Result of a call; None if the driver does not answer it, or has not yet answered an earlier one."""
        if self._unanswered:
            return None
        answer, work = _with_answer(call)
        self._thread().put(work)
        try:
            await asyncio.wait((answer,), timeout=self._limit_s)
        except asyncio.CancelledError:
            answer.cancel()  # else asyncio complains of an error that nothing will ask for
            raise
        if answer.done():
            return answer.result()
        self._unanswered += 1
        answer.add_done_callback(self._answered)
        return None

    def _thread(self) -> SimpleQueue[_Work | None]:
        """Queue of the thread, which ends with this object. A new thread for each call would cost too much."""
        if self._queue is None:
            self._queue = SimpleQueue()
            threading.Thread(target=_serve, args=(self._queue,), name="driver", daemon=True).start()
            weakref.finalize(self, self._queue.put, None)
        return self._queue

    def _answered(self, answer: asyncio.Future[Any]) -> None:
        self._unanswered -= 1
        if not answer.cancelled():
            answer.exception()  # asyncio complains of an error that nothing has asked for


def _with_answer(call: Callable[[], T]) -> tuple[asyncio.Future[T], _Work]:
    """Future of the present loop, and a function for another thread that calls and sets the result."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(error: BaseException | None, result: Any) -> None:
        if not answer.done():
            answer.set_result(result) if error is None else answer.set_exception(error)

    def work() -> None:
        result, fault = None, None
        try:
            result = call()
        except BaseException as error:
            fault = error
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, fault, result)

    return answer, work


def _serve(queue: SimpleQueue[_Work | None]) -> None:
    while (work := queue.get()) is not None:
        work()


_TOLD_WITHIN_S, _ASK_AGAIN_S = 120.0, 1.0
"""Longest time (s) to wait for a busy GPU, and time (s) between two tries.

Only a busy GPU shows whether its clocks are locked, and jobs need time to load.
"""


class AppliedSettings:
    """Applies settings to a claimed device. A failed knob is reported once, and the run continues without it.

    A driver that does not answer blocks neither the run nor its end.

    Attributes:
        control: Control of the claimed device, joined with the processors where their frequency is a knob, too.
        processors: Open meter of the processors, if their joules count beside those of a GPU; None otherwise.
        apart: Reason why the frequency of the processors is no knob beside the GPU, in words; empty if it is one, or
            was not asked for.
        notes: Notes for the user, one line each.
        unrestored: Knobs that could not be restored.
    """

    def __init__(
        self,
        name: str,
        control: DeviceControl | JointControl,
        exact: bool,
        processors: Meter | None = None,
        apart: str = "",
    ) -> None:
        """Apply settings to a device that was claimed.

        Args:
            name: Name of the device in the run, such as `cuda:0`.
            control: See the attribute.
            exact: Whether one refused knob makes a setting refused: a measurement must be of the setting that it names.
            processors: See the attribute.
            apart: See the attribute.
        """
        self.control, self._exact, self.processors, self.apart = control, exact, processors, apart
        self._name = name
        self._calls = DriverCalls(restore.SETS_WITHIN_S)
        self._has_waited = False  # in vain, so the next setting does not wait
        self._mutex, self._is_restored = threading.Lock(), False
        self.notes: list[str] = list(control.notes)
        self.unrestored: list[Restored] = []

    @property
    def knobs(self) -> DeviceKnobs:
        """Knobs that can still be set."""
        control = self.control
        return DeviceKnobs(control.specs, control.clocks_mhz, self.processors is not None, self.apart)

    @property
    def apart_for_a_run(self) -> bool:
        """Whether the frequency of the processors is no knob only because another run sets it."""
        return bool(self.apart) and in_use(StateFolder.of_this_user().lock(key(processors()))) is not None

    async def apply(self, setting: Setting) -> str:
        """Set every knob. Knobs that the setting does not name return to the values that they were found with.

        Returns:
            Reason for a refusal, in words; empty if the setting is accepted. Without `exact`, a setting with refused
            knobs is still accepted if at least one other knob now differs from its default.

        Raises:
            RuntimeError: The device has been restored already.
        """
        end_s = loop_s() + (0.0 if self._has_waited else _TOLD_WITHIN_S)
        while True:
            wanted = {**self.control.default, **dict(setting)}
            applied = await self._calls.answer(partial(self.control.apply, wanted))
            if applied is None:
                return self._no_answer()
            untold = any(fault.cause is Cause.UNTOLD for fault in applied.refused.values())
            if not untold or loop_s() > end_s:
                break
            await asyncio.sleep(_ASK_AGAIN_S)
        self._has_waited = untold
        for fault in applied.refused.values():
            self._tell(fault)
        changed = [name for name, value in applied.setting.items() if value != self.control.default.get(name)]
        if not applied.refused or (changed and not self._exact):
            return ""
        return "; ".join(dict.fromkeys(str(fault) for fault in applied.refused.values()))

    async def other_limit_w(self, setting: Setting) -> float | None:
        """Power limit (W) that the device shows instead of the one that a setting in force names.

        Returns:
            The limit; None if the device shows the named one, if it does not answer, or if no limit is named.
        """
        wanted = dict(setting).get(POWER_LIMIT)
        spec = next((each for each in self.control.specs if each.name == POWER_LIMIT), None)
        if spec is None or not isinstance(wanted, float):
            return None
        shown = (await self.readings()).get(POWER_LIMIT)
        return shown if isinstance(shown, float) and not spec.same((shown,), (wanted,)) else None

    async def look(self) -> None:
        """Check whether other software has locked the clocks. Call this while jobs keep the device busy."""
        await self._calls.answer(self.control.look)

    async def clocks(self) -> Clocks | None:
        """Present clocks of the device; None for processors, and without an answer."""
        return await self._calls.answer(self.control.clocks)

    async def readings(self) -> dict[str, float | str]:
        """Present value of each knob that can be read back; empty without an answer."""
        return await self._calls.answer(self.control.readings) or {}

    def restore(self) -> None:
        """Restore all knobs within a time limit. Those that cannot be restored are in `unrestored`.

        A second call does nothing, after the end of the first.
        """
        with self._mutex:
            done = [] if self._is_restored else restore_in_time(self.control, self._name)
            self._is_restored = True
        for each in done:
            if each.outcome is KnobOutcome.FAILED:
                self.unrestored.append(each)
            elif each.outcome is KnobOutcome.FOREIGN:
                self.notes.append(each.words)

    def _no_answer(self) -> str:
        words = f"the driver of {self._name} does not answer"
        if words not in self.notes:
            self.notes.append(words)
        return words

    def _tell(self, fault: KnobFault) -> None:
        words = f"{self.control.model}: {fault}" + (f" ({fault.remedy})" if fault.remedy else "")
        if words not in self.notes:
            self.notes.append(words)


@dataclass(frozen=True, slots=True)
class ClaimedDevice:
    """A device as a run has it before the first event.

    Attributes:
        device: The device.
        power: Power model, used without a meter; None without a model.
        settings: Settings of the claimed device; None if nothing may be set.
        known_idle_w: Power (W) of the idle device that a meter, given by name, showed in an earlier run.
        open: Opens the device to read it; None for the way of its vendor.
        calls: Calls of its driver; None for calls in a thread of its own.
    """

    device: DeviceInfo
    power: PowerModel | None = None
    settings: AppliedSettings | None = None
    known_idle_w: Callable[[str], float | None] = lambda _meter: None
    open: Callable[[], OpenDevice] | None = None
    calls: DriverCalls | None = None


def claim(
    device: DeviceInfo,
    exact: bool,
    assume_unlocked: bool = False,
    with_processors: bool = False,
    only: Collection[str] | None = None,
    keeps: bool = False,
    or_fixed: bool = False,
) -> AppliedSettings:
    """Claim a device for a run, and restore the settings that a dead run left there.

    Args:
        device: The device.
        exact: Whether one refused knob makes a setting refused: see `AppliedSettings`.
        assume_unlocked: Whether to lock clocks without a check for locks of other software.
        with_processors: Whether the frequency of the processors beside a GPU shall be a knob, too, where it can be.
        only: Names of the knobs that may be set; None for all of the device.
        keeps: See `DeviceControl`.
        or_fixed: Whether a device with nothing to set is claimed, too: then no other run sets it meanwhile.

    Raises:
        UnfitEnvironment: Another process holds the device, Slurm has not allocated it to this job alone, this user may
            set nothing, there is nothing to set (without `or_fixed`), or the settings that a dead run left cannot be
            restored.
    """
    if reason := why_not_allocated([device]):
        raise UnfitEnvironment(f"nothing is set on {device.model}: {reason}")
    if device.processors:
        raise UnfitEnvironment(
            "partitions of the processors share clocks and power limits", "`--device cpu` uses all processors as one"
        )
    state = StateFolder.of_this_user()
    control = _opened(device, state, assume_unlocked, only, keeps)
    if (control.specs or or_fixed) and control.access.allowed:
        if not with_processors or device.on_processors:
            return AppliedSettings(device.name, control, exact)
        try:
            beside = claim_processors(state)
        except UnfitEnvironment as error:
            return AppliedSettings(device.name, control, exact, apart=str(error))
        except BaseException:
            restore_in_time(control, device.name)
            raise
        return AppliedSettings(device.name, JointControl(control, beside.control), exact, beside.meter)
    why = "; ".join(f"{name}: {words}" for name, words in control.missing.items()) or "it offers no knobs"
    if control.specs:
        why = control.access.how
    remedy = control.access.remedy if control.specs else "see `ecoshare devices`"
    restore_in_time(control, device.name)
    raise UnfitEnvironment(f"nothing can be set on {device.model}: {why}", remedy)


def _opened(
    device: DeviceInfo, state: StateFolder, assume_unlocked: bool, only: Collection[str] | None, keeps: bool
) -> DeviceControl:
    """Control of a device, if its driver answers.

    Raises:
        UnfitEnvironment: The driver does not answer, or `DeviceControl` raises it.
    """
    opens = partial(
        DeviceControl, key(device), device.vendor, device.model, state, assume_unlocked, only=only, keeps=keeps
    )
    try:
        return in_time(opens, restore.SETS_WITHIN_S, late=DeviceControl.restore)
    except NoAnswer:
        raise UnfitEnvironment(
            f"the driver of {device.name} does not answer", "`ecoshare run --control off` sets nothing"
        ) from None


def not_restored(left: Sequence[Restored], besides: str = "") -> NotRestored:
    """Error for knobs that a run could not restore. It is the most important report of the run.

    Args:
        left: Knobs that were not restored, at least one.
        besides: Another error of the run, in words; empty for none.
    """
    more = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
    remedy = f"{left[0].remedy}; then `ecoshare restore`" if left[0].remedy else "`ecoshare restore`"
    return NotRestored(left[0].words + more + (f"; besides: {besides}" if besides else ""), remedy)


def leftovers(device: DeviceInfo, may_set: bool) -> tuple[list[str], bool]:
    """Notes about settings of other runs on a device, one line each, and whether the device is as its owner wants it.

    If this run may set the device, the settings of a dead run are restored. Those of a live run are only reported.

    Args:
        may_set: Whether this run may set the device.
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
        done = mend_in_time(path, state)
    except UntrustedJournal as error:
        return [f"what a run before this one has set on {device.model} is not known: {error}"], False
    except Busy as busy:
        return [f"{device.model} is being set by {busy}: times and joules are those of its settings"], False
    notes = [f"{each.words}: left by a run that died" for each in done if each.outcome is not KnobOutcome.UNTOUCHED]
    return notes, all(each.outcome is not KnobOutcome.FAILED for each in done)


def leftovers_beside(device: DeviceInfo, may_set: bool) -> tuple[list[str], bool]:
    """Same as `leftovers` for the processors beside a GPU. A live run that sets them meanwhile is not reported.

    Args:
        device: The GPU.
        may_set: Whether this run may set the device.
    """
    own, state = processors(), StateFolder.of_this_user()
    if device.on_processors or not state.journal(key(own)).exists() or in_use(state.lock(key(own))) is not None:
        return [], True
    return leftovers(own, may_set)
