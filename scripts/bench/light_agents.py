"""Light stand-ins for agents of nodes, many in one process: they speak the protocol, and their jobs are a clock.

A light agent has one GPU that does not exist. It answers each message at once, as `cluster/node_agent.py` does: it
opens lanes and starts jobs. It reports their progress once a second, the state of the node twice a second, and a sample
once a second, keeps its lease, and writes the exit record of each job. Jobs of a lane share its time in equal parts.
The first argument of a job is the number of its iterations, of a tenth of a second each.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Concatenate, ParamSpec

import ecoshare
from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.device import DeviceInfo
from ecoshare.cluster import agent_calls
from ecoshare.cluster.agent_calls import PROTOCOL, AgentCalls, NodeFound, NodeOpened, OpenNode, RunCalls
from ecoshare.cluster.links import LineWriter
from ecoshare.cluster.ray_nodes import LINGERS_S, batch
from ecoshare.core.commands import Command, KillJob, OpenLane, SetCaching, SetShares, StartJob
from ecoshare.core.events import Done, Event, JobExited
from ecoshare.devices.meter import PowerModel
from ecoshare.lane import exit_records
from ecoshare.lane.messages import Ended, Ready
from ecoshare.lane.tables.table_layout import WAIT_BOUNDS_S
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.samples import AttemptProgress, Sample, Session, attempt_key
from ecoshare.runtime.measuring.run_claims import ClaimReport
from ecoshare.runtime.nodes.run_node import AttemptReading, DeviceReading, LaneReading
from ecoshare.runtime.planning.node_job import NodeJob

P = ParamSpec("P")

ITERATION_S = 0.1
"""Time (s) of the turn that an iteration of a job takes."""

IDLE_W, BUSY_W = 100.0, 500.0
_MODEL = PowerModel(IDLE_W, BUSY_W, 1.0, "a GPU that does not exist")
_TICK_S, _REPORT_S, _PROGRESS_S, _SAMPLE_S = 0.05, 0.5, 1.0, 1.0


@dataclass
class _Attempt:
    """Attempt of a job in progress.

    Attributes:
        iterations: Number of iterations until its end.
        told_s: Time (s) of the last report of its progress.
    """

    job: str
    number: int
    lane: int
    iterations: int
    told_s: float
    held_s: float = 0.0
    span_s: float = 0.0

    @property
    def usage(self) -> Usage:
        """Usage so far."""
        done = min(self.iterations, int(self.held_s / ITERATION_S))
        return Usage(done, 0, self.held_s, self.span_s - self.held_s, self.span_s, self.held_s)


@dataclass
class LightAgent:
    """Light agent of one node.

    Attributes:
        name: Name of the node.
        put: Sends a line to the run.
        is_over: Whether the agent has ended.
    """

    name: str
    put: agent_calls.Send
    is_over: bool = False
    _jobs: dict[str, int] = field(default_factory=dict)  # iterations of each job
    _lanes: list[int] = field(default_factory=list)
    _attempts: dict[str, _Attempt] = field(default_factory=dict)
    _opening: OpenNode | None = None
    _device: str = ""
    _began_s: float = 0.0
    _now_s: float = 0.0
    _heard_s: float = 0.0
    _energy_j: float = 0.0
    _due: dict[str, float] = field(default_factory=lambda: {"report": 0.0, "sample": 0.0})

    def begin(self) -> None:
        """Tell the run what the node has."""
        device = DeviceInfo(
            "cuda:0", "cuda", "nvidia", "light", f"GPU-{self.name}", 80 << 30, 8, 500.0, total_bytes=80 << 30
        )
        found = NodeFound(PROTOCOL, ecoshare.__version__, f"light-{self.name}", (device,), {"cuda:0": _MODEL}, False)
        agent_calls.answer(self.put, AgentCalls.found, found)

    def _call(self, method: Callable[Concatenate[RunCalls, P], object], *values: P.args, **names: P.kwargs) -> None:
        agent_calls.call(self.put, method, *values, **names)

    def _tell(self, event: Event) -> None:
        self._call(RunCalls.told, event)

    def hear(self, line: bytes) -> None:
        """Take a line of the run."""
        self._heard_s = self._now_s = time.monotonic()
        found = agent_calls.read(line)
        match found.name, found.values:
            case "why_unfit", ():
                agent_calls.answer(self.put, AgentCalls.why_unfit, "")
            case "open", (OpenNode(names=[device]) as opening,):
                self._opening, self._device, self._began_s = opening, device, self._now_s
                agent_calls.answer(self.put, AgentCalls.open, NodeOpened(True, None, ClaimReport()))
                self._call(RunCalls.server_ready, Ready(0, "light", 1, 0.0))
                about = "a GPU that does not exist"
                session = Session(0.0, device, "light", "measured", "gpu", about, 0.1, IDLE_W)
                self._call(RunCalls.samples, (session,))
                self._call(RunCalls.sampled)
            case "take_job", (NodeJob() as job, _):
                self._jobs[job.spec.name] = int(job.args[0])
            case "carry_out", (command,):
                self._carry_out(command)
            case "keep_only", (names,):
                self._jobs = {name: self._jobs[name] for name in names if name in self._jobs}
            case "finish", ():
                self._report()
                self._call(RunCalls.finished)
            case "close", ():
                self._call(RunCalls.closed, (), ())
                self.is_over = True
            case "beat", _:
                pass
            case name, _:
                self._fail(f"a light agent does nothing with {name}")

    def _carry_out(self, command: Command) -> None:
        match command:
            case OpenLane(id, lane):
                self._lanes.append(lane)
                self._tell(Done(0.0, id))
            case StartJob(id, job, attempt, lanes):
                self._attempts[job] = _Attempt(job, attempt, lanes[0], self._jobs[job], self._now_s)
                self._tell(Done(0.0, id))
            case KillJob(job=job) if job in self._attempts:
                self._end(self._attempts[job], Outcome.STOPPED)
            case SetCaching(id):
                self._tell(Done(0.0, id))
            case SetShares() | KillJob():
                pass
            case _:
                self._fail(f"a light agent does nothing with {type(command).__name__}")

    def tick(self) -> None:
        """Let time go on until now."""
        now_s = time.monotonic()
        past_s, self._now_s = now_s - self._now_s, now_s
        if self._opening is None or self.is_over:
            return
        if now_s - self._heard_s > self._opening.lease_s:
            self._fail(f"nothing was heard of the run for {self._opening.lease_s:g} s")
            return
        self._energy_j += past_s * (BUSY_W if self._attempts else IDLE_W)
        for own in list(self._attempts.values()):
            own.span_s += past_s
            own.held_s += past_s / sum(other.lane == own.lane for other in self._attempts.values())
            if own.usage.iterations >= own.iterations:
                self._end(own, Outcome.COMPLETED)
            elif now_s - own.told_s >= _PROGRESS_S:
                own.told_s = now_s
                self._call(RunCalls.progress, own.job, own.usage)
        if now_s >= self._due["report"]:
            self._due["report"] = now_s + _REPORT_S
            self._report()
        if now_s >= self._due["sample"]:
            self._due["sample"] = now_s + _SAMPLE_S
            self._call(RunCalls.samples, (self._sample(),))

    def _end(self, own: _Attempt, outcome: Outcome) -> None:
        """End an attempt: its exit record is written before the run is told."""
        assert self._opening is not None
        del self._attempts[own.job]
        code = 0 if outcome is Outcome.COMPLETED else None
        folder = RunFolder(Path(self._opening.run)).job(own.job)
        exit_records.write(folder, Ended(own.job, own.number, outcome.value, code, "", asdict(own.usage)))
        self._call(RunCalls.attempt_over, own.job, own.number)
        self._tell(JobExited(0.0, own.job, own.number, outcome, code, "", own.usage))

    def _report(self) -> None:
        holders = {own.lane: own.job for own in reversed(self._attempts.values())}
        attempts = {
            own.job: AttemptReading(own.usage, (own.lane,), (own.lane,) if holders[own.lane] == own.job else ())
            for own in self._attempts.values()
        }
        lanes = {lane: LaneReading(holders.get(lane, ""), (0,) * (len(WAIT_BOUNDS_S) + 1), 0.0) for lane in self._lanes}
        self._call(RunCalls.report, attempts, {self._device: DeviceReading((), "", lanes)}, ())

    def _sample(self) -> Sample:
        assert self._opening is not None
        jobs = {
            attempt_key(own.job, own.number): AttemptProgress(own.lane, own.held_s, own.usage.iterations, 0, own.held_s)
            for own in self._attempts.values()
        }
        power_w = BUSY_W if jobs else IDLE_W
        at_s = self._opening.now_s + self._now_s - self._began_s
        told = (power_w, 1980.0, 2619.0, 60.0, 1.0, 0.5, 8 << 30)
        return Sample(at_s, self._energy_j, "", *told, jobs=jobs, device=self._device)

    def _fail(self, error: str) -> None:
        self._call(RunCalls.failed, error, "", False)
        self.is_over = True


def _put_all(queue: SimpleQueue[bytes | str], lines: Sequence[bytes]) -> None:
    for line in lines:
        queue.put(line)


class LightAgents:
    """Light agents of several nodes, with the methods of `cluster/ray_nodes.py:AgentActor` for each by its name.

    One thread does all their work.
    """

    def __init__(self, names: Sequence[str]) -> None:
        """Begin to serve runs.

        Args:
            names: Names of the nodes.
        """
        self._out: dict[str, SimpleQueue[bytes | str]] = {name: SimpleQueue() for name in names}
        writers = {name: LineWriter(partial(_put_all, self._out[name]), lingers_s=LINGERS_S) for name in names}
        self._agents = {name: LightAgent(name, writers[name].put) for name in names}
        self._inbox: SimpleQueue[tuple[str, bytes]] = SimpleQueue()
        for agent in self._agents.values():
            agent.begin()
        threading.Thread(target=self._serve, name="light-agents", daemon=True).start()

    def receive(self, name: str) -> list[bytes | str]:
        return batch(self._out[name])

    def send(self, name: str, lines: Sequence[bytes]) -> None:
        """Pass lines on to an agent."""
        for line in lines:
            self._inbox.put((name, line))

    def end(self, name: str) -> None:
        self._out[name].put("its agent has ended")

    def _serve(self) -> None:
        due_s = time.monotonic()
        while True:
            try:
                name, line = self._inbox.get(timeout=max(0.0, due_s - time.monotonic()))
                self._agents[name].hear(line)
            except Empty:
                due_s = time.monotonic() + _TICK_S
                for agent in self._agents.values():
                    agent.tick()
