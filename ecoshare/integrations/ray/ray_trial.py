"""One trial inside Ray's worker process: the ledger admits it, and it takes turns with the other trials of its lane.

::

    admitted ──► turn taken ──► the user's function ──boundaries──► Turn ──► left, place given back
                                     │
                                     └─ reports: without the turn, since Ray blocks them until they are processed

Ray may run one trial after another in the same process. Nothing is counted between two trials.
"""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ray.train._internal.session import _TrainSession

import ecoshare
from ecoshare.base.class_profile import CONTEXT_BYTES, MemoryDemand
from ecoshare.core.memory import promised
from ecoshare.devices.nvidia.nvml import NvmlDevice
from ecoshare.errors import UnfitEnvironment, UsageError
from ecoshare.integrations.ray.node_ledger import NodeLedger, TrialPlace, Wish
from ecoshare.lane import processes
from ecoshare.lane.after_import import after_import
from ecoshare.lane.device_sync import DeviceSync, drain, empty_cache, limit_cuda, spans_processes
from ecoshare.lane.iterations import Boundary
from ecoshare.lane.memory.observer import MemoryObserver
from ecoshare.lane.supervisor.attempt_process import usage
from ecoshare.lane.turn import LaneTurn

_ASK_AGAIN_S = 0.1
"""Interval (s) at which a waiting trial asks the ledger for a place."""

_LOOK_S = 0.25
"""Interval (s) at which an admitted trial checks that the holder of its lane's turn is alive."""

_SWEEP_EVERY = 20
"""Every so many checks, the trial also looks for dead processes without the turn."""

_UNSEEN_SHARE = 1.5
"""Factor on the memory used by a trial that ended before its demand was observed; the product is its demand."""

_GROWTH_EVERY_S = 1.0


class RayTrial:
    """The trial that this process runs, in the form that the hooks use.

    Attributes:
        on_gpu: True if the trial's device is a GPU, not the processors.
    """

    cut_hook = None  # the trial is a thread of its actor, which hears no signals

    def __init__(self, ledger: NodeLedger, place: TrialPlace, queued_s: float) -> None:
        self._ledger = ledger
        self._place = place
        self._queued_s = queued_s
        self.on_gpu = place.device != "cpu"
        empty = partial(empty_cache, "cuda" if self.on_gpu else "cpu")
        self._turn = LaneTurn(place.table, place.slot, empty=empty)
        self._slot = place.table.slots[place.slot]
        self._pace = DeviceSync()
        self._observer = None if place.measured else MemoryObserver("cuda" if self.on_gpu else "cpu")
        self._measured = place.measured
        self._grown_s = time.monotonic()
        self._awaits_cuda = self._has_gpu = False

    def boundary(self, kind: Boundary) -> None:
        self._pace.keep()
        self._turn.count(kind is Boundary.EVAL)
        if not spans_processes():
            self._turn.offer(drain)
        if self._observer is not None and self._observer.boundary():
            seen = self._observer.result()
            self._observer = None
            self._tell(self._demand(seen))

    def count(self, kind: Boundary) -> None:
        self._turn.count(kind is Boundary.EVAL)

    def leave(self) -> None:
        with contextlib.suppress(RuntimeError):  # a failed device has nothing left to drain
            drain()
        self._turn.leave()

    def take(self) -> None:
        self._turn.take()

    @property
    def absence_cost_s(self) -> float:
        return self._turn.absence_cost_s

    @property
    def is_waited_for(self) -> bool:
        return self._turn.is_waited_for

    def begin(self) -> None:
        """Take the turn before the user's function runs; on a GPU, when the function first uses it."""
        torch = sys.modules.get("torch")
        if not self.on_gpu:
            self.take()
        elif torch is not None and torch.cuda.is_initialized():
            self._begin_cuda()
        elif not self._awaits_cuda:
            self._awaits_cuda = True
            after_import("torch", lambda: sys.modules["torch"].cuda._lazy_call(self._begin_cuda))

    def rest(self) -> None:
        """Give up the turn before work other than iterations, and report memory growth to the ledger."""
        _process.settle()
        self.leave()
        self._grow()

    def end(self) -> None:
        """End the trial: give back its turn and its place."""
        if not self._measured:
            self._tell(MemoryDemand(int(_UNSEEN_SHARE * self._used_bytes())))
        self.leave()
        if self._has_gpu:  # Ray may keep the process for another trial
            empty_cache("cuda")
        self._ledger.leave(self._place)

    def look(self, sweep: bool) -> None:
        """Free the places of dead neighbours; called by another thread."""
        if sweep:
            self._ledger.sweep()
        else:
            self._ledger.look(self._place)

    def figures(self) -> dict[str, float]:
        """Figures on sharing so far, for the trial's results."""
        used = usage(self._slot)
        return {
            "ecoshare/iterations": used["iterations"] + used["eval_iterations"],
            "ecoshare/held_s": used["held_s"],
            "ecoshare/waited_s": self._slot.waited_s,
            "ecoshare/queued_s": self._queued_s,
        }

    def _begin_cuda(self) -> None:
        if _process.trial is not self:
            return  # the trial that registered this ended without use of the GPU

        self.take()
        limit_cuda(self._place.demand.peak_bytes - CONTEXT_BYTES)
        self._has_gpu = True

    def _tell(self, demand: MemoryDemand) -> None:
        """Report an observed demand. On a GPU the trial is limited to it first, since other trials get the rest."""
        self._measured = True
        if self._has_gpu and not self._place.measured:
            limit_cuda(promised(demand, self._place.budget_bytes).peak_bytes - CONTEXT_BYTES)
        self._ledger.update(self._place, demand)

    def _grow(self) -> None:
        """Report the memory of a trial on the CPU, where no limit holds it to the demand it was admitted with."""
        if self.on_gpu or not self._measured or time.monotonic() < self._grown_s + _GROWTH_EVERY_S:
            return
        self._grown_s = time.monotonic()
        self._tell(MemoryDemand(processes.proportional_bytes([os.getpid()])))

    def _demand(self, seen: dict[str, Any]) -> MemoryDemand:
        """P and T from an observation; if it failed, an estimate from the most memory used."""
        if not self.on_gpu:
            if seen["process_bytes"] is None or seen["ephemeral_bytes"] is None:
                return MemoryDemand(int(_UNSEEN_SHARE * self._used_bytes()))
            return MemoryDemand(seen["process_bytes"], seen["ephemeral_bytes"])
        reserved, peak = seen["reserved_bytes"], seen["peak_reserved_bytes"]
        if reserved is None or peak is None:
            return MemoryDemand(int(_UNSEEN_SHARE * self._used_bytes()))
        # The observation emptied the allocator's cache, so the process holds only its persistent memory.
        return MemoryDemand(max(reserved, self._on_device_bytes(reserved)), max(0, peak - reserved))

    def _used_bytes(self) -> int:
        """Most memory (bytes) that this process has used so far."""
        torch = sys.modules.get("torch")
        if not self.on_gpu:
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        if torch is None or not torch.cuda.is_initialized():
            return 0
        return self._on_device_bytes(torch.cuda.max_memory_reserved())

    def _on_device_bytes(self, reserved_bytes: int) -> int:
        """Memory (bytes) of this process on its GPU, including its context."""
        with contextlib.suppress(UnfitEnvironment):
            gpu = NvmlDevice(self._place.device)
            try:
                known = gpu.processes().get(os.getpid())
            finally:
                gpu.close()
            if known is not None and known > reserved_bytes:  # some drivers name a process in a container with 0 bytes
                return known
        return reserved_bytes + CONTEXT_BYTES


class _Process:
    """State and set-up of a process, shared by all trials that it runs."""

    def __init__(self) -> None:
        self.trial: RayTrial | None = None
        self.ledger: NodeLedger | None = None
        self._hooks: Any = None
        self._armed = False

    def begin(self, trial: RayTrial) -> None:
        """Begin a trial in the calling thread."""
        if not self._armed:
            self._armed = True
            threading.Thread(target=self._watch, name="ecoshare", daemon=True).start()
            self._wrap_reports()
        self.trial = trial
        after_import("torch", self._hook)

    def end(self) -> None:
        """End the trial: finish its counts and disconnect the hooks."""
        if self._hooks is not None:
            self._hooks.finish()
        self._hooks = ecoshare._declare = self.trial = None

    def _hook(self) -> None:
        from ecoshare.lane.hooks import Hooks

        if self._hooks is None and self.trial is not None:
            self._hooks = Hooks(self.trial, accelerator=self.trial.on_gpu)
            self._hooks.install()
            self._hooks.follow()
            ecoshare._declare = self._hooks.declare

    def settle(self) -> None:
        """Tell the hooks that work other than an iteration follows."""
        if self._hooks is not None:
            self._hooks.settle()

    def _watch(self) -> None:
        looks = 0
        while True:
            time.sleep(_LOOK_S)
            looks += 1
            if (trial := self.trial) is not None:
                with contextlib.suppress(OSError):  # the next look may succeed
                    trial.look(sweep=looks % _SWEEP_EVERY == 0)

    def _wrap_reports(self) -> None:
        """Wrap the method through which every report of a result passes, and in which it waits for Ray."""
        report = _TrainSession.report

        @functools.wraps(report)
        def report_without_turn(session: Any, metrics: dict[str, Any], *args: Any, **options: Any) -> Any:
            trial = self.trial
            if trial is None or not isinstance(metrics, dict):  # Ray reports the mistake for other types
                return report(session, metrics, *args, **options)
            trial.rest()
            result = report(session, {**metrics, **trial.figures()}, *args, **options)
            trial.take()  # not if the report raised: Ray ends a trial that way
            return result

        _TrainSession.report = report_without_turn


_process = _Process()


@contextmanager
def entered(wish: Wish) -> Iterator[RayTrial]:
    """Context manager that runs a trial: wait for a place and the turn, and give both back at the end.

    Raises:
        UnfitEnvironment: No place can ever fit the trial, or this node cannot keep a ledger.
    """
    trial = enter(wish)
    try:
        trial.begin()
        yield trial
    finally:
        end(trial)


def enter(wish: Wish) -> RayTrial:
    """Wait for a place, and make the trial the current one of this process.

    Raises:
        UnfitEnvironment: See `entered`.
        UsageError: This process already runs a trial, so the wait would never end.
    """
    if _process.trial is not None:
        raise UsageError("this trial has its place already: share() was applied to it twice")
    if _process.ledger is None:
        _process.ledger = NodeLedger.of_this_node()
    ledger = _process.ledger
    began_s = time.monotonic()
    number = ledger.queue()
    try:
        while (place := ledger.enter(number, wish)) is None:
            time.sleep(_ASK_AGAIN_S)
    finally:
        ledger.withdraw(number)
    os.environ["CUDA_VISIBLE_DEVICES"] = "" if place.device == "cpu" else place.device
    trial = RayTrial(ledger, place, time.monotonic() - began_s)
    _process.begin(trial)
    return trial


def end(trial: RayTrial) -> None:
    """End the trial of this process."""
    _process.end()
    trial.end()
