"""A node on another machine that is lost, as its run sees it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ecoshare.base.attempt import Outcome
from ecoshare.cluster.cluster_node import AgentLine
from ecoshare.cluster.links import NodeStart, ProcessLink
from ecoshare.cluster.remote_node import NodeSetup, RemoteClaims, RemoteNode
from ecoshare.core.commands import StartJob
from ecoshare.core.events import DeviceFailed, Event, JobExited
from ecoshare.devices import registry
from ecoshare.jobs.load import load
from ecoshare.record.run_folder import RunFolder
from ecoshare.runtime.nodes.run_node import NodeRun
from ecoshare.runtime.planning.node_job import NodeJob
from tests.planning import planned
from tests.runtime.running import job_file, slow_steps

_ENDS = [sys.executable, "-c", "pass"]
"""An agent that ends at once."""

_TELLS = """
import time
from ecoshare.cluster.agent_calls import RunCalls, call
from ecoshare.runtime.nodes.run_node import AttemptReading
from ecoshare.base.attempt import Usage
def send(line, can_wait):
    print(line.decode(), end="", flush=True)
call(send, RunCalls.report, {"j": AttemptReading(Usage(iterations=98), (0,), ())}, {}, ())
call(send, RunCalls.progress, "j", Usage(iterations=201))
"""
"""An agent that tells of progress, first of less in a report, and ends."""


def no_job(name: str) -> NodeJob:
    raise AssertionError(f"{name} is not asked for: nothing is sent to a lost node")


class Lost:
    """Run with a node that is lost."""

    stopping, live_jobs = False, 1
    now_s, profiler = staticmethod(time.monotonic), SimpleNamespace(notes=[])
    folder = RunFolder(Path("nowhere"))

    def __init__(self, job: Callable[[str], NodeJob]) -> None:
        self.job, self.told, self.tasks = job, list[Event](), list[asyncio.Task[None]]()

    def tell(self, make: Callable[..., Event | None]) -> None:
        if (event := make(at_s=0.0)) is not None:
            self.told.append(event)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.create_task(work))

    def context_bytes(self, job_class: str) -> int:
        return 0

    def attempt_over(self, job: str, attempt: int) -> None:
        pass


async def told_after_a_loss(
    agent: Sequence[str], job: Callable[[str], NodeJob] = no_job, before: str = "", after: str = ""
) -> list[Event]:
    """Events of a node that is lost.

    Args:
        agent: Command line of its agent.
        job: Returns a job that is started, by its name.
        before: Name of a job that is started before the agent has ended; empty for none.
        after: Name of a job that is started before the core has heard of the loss; empty for none.
    """
    run = Lost(job)
    line = AgentLine("n0", ProcessLink(agent))
    setup = NodeSetup(
        line=line,
        start=NodeStart("n0", "127.0.0.1", lambda: ProcessLink(agent)),
        devices=["n0/cpu"],
        knobs={},
        claims=RemoteClaims(),
        keep_profile=lambda _made: None,
        files=None,
        timeout_s=15.0,
        lease_s=-5.0,
    )
    node = RemoteNode(setup, cast(NodeRun, run), lambda _line: None, {})
    if before:
        node.carry_out(StartJob(1, before, 1, (0,), 0))
    await node.keep()  # until it is lost
    async with asyncio.timeout(60.0):
        while not run.tasks:
            await asyncio.sleep(0.01)
        await asyncio.gather(*run.tasks)  # the jobs have surely ended
    if after:
        node.carry_out(StartJob(2, after, 1, (0,), 0))
    await asyncio.to_thread(line.close)
    return run.told


@pytest.mark.slow
def test_a_job_that_is_given_to_a_node_which_is_lost_already_ends_at_once() -> None:
    """If it failed, the run would wait for the end of that job for ever."""
    failed, exited = asyncio.run(told_after_a_loss(_ENDS, after="late"))
    assert isinstance(failed, DeviceFailed) and failed.device == "n0/cpu"
    assert isinstance(exited, JobExited) and (exited.job, exited.outcome) == ("late", Outcome.DEVICE_FAILED)


@pytest.mark.slow
def test_the_usage_of_a_lost_attempt_is_the_last_one_that_was_heard(tmp_path: Path) -> None:
    """If it failed, a run could tell more iterations of a job than its end has."""
    plan = planned(load(job_file(tmp_path, slow_steps("j", 1, 1))), (registry.find("cpu"),), policy="fair")
    agent = [sys.executable, "-c", _TELLS]
    told = asyncio.run(told_after_a_loss(agent, lambda _name: plan.jobs[0].for_node(), before="j"))
    (exited,) = [each for each in told if isinstance(each, JobExited)]
    assert exited.outcome is Outcome.DEVICE_FAILED and exited.usage.iterations == 201
