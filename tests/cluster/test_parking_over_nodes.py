"""Jobs that are parked on machines of a cluster, by their agents."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from ecoshare.cluster.links import ProcessLink
from ecoshare.core.commands import StartJob
from ecoshare.core.events import Parked, Resumed
from ecoshare.record import event_log
from tests.cluster.agents import check_alike, members, run_on, states
from tests.runtime.running import slow_steps
from tests.warm import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LONG, SHORT = 250, 60
JOBS = [
    slow_steps("one", LONG),
    slow_steps("two", LONG),
    slow_steps("urgent", SHORT, priority=99, arrival="4 s"),
]
"""Two jobs that fill two machines, and one that goes first."""


@pytest.mark.nightly
def test_a_job_is_parked_on_its_machine_and_prints_the_same_bits(tmp_path: Path) -> None:
    done = run_on(tmp_path, JOBS, policy="priority", jobs_per_lane=1, host_memory=1 << 30)
    assert states(done) == {"one": ("completed", LONG), "two": ("completed", LONG), "urgent": ("completed", SHORT)}
    jobs = {job.name: job for job in done.data.summary.jobs}
    assert sorted(jobs[name].parks for name in ("one", "two")) == [0, 1] and jobs["urgent"].parks == 0
    assert {job.attempts for job in jobs.values()} == {1}
    (parked,) = [job for job in jobs.values() if job.parks]
    assert parked.devices == jobs["urgent"].devices, "the urgent job has its place"
    assert jobs["urgent"].finish_s is not None and parked.finish_s is not None
    assert jobs["urgent"].finish_s < parked.finish_s
    entries = list(event_log.read(done.folder.events))
    assert [type(each) for each in entries if isinstance(each, Parked | Resumed)] == [Parked, Resumed]
    for _, logged, now in event_log.replay(iter(entries)):
        assert logged == now
    check_alike(done.folder.path, ["one", "two"], LONG, 20)
    check_alike(done.folder.path, ["urgent"], SHORT, 20)
    wait_for(lambda: not members(done.folder.path))


@pytest.mark.nightly
def test_a_parked_job_begins_again_elsewhere_if_its_machine_is_lost(tmp_path: Path) -> None:

    def begun(started: dict[str, ProcessLink]) -> None:
        threading.Thread(target=strike, args=(started,), daemon=True).start()

    def strike(started: dict[str, ProcessLink]) -> None:
        log = tmp_path / "runs" / "latest" / "events.jsonl"
        wait_for(lambda: log.exists() and b'"Parked"' in log.read_bytes())
        os.kill(started[node_of_urgent(log)].pid, signal.SIGKILL)

    done = run_on(tmp_path, JOBS, policy="priority", jobs_per_lane=1, host_memory=1 << 30, begun=begun)
    assert {name: state for name, (state, _) in states(done).items()} == dict.fromkeys(
        ("one", "two", "urgent"), "completed"
    )
    attempts = sorted(job.attempts for job in done.data.summary.jobs)
    assert attempts == [1, 2, 2], "the parked job and the urgent one were on the machine that was lost"
    wait_for(lambda: not members(done.folder.path))


def node_of_urgent(log: Path) -> str:
    """Node of the job that took the place of the parked one."""
    (start,) = [each for each in event_log.read(log) if isinstance(each, StartJob) and each.job == "urgent"]
    return f"n{start.lanes[0]}"
