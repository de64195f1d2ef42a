"""A job in its process: hooks call it at boundaries, and it takes, offers and leaves the turns of its lanes."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import ecoshare
from ecoshare.base.service import AnswerMeasurement
from ecoshare.lane import child_processes, confinement, cuts, exit_records
from ecoshare.lane.child_processes import KeptLane, note_path, write_note
from ecoshare.lane.device_sync import (
    DeviceSync,
    change_limit,
    drain,
    empty_cache,
    limit_cuda,
    memory_in_use,
    spans_processes,
)
from ecoshare.lane.gang_turn import GangTurn
from ecoshare.lane.iterations import Boundary
from ecoshare.lane.memory.observer import MemoryObserver, memory_path
from ecoshare.lane.messages import LaunchAttempt
from ecoshare.lane.own_memory import own_peak_bytes, page_out
from ecoshare.lane.supervisor import gang
from ecoshare.lane.tables.gang_table import GangTable
from ecoshare.lane.tables.lane_table import LaneTable
from ecoshare.lane.tables.table_layout import BoundaryRequest, Slot
from ecoshare.lane.trace import Reporter, Tracer, reports_path, trace_path
from ecoshare.lane.turn import LaneTurn, ThreadState

_MEMORY_S = 0.25
"""Time (s) between two looks of a job at its device memory."""

_PACE_S = 0.002
"""Least time (s) between two places inside a backward pass at which the processor waits for the GPU."""

_LOOK_S = 0.002

_LOOKED_AT_WITHIN_S = 1.0
"""Longest wait (s) of an observed job for the controller, which looks every few milliseconds unless busy or gone."""


@dataclass(frozen=True, slots=True)
class BoundaryAnswers:
    """Answers in the slot of one job.

    Attributes:
        slot: Returns the present slot of the job, which may move to another lane.
    """

    slot: Callable[[], Slot]

    def limit(self, change: Callable[[int], bool]) -> None:
        """Answer the request `LIMIT`: change the memory limit with `change`, which returns False if that cannot be."""
        slot = self.slot()
        most_bytes = slot.cap_bytes
        is_kept = change(most_bytes)
        if is_kept:
            slot.limited_bytes = most_bytes
        if slot.ask == BoundaryRequest.LIMIT:  # else another request has come meanwhile, and this one comes again
            slot.ask = BoundaryRequest.NOTHING if is_kept else BoundaryRequest.UNFIT

    def give(self, answer: BoundaryRequest) -> None:
        """Answer the request of the controller."""
        self.slot().ask = answer

    def stay(self, longest_s: float) -> None:
        """Wait until the controller has taken note of the answer, for at most `longest_s`."""
        end_s = time.monotonic() + longest_s
        while self.slot().ask == BoundaryRequest.OBSERVED:
            if time.monotonic() > end_s:
                self.slot().ask = BoundaryRequest.NOTHING
                break
            time.sleep(_LOOK_S)


class HookedJob:
    """A job in its process, as the hooks see it.

    Attributes:
        ends_itself: Whether a request to end does not unwind the job, which looks for it itself.
    """

    def __init__(
        self, launch: LaunchAttempt, tables: Mapping[str, LaneTable] | None = None, swap: ThreadState | None = None
    ) -> None:
        """The only job of this process, or, with `swap`, one of several.

        Args:
            launch: The attempt that runs.
            tables: Tables of the lanes, by path, if several jobs of one process use them; None to open them here.
            swap: State that is swapped with the turn; None if the job has the process to itself.
        """
        self.ends_itself = False
        self._launch = launch
        self._swap = swap
        self._trace = Tracer(trace_path(Path(launch.folder), launch.attempt), launch.opened_s)
        self._reports = Reporter(reports_path(Path(launch.folder), launch.attempt))
        self._gang = self._joined() if launch.ranks > 1 else None
        self._turns = [
            LaneTurn(
                LaneTable(path) if tables is None else tables[path],
                slot,
                None if place else self._trace,
                swap,
                partial(empty_cache, launch.device),
                page_out if launch.device == "cpu" else lambda: None,
                self._gang,
                self._may_cut,
                launch.device == "cpu",
            )
            for place, (path, slot) in enumerate(launch.tables)
        ]
        # A lane on processors has no device of an accelerator that the script may use.
        self._pace = DeviceSync(self._devices[0] if launch.device == "cuda" else None)
        self._hooks: Any = None
        self._observer: MemoryObserver | None = None
        self._pid = os.getpid()
        self._told_memory_s = -math.inf
        # One process on several devices would have to hand over on all of them at one moment. So it keeps its lanes.
        self._keeps_lanes = len(self._turns) > 1
        self._kept: KeptLane | None = None
        self._hears_cuts = self._is_watched = False
        self._kept_pace_s = -math.inf

    def start(self) -> None:
        """Take the turn before the script begins, if its first work is device work."""
        if self._launch.launcher:
            self.keep_lane(f"{self._launch.launcher} starts processes that use the device")
        else:
            self._listen()
            if self._launch.device == "cpu" or self._launch.ranks:
                self.take()

    def _listen(self) -> None:
        """Let jobs that wait cut the turn. One of a gang or of a shared process keeps it."""
        if self._gang is None and len(self._turns) == 1 and self._swap is None:
            self._hears_cuts = cuts.listen(self._cut, self._turns[0].end_cuts)

    def _may_cut(self) -> bool:
        """Whether the turn that begins may be cut: the script works in the main thread, and in no other process."""
        return (
            self._hears_cuts
            and signal.getsignal(cuts.CUT) == self._cut
            and (self._hooks is None or self._hooks.is_in_main_thread)
            and not self._spans_processes()
        )

    def _cut(self, _number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            return
        if cuts.is_safe(frame):
            if not self._spans_processes():
                self._use_turn(self._cut_turn)
        elif frame is not None and self._turns[0].slot.is_taken and not self._is_watched:
            self._is_watched = True
            cuts.tell_when_moved(frame, self._has_asked_again)

    def _has_asked_again(self) -> bool:
        """Whether the job has asked for the turn that was taken, so that nothing looks when it comes on any more."""
        self._is_watched = self._turns[0].slot.is_taken
        return not self._is_watched

    def _place(self, _parameter: object) -> None:
        """Let the turn be cut here, as the hook of a parameter in a backward pass.

        In the main thread Python's handler does that. A GPU comes here with the processor, or a cut would have to wait
        for all that it has still to do.
        """
        if threading.get_ident() == threading.main_thread().ident or os.getpid() != self._pid:
            return
        if self._turns[0].cut_is_asked and cuts.is_safe_in_backward() and not self._spans_processes():
            self._cut_turn()
        elif self._launch.device == "cuda" and time.monotonic() - self._kept_pace_s > _PACE_S:
            if not cuts.is_capturing():
                self._pace.keep()
            self._kept_pace_s = time.monotonic()

    def _cut_turn(self) -> None:
        self._turns[0].cut(self._drain)

    def take(self) -> None:
        """Wait for the turn of every lane."""
        self._use_turn(self._take_all)

    def keep_lane(self, why: str) -> None:
        """Take the turn and keep it to the end of the job, because its child processes use the device.

        Args:
            why: Reason in words.
        """
        if self._kept is not None:
            self._kept.begin(why)
        else:  # on the CPU the job has the turn, and a launcher has no iterations between which it could offer it
            self.take()
            write_note(self._note, why)

    def end(self) -> None:
        """Count the last iteration and give up the turn for good: the script and its threads are over."""
        if os.getpid() != self._pid:
            return  # a child that the script has forked ends with the same handlers
        self.finish()
        if self._launch.device == "cpu":
            with contextlib.suppress(OSError, ValueError, KeyError):  # else the supervisor counts files, too
                self.tell_memory(own_peak_bytes(), 0)
        if self._kept is None or not self._kept.is_asked:  # else children may be left: the supervisor ends them first
            self._use_turn(self._leave_all)
        if self._gang is not None:
            self._gang.leave()
        self._trace.flush()

    def finish(self) -> None:
        """Count the last iteration and yield no more: the script is over."""
        if self._hooks is not None:
            self._hooks.finish()

    def go_on(self) -> None:
        """Let the hooks of the process report to this job again."""
        if self._hooks is not None:
            self._hooks.go_on()

    def close(self) -> None:
        """Close the job's files. The job is over, but its process is not."""
        self._trace.close()
        self._reports.close()

    def leave(self) -> None:
        """Give up the turn of every lane, unless other processes work on the device with this job."""
        if not self._spans_processes():
            self._use_turn(self._leave_all)

    @property
    def absence_cost_s(self) -> float:
        return self._turns[0].absence_cost_s

    @property
    def is_waited_for(self) -> bool:
        return any(turn.is_waited_for for turn in self._turns)

    @property
    def cut_hook(self) -> Callable[[object], None] | None:
        """Hook of parameters that lets the turn be cut in a backward pass; None if it need not be, as things are."""
        return self._place if self._hears_cuts and self._turns[0].may_be_cut else None

    def boundary(self, kind: Boundary) -> None:
        """Count the iteration that has ended, and let another job run if it is time."""
        self._pace.keep()
        turn = self._turns[0]
        if self._launch.device == "cuda":
            self._tell_memory(turn)
        self._count(kind)
        if self._swap is not None:
            self._swap.boundary()
        if self._gang is not None:
            self._offer_with_gang(self._gang, kind)
        elif not self._keeps_lanes and not self._spans_processes():
            self._use_turn(self._offer)
        else:
            turn.stop_if_asked(self._drain)
        if self._observer is not None or turn.asked:
            self._answer(turn)

    def tell_memory(self, peak_bytes: int, kept_bytes: int) -> None:
        """Tell the largest device memory (bytes) of a job that shares its process, and what it keeps; 0 for none."""
        self._turns[0].tell_memory(peak_bytes, kept_bytes)

    def _tell_memory(self, turn: LaneTurn) -> None:
        """Tell how much device memory the job takes and keeps, a few times a second: torch needs some 50 us to say it.

        Jobs that share a process tell theirs themselves, see `fused_process.py`.
        """
        now_s = time.monotonic()
        if self._swap is None and now_s - self._told_memory_s > _MEMORY_S:
            self._told_memory_s = now_s
            peak_bytes, kept_bytes = memory_in_use(self._devices[0])
            if peak_bytes:
                turn.tell_memory(peak_bytes, kept_bytes)

    def count(self, kind: Boundary) -> None:
        """Count the last iteration of a script that is over, without waiting for the turn."""
        self._count(kind)

    def _count(self, kind: Boundary) -> None:
        self._turns[0].count(kind is Boundary.EVAL, self._hooks is not None and self._hooks.by_steps)

    def hear(self) -> None:
        """Let the script report values with `ecoshare.report()`, and measure its answers if it is a service."""
        ecoshare._report = self._reports.report
        if path := self._launch.batches_path:
            ecoshare._measurement = AnswerMeasurement(path, self._launch.opened_s, self._measuring, self._drain)

    def watch_torch(self) -> None:
        """Install the hooks. torch must be imported."""
        from ecoshare.lane.hooks import Hooks

        cuda = self._launch.device == "cuda"
        self._hooks = Hooks(self, accelerator=cuda, stays=self._swap is not None)
        self._hooks.install()
        ecoshare._declare = self._hooks.declare
        if cuda and self._swap is not None:
            self._limit_cuda()
        elif cuda:
            self._watch_cuda()

    def watch_children(self) -> None:
        """Keep the lane from the moment on at which child processes use the device. Call this in the main thread."""
        self._kept = KeptLane(self._note, self._take_all)
        self._kept.listen()
        child_processes.watch_child_starts(self._child_starts)

    def _child_starts(self, why: str) -> None:
        confinement.restore_visible_devices(self._launch.env)
        assert self._kept is not None
        self._kept.begin(why)

    def tell_end(self, error: BaseException) -> None:
        """Tell the supervisor of the exception with which the script ends. Call this before it is printed."""
        if os.getpid() != self._pid:
            return  # a child that the script has forked
        if _is_out_of_memory(error):
            self._turns[0].tell_out_of_memory()
        with contextlib.suppress(Exception):  # the script may have replaced what is needed: it ends all the same
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        with contextlib.suppress(Exception):
            self._turns[0].tell_reason(exit_records.reason_of(error, Path(self._launch.folder)))

    @contextlib.contextmanager
    def _measuring(self) -> Iterator[Callable[[], None]]:
        """Context manager as `AnswerMeasurement` describes it."""
        import torch  # noqa: F401 - so that the hooks are there

        with self._hooks.holding():
            self.take()
            yield partial(self.boundary, Boundary.EVAL)

    def _answer(self, turn: LaneTurn) -> None:
        """Do what the controller asks at a boundary, after any wait."""
        answers = BoundaryAnswers(lambda: turn.slot)
        if turn.asked == BoundaryRequest.FLUSH:
            self._trace.flush()
            answers.give(BoundaryRequest.NOTHING)
        elif turn.asked == BoundaryRequest.LIMIT:
            answers.limit(partial(change_limit, device=self._devices[0]))
        elif self._observer is None and turn.asked == BoundaryRequest.OBSERVE:
            self._observer = MemoryObserver(self._launch.device, alone=self._swap is None)
        if self._observer is not None and turn.asked != BoundaryRequest.OBSERVE:  # the window is over
            self._observer.result()
            self._observer = None
        if self._observer is not None and self._observer.boundary():
            self._observer.write(memory_path(Path(self._launch.folder), self._launch.attempt))
            self._observer = None
            answers.give(BoundaryRequest.OBSERVED)
            answers.stay(_LOOKED_AT_WITHIN_S)

    def _watch_cuda(self) -> None:
        """Let CUDA begin on the device of the lane, and with the turn. torch must be imported."""
        import torch

        confinement.keep_visible_devices(self._launch.env)
        torch.cuda._lazy_call(self._begin_cuda)  # type: ignore[no-untyped-call]

    def _begin_cuda(self) -> None:
        """Take the turn: the script has initialised CUDA, and its first device work comes next."""
        confinement.check_device(self._launch.env, self._devices)
        if self._kept is not None and os.getpid() != self._pid:  # a child that the script has forked
            self._kept.begin()
        else:
            self._begin_device_work()
        self._limit_cuda()

    def _begin_device_work(self) -> None:
        self.take()

    def _limit_cuda(self) -> None:
        """Limit the allocator on each device to the memory that the context leaves of the memory of the job."""
        launch = self._launch
        most_bytes = launch.process_bytes if launch.fused else launch.cap_bytes
        for device in self._devices:
            limit_cuda(most_bytes - launch.context_bytes, device)

    def _drain(self) -> None:
        sees_several = self._launch.device == "cuda" and len(self._launch.gang_lanes or self._turns) > 1
        drain(alone=self._swap is None, devices=self._devices if sees_several else ())

    @property
    def _devices(self) -> Sequence[int]:
        """Numbers of the devices of this process among those that it sees. A rank sees those of the others, too."""
        return [self._launch.rank] if self._launch.ranks else range(len(self._launch.tables))

    @property
    def _note(self) -> Path:
        return note_path(gang.job_folder(self._launch), self._launch.attempt)

    def _spans_processes(self) -> bool:
        """Whether other processes work on the device with this one, so that the job must keep its turn."""
        return (
            gang.is_one_of_several(self._launch)
            or spans_processes()
            or (self._kept is not None and self._kept.is_asked)
        )

    def _use_turn(self, use: Callable[[], None]) -> None:
        if self._kept is None:
            use()
        else:
            self._kept.during(use)

    def _joined(self) -> GangTurn:
        launch = self._launch
        lanes = [(path, slot) for path, slot in launch.gang_lanes]
        return GangTurn(GangTable(launch.gang_table), launch.rank, lanes, partial(write_note, self._note))

    def _offer_with_gang(self, turn: GangTurn, kind: Boundary) -> None:
        """Hand over with the other ranks, if it is time.

        Only training iterations count: one rank may evaluate alone while the others wait for it in a collective.
        """
        if self._kept is not None and self._kept.is_asked:
            turn.keep("a process that it has started uses the device")
        elif kind is not Boundary.EVAL:
            self._use_turn(partial(turn.boundary, self._turns[0], self._drain))

    def _take_all(self) -> None:
        for turn in self._turns:
            turn.take()

    def _offer(self) -> None:
        self._turns[0].offer(self._drain)

    def _leave_all(self) -> None:
        with contextlib.suppress(RuntimeError):  # a device that has failed has nothing left to drain
            self._drain()
        for turn in self._turns:
            turn.leave()


cuts.passes_on(HookedJob._place)


def _is_out_of_memory(error: BaseException) -> bool:
    torch = sys.modules.get("torch")
    if isinstance(error, MemoryError) or (torch is not None and isinstance(error, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
