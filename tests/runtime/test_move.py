"""Real scripts that move between lanes of a real run again and again: the same bits, and nothing counts twice."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest

from ecoshare.base.attempt import Usage
from ecoshare.core.commands import Command, MoveJob, ProfileJob, StartJob, WakeAt
from ecoshare.core.events import Done, Event, JobExited, Profiled, Refused
from ecoshare.core.records import JobState
from ecoshare.core.scheduler import Scheduler
from ecoshare.devices import registry
from ecoshare.jobs.load import load
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.lane.tables.table_layout import SlotState
from ecoshare.record import event_log, run_documents
from ecoshare.record.log_fold import LogEntry
from ecoshare.record.run_view import ProgressDisplay
from ecoshare.reporting.progress import Silent
from ecoshare.runtime import run_lifecycle, run_opening
from ecoshare.runtime.driver import Driver, JobSource
from ecoshare.runtime.nodes import cleanup, run_host
from ecoshare.runtime.nodes.attempts import Moving
from ecoshare.runtime.nodes.node import Node
from ecoshare.runtime.run import Run
from ecoshare.runtime.run_lifecycle import FinishedRun
from tests.planning import planned
from tests.runtime.running import SCRIPTS, alone, job_file, slow_steps
from tests.warm import spawned

OWN = 1_000_000
"""First id of the commands that the core did not give."""

EVERY_S = 0.03


class Moves(Scheduler):
    """Core with added moves: every running job moves to the other lane again and again."""

    def __init__(self, also: Callable[[Node, float], None] | None = None) -> None:
        """Make a core without moves yet; `also` is called at each look."""
        super().__init__()
        self.node: Node
        self.asked: dict[int, str] = {}
        self.arrived: Counter[str] = Counter()
        self.refused: list[str] = []
        self.seen: dict[tuple[str, int], Usage] = {}
        self._also, self._last, self._dice = also, OWN, random.Random(7)

    def handle(self, event: Event) -> list[Command]:
        """Commands of the core, and moves."""
        if isinstance(event, Done | Refused) and event.command in self.asked:
            job = self.asked.pop(event.command)
            if isinstance(event, Done):
                self.arrived[job] += 1
            else:
                self.refused.append(event.error)
            return []
        if isinstance(event, JobExited):  # which answers its move
            self.asked = {command: job for command, job in self.asked.items() if job != event.job}
        if not (isinstance(event, Done) and event.command > OWN):
            commands = super().handle(event)
            return [*commands, self._wake(event.at_s)] if self._last == OWN else commands
        self._look()
        if self._also is not None:
            self._also(self.node, event.at_s)
        return [*self._moves(), self._wake(event.at_s)] if self.live_jobs else []

    def _id(self) -> int:
        self._last += 1
        return self._last

    def _wake(self, at_s: float) -> WakeAt:
        return WakeAt(self._id(), at_s + EVERY_S)

    def _moves(self) -> list[Command]:
        commands: list[Command] = []
        for name, process in self.node.attempts.live.items():
            may_move = self.jobs[name].state is JobState.RUNNING and name not in self.asked.values()
            if may_move and self._dice.random() < 0.7:
                command = MoveJob(self._id(), name, process.attempt, 1 - process.places[0][0])
                self.asked[command.id] = name
                commands.append(command)
        return commands

    def _look(self) -> None:
        """Check that the reported progress of a job only grows."""
        for name, process in self.node.attempts.live.items():
            usage, key = self.node.attempts.usage(name), (name, process.attempt)
            for what, before in asdict(self.seen.get(key, Usage())).items():
                # The longest of late decays, and a turn may come to be cut.
                if isinstance(before, int | float) and what not in ("longest_iteration_s", "never_cut"):
                    assert getattr(usage, what) >= before, (name, what, before, usage)
            self.seen[key] = usage


@dataclass
class Moved:
    """Finished run.

    Attributes:
        slots: Slots that were not empty after the jobs had ended, by lane.
    """

    core: Moves
    result: FinishedRun
    entries: list[LogEntry]
    slots: list[int] = field(default_factory=list)

    def job(self, name: str) -> dict[str, Any]:
        """Part of the summary about a job."""
        return next(job for job in self.result.data.summary.as_dict()["jobs"] if job["name"] == name)

    def log(self, name: str) -> bytes:
        """Output of a job."""
        return (self.result.folder.job(name) / "stdout.log").read_bytes()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Moved]]:
    """Run jobs in two lanes in this process, with moves."""
    before = signal.getsignal(signal.SIGINT)

    def start(core: Moves, *jobs: dict[str, Any], profiles: Path | None = None) -> Moved:
        loaded = load(job_file(tmp_path, *jobs))
        store = ProfileStore(profiles) if profiles is not None else None
        plan = planned(loaded, (registry.find("cpu"),), policy="fair", lanes=2, jobs_per_lane=4, store=store)

        def make(run: Run, progress: ProgressDisplay, source: JobSource | None) -> Driver:
            run.core, core.node = core, cast(Node, run.node)
            return Driver(run, progress, source)

        monkeypatch.setattr(run_lifecycle, "Driver", make)
        monkeypatch.setattr(run_host, "Spawned", spawned)
        result = run_opening.start(plan, loaded.text, tmp_path / "ecoshare-runs", Silent())
        tables = core.node.attempts.tables.values()
        left = [sum(slot.seat != SlotState.EMPTY for slot in table.slots) for table in tables]
        assert not cleanup.members(run_documents.read_environment(result.folder.environment)["token"])
        assert not core.node.attempts.moving.pending
        return Moved(core, result, list(event_log.read(result.folder.events)), left)

    yield start
    signal.signal(signal.SIGINT, before)


@cache
def printed_alone(script: Path, args: tuple[str, ...]) -> bytes:
    code, stdout = alone(script, args, script.parent)
    assert code == 0
    return stdout


def check_alike(moved: Moved, name: str, script: Path, args: tuple[str, ...], iterations: int) -> None:
    assert moved.log(name) == printed_alone(script, args), "it is not what it is alone"
    assert (moved.job(name)["state"], moved.job(name)["iterations"]) == ("completed", iterations)


@pytest.mark.slow
def test_jobs_that_move_do_what_they_do_alone(run: Callable[..., Moved]) -> None:
    loader = {"name": "loads", "script": str(SCRIPTS / "workers.py")}
    core = Moves()
    moved = run(core, *(slow_steps(f"j{number}", 90, 4) for number in range(2)), loader)
    for number in range(2):
        assert core.arrived[f"j{number}"] >= 5, "it hardly moved"
        check_alike(moved, f"j{number}", SCRIPTS / "slow_steps.py", ("--steps", "90", "--ms", "4"), 90)
    check_alike(moved, "loads", SCRIPTS / "workers.py", (), 16)
    ends = {event.job: event.usage for event in moved.entries if isinstance(event, JobExited)}
    for (name, _), seen in core.seen.items():
        assert ends[name].held_s >= seen.held_s - 0.005 and ends[name].handovers >= seen.handovers
    assert moved.slots == [0, 0]
    assert not core.refused


@pytest.mark.nightly
def test_a_job_in_an_interpreter_of_its_own_moves_too(run: Callable[..., Moved]) -> None:
    core = Moves()
    fresh = slow_steps("fresh", 100, 5, isolation="fresh")
    moved = run(core, fresh, slow_steps("other", 1000, 5), slow_steps("third", 300, 5))
    assert core.arrived["fresh"] >= 3
    check_alike(moved, "fresh", SCRIPTS / "slow_steps.py", ("--steps", "100", "--ms", "5"), 100)
    check_alike(moved, "other", SCRIPTS / "slow_steps.py", ("--steps", "1000", "--ms", "5"), 1000)
    assert moved.slots == [0, 0]


@pytest.mark.nightly
def test_jobs_killed_on_their_way_leave_the_others_going(run: Callable[..., Moved]) -> None:
    """After SIGKILL of the moving job at any moment, it is tried again, and every slot is free at the end."""
    dice, killed = random.Random(3), set[int]()

    def kill(node: Node, _at_s: float) -> None:
        process = node.attempts.live.get("dies")
        if process is None or dice.random() < 0.8 or len(killed) >= 6 or process.attempt in killed:
            return  # the end of one that was killed may not have been told yet
        lane, slot = process.places[0]
        shown = node.attempts.tables[lane].slots[slot]
        if 0 < shown.iterations < 150:  # later it might have ended before it is killed
            os.kill(shown.pid, signal.SIGKILL)
            killed.add(process.attempt)

    core = Moves(kill)
    moved = run(core, slow_steps("dies", 180, 4, retries=20), *(slow_steps(f"j{n}", 150, 4) for n in range(2)))
    assert len(killed) >= 2 and moved.job("dies")["attempts"] == len(killed) + 1
    assert {moved.job(name)["state"] for name in ("dies", "j0", "j1")} == {"completed"}
    assert [moved.job(f"j{n}")["iterations"] for n in range(2)] == [150, 150]
    assert moved.slots == [0, 0]


@pytest.mark.nightly
def test_a_supervisor_killed_on_their_way_is_replaced(run: Callable[..., Moved]) -> None:
    killed: list[int] = []

    def kill(node: Node, _at_s: float) -> None:
        if not killed and sum(core.arrived.values()) > 4:
            killed.append(node.supervisor.pid)
            asyncio.get_running_loop().call_soon(
                os.kill, killed[0], signal.SIGKILL
            )  # when the next moves are under way

    core = Moves(kill)
    moved = run(core, *(slow_steps(f"j{number}", 150, 4) for number in range(3)))
    assert killed
    for number in range(3):
        job = moved.job(f"j{number}")
        assert (job["state"], job["iterations"]) == ("completed", 150)
    assert max(moved.job(f"j{number}")["attempts"] for number in range(3)) == 2
    assert moved.slots == [0, 0]


@pytest.mark.slow
def test_a_stop_ends_jobs_wherever_they_are(run: Callable[..., Moved]) -> None:
    stopped: list[bool] = []

    def stop(_node: Node, _at_s: float) -> None:
        if not stopped and sum(core.arrived.values()) > 6:
            stopped.append(True)
            asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)  # while the next move

    core = Moves(stop)
    moved = run(core, *(slow_steps(f"j{number}", 100_000, 4) for number in range(3)))
    assert stopped
    ends = [event for event in moved.entries if isinstance(event, JobExited)]
    assert [event.outcome.value for event in ends] == ["stopped"] * 3
    for event in ends:  # SIGTERM at a boundary: what it has printed is what was counted
        printed = moved.log(event.job).count(b"\n")
        assert printed in (event.usage.iterations, event.usage.iterations - 1)
    assert moved.slots == [0, 0]


@pytest.fixture
def pinned_places(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Places of the jobs, with the command of the last move, at the beginning and the end of each window."""
    pin, unpin = Moving.pin, Moving.unpin
    seen: list[tuple[dict[str, Any], dict[str, Any]]] = []
    began: dict[str, Any] = {}

    def places(moving: Moving) -> dict[str, Any]:
        for job in list(moving.pending):
            moving.follow(job)
        return {job: (attempt.places, attempt.owner) for job, attempt in moving.attempts.items()}

    def pin_and_look(moving: Moving, lanes: Sequence[int]) -> None:
        pin(moving, lanes)
        began.update(places(moving))

    def look_and_unpin(moving: Moving, lanes: Sequence[int]) -> None:
        seen.append((dict(began), places(moving)))
        began.clear()
        unpin(moving, lanes)

    monkeypatch.setattr(Moving, "pin", pin_and_look)
    monkeypatch.setattr(Moving, "unpin", look_and_unpin)
    return seen


@pytest.mark.nightly
def test_no_job_moves_during_a_window(
    run: Callable[..., Moved], pinned_places: list[tuple[dict[str, Any], dict[str, Any]]], tmp_path: Path
) -> None:
    core = Moves()
    moved = run(core, *(slow_steps(f"j{number}", 1200, 5) for number in range(2)), profiles=tmp_path / "profiles")
    began = [n for n, entry in enumerate(moved.entries) if isinstance(entry, ProfileJob)]
    ended = [n for n, entry in enumerate(moved.entries) if isinstance(entry, Profiled)]
    assert began and len(began) == len(ended)
    asked = {entry.id: n for n, entry in enumerate(moved.entries) if isinstance(entry, MoveJob)}
    answered = {entry.command: n for n, entry in enumerate(moved.entries) if isinstance(entry, Done | Refused)}
    for first, last in zip(began, ended, strict=True):
        end = moved.entries[last]
        assert isinstance(end, Profiled) and not end.error
        wanted = [id for id, n in asked.items() if n < last and answered.get(id, last) > first]
        assert wanted, "no move was wanted"
    assert len(pinned_places) == len(began)
    for before, after in pinned_places:
        stayed = {job: before[job] for job in after}  # a job may end in the window of another one
        assert stayed == after and after, "a job has moved in the middle of a window"
    assert any(isinstance(entry, Done) and entry.command in asked for entry in moved.entries[ended[-1] :])
    starts = sum(isinstance(entry, StartJob) for entry in moved.entries)
    assert starts == 2 and moved.slots == [0, 0]
