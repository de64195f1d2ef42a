"""One attempt of a job as its supervisor sees it: its process, its limits, and its end."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ecoshare.base.attempt import Outcome
from ecoshare.base.service import CALL_LIMIT_S
from ecoshare.lane import exit_records, messages, processes
from ecoshare.lane.child_processes import KEEP_LANE
from ecoshare.lane.messages import PRUNED, Ended, LaunchAttempt, Left, Message, MoveAttempt, StopAttempt
from ecoshare.lane.supervisor.gang import OF_RANK, number_of
from ecoshare.lane.tables.gang_table import GangTable
from ecoshare.lane.tables.lane_table import LaneTable
from ecoshare.lane.tables.table_layout import CutState, Slot, SlotState

_SIGTERM_TO_SIGKILL_S = 3.0
"""Time (s) between the two signals for a job that hangs, and so has nothing to save."""


_OF_A_REASON = (1, 130)
"""Exit codes of a script that raises an exception, or exits with a text: the reason says all."""

_TAKEN = re.compile("EADDRINUSE|address already in use", re.IGNORECASE)
_PORT_IS_TAKEN = "; another job of the run may use the same port: give each its own, such as `env: {MASTER_PORT: ...}`"
"""Hint for a job that cannot listen at its port, which many scripts fix."""


@dataclass(frozen=True, slots=True)
class PreparedSlot:
    """A slot that was prepared for a job.

    Attributes:
        table: Table of the lane.
        slot: Index of the slot in the table.
        owner: Id of the command for which the slot was prepared.
    """

    table: LaneTable
    slot: int
    owner: int

    @property
    def is_kept(self) -> bool:
        """Whether the slot is still the job's: the job has not left it, and it was not freed."""
        slot = self.table.slots[self.slot]
        return bool(slot.owner == self.owner and slot.seat != SlotState.EMPTY)


@dataclass(slots=True)
class AttemptProcess:
    """A running process and its limits.

    Attributes:
        places: Slots of the job. A gang has one in each lane; any other job has its slot, and after a request to move
            the new one.
        stop: Request to end the job; None if there is none.
        terminated: Whether the supervisor has sent SIGTERM.
        verdict: Outcome and reason, if the supervisor itself decided that the job must end; else None.
        deadlines: Signals to send if the job is still there: (monotonic time in seconds, signal), in order.
        killed: Whether the process was killed because of this job.
        gang: Gang that the process is a rank of; None if it is none.
    """

    launch: LaunchAttempt
    pid: int
    pidfd: int
    places: list[PreparedSlot]
    stop: StopAttempt | None = None
    terminated: bool = False
    verdict: tuple[str, str] | None = None
    deadlines: tuple[tuple[float, signal.Signals], ...] = ()
    killed: bool = False
    gang: Gang | None = None

    @property
    def place(self) -> PreparedSlot:
        """Slot in which the job and its counters are; for a gang, the slot in the first lane."""
        return next((place for place in self.places if place.is_kept), self.places[-1])

    @property
    def slot(self) -> Slot:
        """Table entry of the job in `place`."""
        return self.place.table.slots[self.place.slot]

    @property
    def mps(self) -> str | None:
        """Pipe folder of the MPS daemon of which the job is a client; None without one."""
        return self.launch.env.get("CUDA_MPS_PIPE_DIRECTORY") if self.launch.device == "cuda" else None

    def ask_to_end(self, stop: StopAttempt) -> None:
        """Carry out a `StopAttempt`: SIGKILL at once, or an end at the next boundary.

        A job that has not ended after the grace period gets SIGTERM, and after a second grace period SIGKILL. Ranks
        that do not hand over together get SIGTERM at once: one that ended at a boundary would leave the others waiting.
        So does a service, which may wait for its next request for ever, unless it is a thread: its wait ends at once.
        """
        self.stop = stop
        if stop.at_once:  # jobs that share its process begin again
            self.kill()
            return
        waits = self.launch.service is not None and not self.launch.fused
        if waits or (self.gang is not None and self.gang.table.keeps):
            now_s = time.monotonic()
            self.deadlines = ((now_s, signal.SIGTERM), (now_s + stop.grace_s, signal.SIGKILL))
            return
        # The job's present slot comes first: under its lock, the job either sees the request or has moved on before.
        for place in self.places:
            place.table.stop(place.slot, place.owner)
        self._give_grace(stop.grace_s)

    def _give_grace(self, grace_s: float) -> None:
        now_s = time.monotonic()
        self.deadlines = ((now_s + grace_s, signal.SIGTERM), (now_s + 2 * grace_s, signal.SIGKILL))

    def go_on(self, table: LaneTable, move: MoveAttempt) -> None:
        """Ask the job to go on in a slot of another lane, unless it was asked to end."""
        if self.stop is not None:
            return
        here = self.place
        self.places = [here, PreparedSlot(table, move.slot, move.command)]
        here.table.send(here.slot, move.lane, move.slot, here.owner)

    def keep_lane(self) -> None:
        """Ask the job to take its turn and keep it. Do nothing if its process cannot hear that."""
        if not self.launch.fused and processes.catches(self.pid, KEEP_LANE):
            signal.pidfd_send_signal(self.pidfd, KEEP_LANE)

    def free(self) -> None:
        """Free the slots of the job; its process is gone."""
        # The slot that the job was in comes last: if it were empty beside a prepared one, the job would seem to have
        # moved on.
        last = self.place
        for place in (*(each for each in self.places if each is not last), last):
            place.table.free(place.slot, place.owner)

    def watch(self, now_s: float) -> None:
        """Check the job's progress. End the job if it has passed a limit."""
        if self.launch.fused and self.stop is not None and self.slot.seat != SlotState.HOLDING:
            self._give_grace(self.stop.grace_s)  # it can end only with its turn, and then does so at once
        while self.deadlines and self.deadlines[0][0] <= now_s:
            (_, number), *rest = self.deadlines
            self.deadlines = tuple(rest)
            self._send(number)
        if self.verdict is None:
            self.verdict = self._hanging(now_s)
            if self.verdict is not None:
                if self.launch.fused:  # if it still reaches a boundary, the other jobs of its process survive
                    self.place.table.stop(self.place.slot, self.place.owner)
                self.deadlines = (
                    (now_s, signal.SIGTERM),
                    (now_s + _SIGTERM_TO_SIGKILL_S, signal.SIGKILL),
                )
                self.watch(now_s)

    def kill(self) -> None:
        """Kill the process and its family now."""
        self._send(signal.SIGKILL)

    def end_outgrown(self, reason: str) -> None:
        """Kill the job, which has outgrown its memory: each moment may harm its neighbours."""
        self.verdict = self.verdict or ("outgrew its memory", reason)
        self.kill()

    def end_hung(self) -> None:
        """Kill the job: its process was stopped from outside while it held its lane's lock, so all of the lane wait."""
        self.verdict = self.verdict or ("timed out", "its process was stopped (SIGSTOP) while it held its lane's lock")
        self.kill()

    def _send(self, number: signal.Signals) -> None:
        if number is signal.SIGKILL:
            self.killed = True
            processes.kill_family(self.pid, self.mps)
        elif self.slot.stop != 2 and not self.launch.fused:  # 2: it sent itself the signal at a boundary
            self.terminated = True
            os.kill(self.pid, number)

    def _hanging(self, now_s: float) -> tuple[str, str] | None:
        """Verdict on a job that holds its turn for too long. Before its first boundary it has a limit of its own."""
        slot = self.slot
        if slot.seat != SlotState.HOLDING and not slot.is_taken:
            return None
        if self.launch.service is not None:
            limit_s, silent_s = self._call_limit_s(), min(now_s - max(slot.last_s, slot.since_s), self._delays_s(now_s))
            what = "inside a call while another job waited (timeout)"
        elif slot.last_s == 0.0:
            limit_s = self.launch.startup_timeout_s
            silent_s = now_s + (slot.held_s - slot.since_s if slot.is_taken else slot.balance_s)
            if self.gang is not None:
                silent_s = min(silent_s, self.gang.together_for_s(now_s))
            what = "before its first iteration ended (startup_timeout)"
        else:
            limit_s, silent_s = self.launch.timeout_s, slot.silent_s(now_s)
            what = "inside an iteration (timeout)"
        if limit_s is None or silent_s <= limit_s:
            return None
        return "timed out", f"held its turn for {silent_s:.1f} s {what}"

    def _call_limit_s(self) -> float | None:
        """Longest time (s) for one call of a service while others wait; None for any, where it wakes a server."""
        wakes = bool(self.launch.service and self.launch.service.get("sleep"))
        return CALL_LIMIT_S if self.launch.timeout_s is None and not wakes else self.launch.timeout_s

    def _delays_s(self, now_s: float) -> float:
        """Longest time (s) for which another job of the lane has waited for its turn; 0 if none waits."""
        table = self.place.table
        slots = table.slots[: table.header.used]
        return max((now_s - each.since_s for each in slots if each.seat == SlotState.WAITING), default=0.0)

    def ended(self, status: int, used: resource.struct_rusage) -> Ended:
        """Record of the job's end, from the status and resource usage that wait4(2) returned."""
        exit_code = os.waitstatus_to_exitcode(status)
        more = {
            "cpu_s": used.ru_utime + used.ru_stime,
            "peak_bytes": self.slot.peak_bytes or (used.ru_maxrss * 1024 if self.launch.device == "cpu" else 0),
        }
        return self._record(*self._outcome(exit_code), exit_code, more)

    def left(self, left: Left) -> Ended:
        """Record of the job's end in a shared process that goes on."""
        outcome, reason = self._outcome(left.exit_code)
        if self.stop is None and left.moved_out:
            outcome, reason = "moved out", f"needs a process of its own: {left.moved_out}"
        return self._record(*self._believed(outcome, reason), left.exit_code, {"peak_bytes": left.peak_bytes})

    def not_started(self, error: str) -> Ended:
        """Record of a job that a shared process cannot start."""
        return self._record(*self._believed("failed", error), None, {})

    @staticmethod
    def _believed(outcome: str, reason: str) -> tuple[str, str]:
        """Outcome and reason to record for a job in a shared process.

        Other jobs of the process may have caused a failure, so a failure counts only if it repeats alone.
        """
        if outcome in ("failed", "crashed", "out of memory"):
            return "moved out", f"tried again in a process of its own: {reason}"
        return outcome, reason

    def died_in(self, status: int, culprit: AttemptProcess | None) -> Ended:
        """Record of the job's end after its shared process died.

        Args:
            status: Status of the process that wait4(2) returned.
            culprit: Job of the process that caused the death; None if no job is known to.
        """
        exit_code = os.waitstatus_to_exitcode(status)
        if culprit is self:
            return self._record(*self._believed(*self._outcome(exit_code)), exit_code, {})
        if self.stop is not None:
            return self._record("pruned" if self.stop.pruned else "stopped", self.stop.reason, None, {})
        why = f"of {culprit.launch.job}" if culprit is not None else _how(exit_code)
        return self._record("lost", f"the process that it shared died {why}", None, {})

    def _record(self, outcome: str, reason: str, exit_code: int | None, more: dict[str, Any]) -> Ended:
        if exit_code is not None and exit_code < 0:
            exit_code = 128 - exit_code
        return Ended(
            job=self.launch.job,
            attempt=self.launch.attempt,
            outcome=outcome,
            exit_code=exit_code,
            reason=reason,
            usage={**usage(self.slot), **more},
        )

    def _outcome(self, exit_code: int) -> tuple[str, str]:
        slot = self.slot
        # A process that ended before it was killed has ended by itself.
        killed = exit_code == -signal.SIGKILL
        if self.verdict is not None and (killed or self.terminated or (self.launch.fused and slot.stop == 2)):
            return self.verdict
        if self.stop is not None and (killed or self.terminated or slot.stop == 2):
            return "pruned" if self.stop.pruned else "stopped", self.stop.reason
        if exit_code == 0:
            return "completed", ""
        if exit_code == PRUNED and self.launch.called is not None:
            return "pruned", "it has ended itself early"
        outcome = "out of memory" if slot.out_of_memory else "crashed" if exit_code < 0 else "failed"
        reason = self._reason(exit_code)
        return outcome, reason + (_PORT_IS_TAKEN if _TAKEN.search(reason) else "")

    def _reason(self, exit_code: int) -> str:
        """Reason why the job has ended without success."""
        how = f"exit code {exit_code}" if exit_code >= 0 else _how(exit_code)
        told = exit_records.one_line(self.slot.reason.decode(errors="ignore"))
        if told.startswith(how) or (told and exit_code in _OF_A_REASON):
            return told
        said = told or exit_records.last_words(Path(self.launch.folder), killed=exit_code < 0)
        return f"{how}: {said}" if said else how


def _how(exit_code: int) -> str:
    """Text on how a process ended. A code below 0 is minus the number of a signal."""
    if exit_code >= 0:
        return f"with exit code {exit_code}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:  # a real-time signal
        name = f"signal {-exit_code}"
    if name == "SIGKILL":
        name += " (not sent by ecoshare: by hand, or by the kernel for lack of memory)"
    return f"killed by {name}"


def usage(slot: Slot, clock_s: Callable[[], float] = time.monotonic) -> dict[str, Any]:
    """Counters of a slot: those fields of a `core.events.Usage` that a lane knows."""
    return {
        "iterations": slot.iterations,
        "eval_iterations": slot.eval_iterations,
        "by_steps": bool(slot.by_steps),
        "held_s": _held_s(slot, clock_s),
        "waited_s": slot.waited_at_last_s - slot.waited_at_first_s,
        "span_s": slot.last_s - slot.first_s if slot.last_s else 0.0,
        "longest_wait_s": slot.longest_wait_s,
        "handovers": slot.handovers,
        "peak_bytes": slot.peak_bytes,
        "kept_bytes": slot.kept_bytes,
        "cpu_s": slot.cpu_s,
        "longest_iteration_s": slot.longest_iteration_s,
        "cut_s": slot.cut_s,
        "never_cut": bool(slot.handovers) and slot.cut == CutState.NEVER,
    }


def _held_s(slot: Slot, clock_s: Callable[[], float]) -> float:
    """Time (s) for which the job has held the turn. The read repeats if the turn changes hands meanwhile."""
    while True:
        turn = slot.seat, slot.handovers
        held_s = slot.balance_s + clock_s() if slot.seat == SlotState.HOLDING else slot.held_s
        if (slot.seat, slot.handovers) == turn:
            return float(held_s)


_IDLE_S = 5.0
"""Time (s) for which a process without a job is kept: the next trial of a sweep comes at once, or after others end."""

Place = tuple[str, str]
"""Key that jobs of one process share: their script or module, and the path of their lane's table."""


def place_of(launch: LaunchAttempt) -> Place:
    """Key of the process in which a fused job belongs."""
    return launch.script or str(launch.module), launch.tables[0][0]


@dataclass(slots=True, eq=False)
class FusedProcessHandle:
    """One process of a fused lane.

    Attributes:
        place: Key of its jobs.
        channel: Socket to the process: launches go in, messages on their ends come out.
        attempts: Attempts that are in the process.
        retires: Whether the process gets no more attempts.
    """

    place: Place
    pid: int
    pidfd: int
    channel: socket.socket
    attempts: list[AttemptProcess] = field(default_factory=list)
    retires: bool = False
    _idle_since_s: float = field(default_factory=time.monotonic)
    _is_dismissed: bool = False
    _pending: bytes = b""

    def start(self, attempt: AttemptProcess) -> None:
        """Tell the process to start an attempt. If the process is gone, the supervisor ends the attempt with it."""
        self.attempts.append(attempt)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.channel.sendall(messages.encode(attempt.launch))

    def hear(self) -> list[Message] | None:
        """Receive messages of the process; None if no more will come."""
        try:
            received = self.channel.recv(1 << 16)
        except ConnectionResetError:
            received = b""
        if not received:
            return None
        *lines, self._pending = (self._pending + received).split(b"\n")
        return [messages.decode(line) for line in lines]

    def take_out(self, command: int) -> AttemptProcess:
        """Remove and return the attempt that a command started."""
        attempt = next(each for each in self.attempts if each.launch.command == command)
        self.attempts.remove(attempt)
        self._idle_since_s = time.monotonic()
        return attempt

    def culprit(self) -> AttemptProcess | None:
        """Attempt that caused the death of the process; None if there is none.

        It is the attempt that was killed on purpose, else the one with the turn.
        """
        for attempt in self.attempts:
            if attempt.killed:
                return attempt
        for attempt in self.attempts:
            if attempt.place.table.header.holder == attempt.place.slot:
                return attempt
        return None

    def dismiss_if_idle(self, now_s: float) -> None:
        """Let the process end if it has no job and is not worth keeping."""
        if not self.attempts and not self._is_dismissed and (self.retires or now_s - self._idle_since_s > _IDLE_S):
            self.retires = self._is_dismissed = True
            self.channel.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the descriptors of a process that is gone."""
        self.channel.close()
        os.close(self.pidfd)


@dataclass(slots=True)
class Gang:
    """Ranks of an attempt, seen from their supervisor.

    A rank that ends without success ends the others at once: they would wait for it in their collectives for ever.

    Attributes:
        launch: The attempt.
        table: Table by which the ranks agree when to hand over.
        running: Ranks that have not ended.
        ended: End of each rank that has ended.
        culprit: Rank that ended the others; None if there is none.
        is_given_up: Whether the attempt was reported as not launched, so that its end is not reported.
    """

    launch: LaunchAttempt
    table: GangTable
    running: list[AttemptProcess] = field(default_factory=list)
    ended: dict[int, Ended] = field(default_factory=dict)
    culprit: int | None = None
    is_given_up: bool = False
    _together_s: float | None = None

    def together_for_s(self, now_s: float) -> float:
        """Time (s) since all ranks were first seen with their turns; 0 before. A rank may need others to prepare."""
        if self._together_s is None and self.table.all_have_turn:
            self._together_s = now_s
        return 0.0 if self._together_s is None else now_s - self._together_s

    def give_up(self) -> None:
        """End the ranks that were started, because another one could not be."""
        self.is_given_up = True
        self._kill_all()

    def rank_ended(self, rank: AttemptProcess, ended: Ended) -> Ended | None:
        """Note the end of a rank. Return the end of the attempt if it was the last one, else None."""
        self.running.remove(rank)
        if not self.running:
            self.table.close()
        self.ended[rank.launch.rank] = ended
        outcome = Outcome(ended.outcome)
        # Ranks that were asked to end have a grace each.
        is_failure = outcome is not Outcome.COMPLETED and not outcome.was_asked_for
        if is_failure and self.culprit is None and not self.is_given_up:
            self.culprit = rank.launch.rank
            self._kill_all()
        return self._whole() if not self.running and not self.is_given_up else None

    def _kill_all(self) -> None:
        for each in self.running:
            each.kill()

    def _whole(self) -> Ended:
        """End of the attempt: that of the rank which ended the others, with the counters of rank 0.

        If none did, the attempt was stopped if any rank was.
        """
        stopped = [rank for rank, each in self.ended.items() if Outcome(each.outcome).was_asked_for]
        rank = self.culprit if self.culprit is not None else min(stopped, default=0)
        told = self.ended[rank]
        is_of_rank = self.culprit is not None and told.reason
        reason = f"{OF_RANK}{number_of(self.launch, rank)}: {told.reason}" if is_of_rank else told.reason
        usages = [each.usage for each in self.ended.values()]
        usage = {
            **self.ended[0].usage,
            "cpu_s": _over(sum, usages, "cpu_s"),
            "peak_bytes": _over(max, usages, "peak_bytes"),
        }
        return replace(told, reason=reason, usage=usage)


def _over(function: Callable[[list[float]], float], usages: list[dict[str, float]], name: str) -> float:
    return function([usage.get(name, 0) for usage in usages])
