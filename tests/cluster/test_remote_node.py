"""A node on another machine that is lost, as its run sees it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

from ecoshare.cluster.agent_line import AgentLine
from ecoshare.cluster.node_link import NodeStart
from ecoshare.cluster.process_link import ProcessLink
from ecoshare.cluster.remote_node import NodeSetup, RemoteClaims, RemoteNode
from ecoshare.core.commands import StartJob
from ecoshare.core.events import DeviceFailed, Event, JobExited
from ecoshare.runtime.node_job import NodeJob
from ecoshare.runtime.run_node import NodeRun
from ecoshare.values.attempt import Outcome

_ENDS = [sys.executable, "-c", "pass"]
"""An agent that ends at once."""


def no_job(name: str) -> NodeJob:
    raise AssertionError(f"{name} is not asked for: nothing is sent to a lost node")


async def told_after_a_loss() -> list[Event]:
    """Events of a node that is lost, and that gets a command before the core has heard of its loss."""
    told, tasks = list[Event](), list[asyncio.Task[None]]()

    def tell(make: Callable[..., Event | None]) -> None:
        if (event := make(at_s=0.0)) is not None:
            told.append(event)

    def begin(work: Coroutine[Any, Any, None]) -> None:
        tasks.append(asyncio.create_task(work))

    run = NodeRun(
        now_s=time.monotonic,
        tell=tell,
        begin=begin,
        stopping=lambda: False,
        live_jobs=lambda: 1,
        hear_samples=[],
        hear_requests=lambda _service, _attempt, _found: None,
        attempt_over=lambda _job, _attempt: None,
    )
    line = AgentLine("n0", ProcessLink(_ENDS))
    setup = NodeSetup(
        line=line,
        start=NodeStart("n0", "127.0.0.1", lambda: ProcessLink(_ENDS)),
        devices=["n0/cpu"],
        job=no_job,
        context_bytes=lambda _name: 0,
        most_s=lambda _command: None,
        knobs={},
        claims=RemoteClaims(),
        keep_profile=lambda _made: None,
        files=None,
        notes=[],
        timeout_s=15.0,
        lease_s=-5.0,
        recorded_end=lambda _job, _attempt: None,
    )
    node = RemoteNode(setup, run, lambda _line: None, {})
    await node.keep()  # until it is lost
    async with asyncio.timeout(60.0):
        while not tasks:
            await asyncio.sleep(0.01)
        await asyncio.gather(*tasks)  # the jobs have surely ended
    node.carry_out(StartJob(1, "late", 1, (0,), 0))
    await asyncio.to_thread(line.close)
    return told


def test_a_job_that_is_given_to_a_node_which_is_lost_already_ends_at_once() -> None:
    """If it failed, the run would wait for the end of that job for ever."""
    failed, exited = asyncio.run(told_after_a_loss())
    assert isinstance(failed, DeviceFailed) and failed.device == "n0/cpu"
    assert isinstance(exited, JobExited) and (exited.job, exited.outcome) == ("late", Outcome.DEVICE_FAILED)
