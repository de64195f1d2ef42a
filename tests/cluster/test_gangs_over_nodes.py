"""Gangs over two agents, with real DDP on gloo."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from ecoshare.base.attempt import Outcome
from ecoshare.cluster.links import ProcessLink
from ecoshare.core.commands import StartJob
from ecoshare.core.events import DeviceFailed, Done, IterationsDone, JobArrived, JobExited
from ecoshare.knowledge.gang_time_store import GangTimeStore
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.record import event_log
from ecoshare.runtime.nodes.attempt_messages import LoopbackPorts
from tests.cluster.agents import LEASE_S, members, run_on, states, strikes
from tests.runtime.running import slow_steps
from tests.runtime.test_gangs import gang, told
from tests.runtime.test_resizing import ELASTIC, trains
from tests.warm import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def over_nodes(folder: Path, name: str, *args: Any, **keys: Any) -> dict[str, Any]:
    return gang(folder, name, *args, nodes=2, **keys)


def apart(folder: Path, steps: int) -> list[Any]:
    """Last line of each rank of the same training, started by hand."""
    ports = LoopbackPorts()
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(ports.take()), "OMP_NUM_THREADS": "1"}
    line = [sys.executable, str(folder / "ddp.py"), str(steps)]
    ranks = [
        subprocess.Popen(line, stdout=subprocess.PIPE, env={**os.environ, **common, "RANK": str(rank)})
        for rank in range(2)
    ]
    lines = []
    for number, rank in enumerate(ranks):
        (folder / f"apart-{number}").write_bytes(rank.communicate()[0])
        lines.append(told(folder / f"apart-{number}"))
    ports.close()
    return lines


@pytest.mark.nightly
def test_a_gang_trains_over_two_nodes_and_computes_what_its_ranks_do_apart(tmp_path: Path) -> None:
    env = {"OMP_NUM_THREADS": "1"}
    jobs = [
        over_nodes(tmp_path, "wide", 30, env=env),
        over_nodes(tmp_path, "fails", 30, "raises-1", env=env),
        over_nodes(tmp_path, "again", 30, env=env),
        slow_steps("narrow", 30, 4),
    ]
    done = run_on(tmp_path, jobs)
    assert states(done) == {
        "wide": ("completed", 30),
        "fails": ("failed", states(done)["fails"][1]),
        "again": ("completed", 30),
        "narrow": ("completed", 30),
    }
    folder = done.folder.job("wide")
    alone = apart(tmp_path, 30)
    assert [told(folder / "stdout.log"), told(folder / "rank-1" / "stdout.log")] == alone
    assert (done.folder.job("again") / "stdout.log").read_bytes() == (folder / "stdout.log").read_bytes()
    [failed] = [job for job in done.data.summary.jobs if job.name == "fails"]
    assert failed.error is not None and "rank 1" in failed.error and "it has no more data" in failed.error
    [wide] = [job for job in done.data.summary.jobs if job.name == "wide"]
    assert wide.keeps_lane == "its ranks run on 2 nodes" and sorted(wide.devices) == ["n0/cpu", "n1/cpu"]
    assert wide.energy is not None and wide.energy.value_j
    entries = list(event_log.read(done.folder.events))
    starts = [each for each in entries if isinstance(each, StartJob)]
    assert {each.job: tuple(sorted(each.lanes)) for each in starts if each.job != "narrow"} == dict.fromkeys(
        ("wide", "fails", "again"), (0, 1)
    )
    answers = [each.command for each in entries if isinstance(each, Done)]
    assert all(answers.count(each.id) == 1 for each in starts), "one answer, though two nodes have started it"
    for _, logged, now in event_log.replay(iter(entries)):
        assert logged == now
    wait_for(lambda: not members(done.folder.path))


@pytest.mark.nightly
def test_a_gang_ends_with_a_node_that_is_lost(tmp_path: Path) -> None:

    def kill(link: ProcessLink) -> None:
        os.kill(link.pid, signal.SIGKILL)

    jobs = [over_nodes(tmp_path, "wide", 100_000), slow_steps("narrow", 30, 4, arrival="1 s")]
    done = run_on(tmp_path, jobs, begun=strikes(kill, "n1", tmp_path, events=2))
    assert states(done)["narrow"] == ("completed", 30), "the lane of the other node is free again"
    [wide] = [job for job in done.data.summary.jobs if job.name == "wide"]
    assert wide.state == "failed" and wide.error is not None and wide.error.startswith("the node n1 is lost")
    ends = [each for each in event_log.read(done.folder.events) if isinstance(each, JobExited) and each.job == "wide"]
    assert [each.outcome for each in ends] == [Outcome.DEVICE_FAILED]
    wait_for(lambda: not members(done.folder.path))


@pytest.mark.nightly
def test_a_gang_of_a_node_that_is_lost_begins_again_on_the_nodes_that_are_left(tmp_path: Path) -> None:
    """The node of rank 0 is lost, so that the ranks meet at another port of another node."""
    log, killed = tmp_path / "runs" / "latest" / "events.jsonl", list[int]()

    def begun(started: dict[str, ProcessLink]) -> None:
        threading.Thread(target=strike, args=(started,), daemon=True).start()

    def strike(started: dict[str, ProcessLink]) -> None:
        wait_for(lambda: log.exists() and has_trained(log))
        (start,) = [each for each in event_log.read(log) if isinstance(each, StartJob)]
        killed.append(min(start.lanes))  # `JoinedNodes` numbers the ranks so
        os.kill(started[f"n{killed[0]}"].pid, signal.SIGKILL)

    job = over_nodes(tmp_path, "wide", 1000, env={"OMP_NUM_THREADS": "1"})
    done = run_on(tmp_path, [job], ["n0", "n1", "n2"], begun)
    assert states(done) == {"wide": ("completed", 1000)}
    folder = done.folder.job("wide")
    first, second = told(folder / "stdout.log"), told(folder / "rank-1" / "stdout.log")
    assert (first[:2], second[:2]) == ([0, 2], [1, 2]) and first[2] == second[2], "the sum of both ranks"
    entries = list(event_log.read(done.folder.events))
    [failed] = [each for each in entries if isinstance(each, DeviceFailed)]
    assert failed.device == f"n{killed[0]}/cpu" and f"the node n{killed[0]} is lost" in failed.reason
    turns = [each for each in entries if isinstance(each, StartJob | JobExited)]
    assert [type(each) for each in turns] == [StartJob, JobExited] * 2, (
        "no attempt begins before the last one has ended"
    )
    starts = [each for each in turns if isinstance(each, StartJob)]
    ends = [each for each in turns if isinstance(each, JobExited)]
    assert [each.outcome for each in ends] == [Outcome.DEVICE_FAILED, Outcome.COMPLETED]
    assert ends[0].at_s - failed.at_s >= LEASE_S, "the ranks of the lost node have surely ended"
    assert [each.attempt for each in starts] == [1, 2] and set(starts[1].lanes) == {0, 1, 2} - set(killed)
    for _, logged, now in event_log.replay(iter(entries)):
        assert logged == now
    wait_for(lambda: not members(done.folder.path))


def has_trained(log: Path) -> bool:
    """Whether a job has told an iteration, by the log of the run."""
    return any(isinstance(each, IterationsDone) and each.usage.iterations for each in event_log.read(log))


@pytest.mark.nightly
def test_ctrl_c_ends_all_ranks(tmp_path: Path) -> None:

    def stop(_link: ProcessLink) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    done = run_on(tmp_path, [over_nodes(tmp_path, "wide", 100_000)], begun=strikes(stop, "n0", tmp_path, events=2))
    [end] = [each for each in event_log.read(done.folder.events) if isinstance(each, JobExited)]
    assert end.outcome is Outcome.STOPPED and end.usage.iterations > 0
    wait_for(lambda: not members(done.folder.path))


@pytest.mark.nightly
def test_a_job_gets_the_device_of_another_node_and_gives_it_back(tmp_path: Path) -> None:
    """The first rank ends before the others, and saves the state at the end of an iteration."""
    jobs = [
        trains(tmp_path, "long", 400, **ELASTIC, nodes=2),
        trains(tmp_path, "short", 30, launch="ranks", arrival="6 s"),
    ]
    done = run_on(tmp_path, jobs, policy="fluid", lanes=1, jobs_per_lane=1, options={"restart": 1.0})
    assert {name: state for name, (state, _) in states(done).items()} == {"long": "completed", "short": "completed"}
    starts = [each for each in event_log.read(done.folder.events) if isinstance(each, StartJob) and each.job == "long"]
    assert [len(each.lanes) for each in starts] == [2, 1, 2]
    folder = done.folder.job("long")
    texts = [(folder / f"stdout.attempt-{number}.log").read_text() for number in (1, 2)]
    texts.append((folder / "stdout.log").read_text())
    assert [text.partition(" from ")[0] for text in texts] == ["rank 0 of 2", "rank 0 of 1", "rank 0 of 2"], texts
    begins = [int(text.splitlines()[0].rpartition(" ")[2]) for text in texts]
    ends = [int(text.splitlines()[1].removeprefix("to ").partition(":")[0]) for text in texts]
    assert begins == [0, *ends[:-1]] and ends[0] > 0 and ends[-1] == 400
    assert (folder / "rank-1" / "stdout.log").exists()
    wait_for(lambda: not members(done.folder.path))


SLOW_LINK = """
import os, sys, time
import torch

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    loss = model(torch.ones(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.02 * int(os.environ["GROUP_WORLD_SIZE"]))  # a slow network, as far as ecoshare can see it
"""


@pytest.mark.nightly
def test_a_gang_that_is_slow_between_machines_keeps_to_one_the_next_time(tmp_path: Path) -> None:
    """Two machines of two devices. The first gang finds one free device on each, and the second two on one."""
    (tmp_path / "ranks.py").write_text(SLOW_LINK)
    ranks = {"script": "ranks.py", "args": ["100"], "gpus": 2, "nodes": 2, "launch": "ranks"}
    lengths = {"b0": 30, "b1": 250, "b2": 30, "b3": 250}
    # The first job needs all devices, so both machines have opened their lanes; else the short ones would be on one.
    jobs = [{"name": "all", **ranks, "args": ["1"], "gpus": 4}]
    jobs += [slow_steps(name, steps, 20, after=["all"]) for name, steps in lengths.items()]
    jobs += [{"name": "over", **ranks, "after": ["all"]}, {"name": "within", **ranks, "after": ["over", "b1", "b3"]}]
    store = ProfileStore(tmp_path / "profiles")
    done = run_on(tmp_path, jobs, device="cpu/2", lanes=1, jobs_per_lane=1, store=store)
    devices = {job.name: job.devices for job in done.data.summary.jobs}
    nodes = {name: {device.partition("/")[0] for device in devices[name]} for name in ("within", "over")}
    assert (len(nodes["within"]), len(nodes["over"])) == (1, 2), devices
    (job_class,) = {job.job_class for job in done.data.summary.jobs if job.name in nodes}
    times = GangTimeStore(store.folder).find(job_class)
    assert times is not None and 1.5 < times.slowdowns[2] < 2.5, times
    again = run_on(tmp_path, [{"name": "next", **ranks}], device="cpu/2", lanes=1, jobs_per_lane=1, store=store)
    (arrived,) = [each.job for each in event_log.read(again.folder.events) if isinstance(each, JobArrived)]
    assert arrived.nodes == 1 and states(again) == {"next": ("completed", 100)}
