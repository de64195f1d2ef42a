"""Runs on several agents: the same bits as alone, and no job is lost or runs twice when an agent or the run dies."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ecoshare.base.attempt import Outcome
from ecoshare.cluster.agent_calls import AgentCalls, OpenNode
from ecoshare.cluster.cluster_node import AgentLine
from ecoshare.cluster.links import ProcessLink, agent_command
from ecoshare.cluster.remote_node import BEAT_S
from ecoshare.core.commands import StartJob
from ecoshare.core.events import DeviceFailed, JobExited
from ecoshare.errors import UnfitEnvironment
from ecoshare.record import event_log, run_documents
from ecoshare.record.log_fold import LogEntry
from ecoshare.record.run_folder import RunFolder
from ecoshare.runtime.measuring.profiling_window import Limits
from ecoshare.runtime.measuring.run_claims import ClaimRequest
from ecoshare.runtime.nodes import cleanup
from ecoshare.runtime.nodes.run_node import NodePlan
from ecoshare.runtime.run_lifecycle import FinishedRun
from tests.cluster import agents
from tests.cluster.agents import LEASE_S, agent, check_alike, lasting, members, run_on, starts, states, strikes
from tests.driver import COMPILER, presets
from tests.driver.runs import two_gpus
from tests.driver.training import COMPUTES
from tests.runtime.running import SLEEPS, slow_steps
from tests.warm import ROOT, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NOTHING = ClaimRequest(may_set=False, searches=False, sets_known=False, with_processors=False, limits_power=False)
ENDS_WITHIN_S = 5.0
"""Time (s) that an agent may take to end all that it has started."""

RUN = """
import json
import sys
from pathlib import Path

from tests.cluster import agents

folder, agents.LEASE_S = Path(sys.argv[1]), float(sys.argv[2])
agents.run_on(folder, json.loads(sys.argv[3]), sys.argv[4:], cold=True)
"""
"""Program of a run that a test stops or kills. Arguments: folder, lease (s), jobs, and names of the nodes."""


@contextlib.contextmanager
def begun_run(
    folder: Path, lease_s: float, jobs: Sequence[dict[str, Any]], *nodes: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Context manager: a run of jobs in a process of its own, after each of them has told progress."""
    run = subprocess.Popen([sys.executable, "-c", RUN, folder, str(lease_s), json.dumps(jobs), *nodes], cwd=ROOT)
    log = folder / "runs" / "latest" / "events.jsonl"
    try:
        wait_for(lambda: log.exists() and have_begun(log) == {job["name"] for job in jobs})
        yield run
    finally:
        run.kill()
        run.wait()


def have_begun(log: Path) -> set[str]:
    """Jobs that have told progress, by the log of the run."""
    told = [json.loads(line) for line in log.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    return {each["job"] for each in told if each.get("event") == "IterationsDone"}


def entries(done: FinishedRun) -> list[LogEntry]:
    return list(event_log.read(done.folder.events))


@pytest.mark.nightly
@pytest.mark.skipif(COMPILER is None, reason="the fake driver is compiled, and there is no C compiler")
def test_a_run_without_a_gpu_uses_the_gpu_of_a_node(tmp_path: Path) -> None:
    driver = two_gpus(tmp_path)
    variables = {**driver.environment, "CUDA_VISIBLE_DEVICES": "1"}
    done = run_on(tmp_path, [COMPUTES.job(8)], ["n0"], device="cuda:0", variables=lambda _name: variables)
    assert states(done) == {"computes": ("completed", 8)}
    (device,) = run_documents.read_plan(done.folder.plan).devices
    assert (device["name"], device["model"]) == ("n0/cuda:0", presets.H200.name)
    power = run_documents.read_environment(done.folder.environment)["power_models"]["n0/cuda:0"]
    assert power["busy_w"] == device["power_limit_w"]


@pytest.mark.nightly
def test_jobs_on_two_nodes_print_the_bits_of_a_run_alone_and_the_log_replays(tmp_path: Path) -> None:
    done = run_on(tmp_path, [slow_steps(f"j{number}", 60, 4) for number in range(3)])
    assert states(done) == {f"j{number}": ("completed", 60) for number in range(3)}
    check_alike(done.folder.path, ["j0", "j1", "j2"], 60, 4)
    found = entries(done)
    lanes = {lane for each in found if isinstance(each, StartJob) for lane in each.lanes}
    assert lanes == {0, 1}, "both nodes have jobs"
    for _, logged, now in event_log.replay(found):
        assert logged == now
    assert {device.name for device in done.data.summary.devices} == {"n0/cpu", "n1/cpu"}
    energies = [device.energy for device in done.data.summary.devices]
    assert all(energy is not None and energy.value_j for energy in energies)
    wait_for(lambda: not members(done.folder.path))


def test_jobs_of_a_killed_agent_run_again_on_the_other_node(tmp_path: Path) -> None:
    def kill(link: ProcessLink) -> None:
        os.kill(link.pid, signal.SIGKILL)

    jobs = [slow_steps(f"j{number}", 1000, 4) for number in range(2)]
    done = run_on(tmp_path, jobs, begun=strikes(kill, "n1", tmp_path))
    assert states(done) == {"j0": ("completed", 1000), "j1": ("completed", 1000)}
    check_alike(done.folder.path, ["j0", "j1"], 1000, 4)
    found = entries(done)
    [failed] = [each for each in found if isinstance(each, DeviceFailed)]
    assert failed.device == "n1/cpu" and failed.reason.startswith("the node n1 is lost: ")
    [lost] = [each for each in found if isinstance(each, JobExited) and each.outcome is Outcome.DEVICE_FAILED]
    again = [each for each in found if isinstance(each, StartJob) and each.job == lost.job]
    assert [each.attempt for each in again] == [1, 2] and again[1].lanes == (0,)
    assert lost.at_s - failed.at_s >= LEASE_S, "the job begins again only when it has surely ended"
    wait_for(lambda: not members(done.folder.path))


@pytest.mark.nightly
def test_the_jobs_of_an_agent_that_hangs_end_before_they_begin_elsewhere(tmp_path: Path) -> None:
    """If it failed, two machines would train the same job."""
    log = tmp_path / "runs" / "latest" / "events.jsonl"
    left: list[int] = []

    def hang(link: ProcessLink) -> None:
        wait_for(lambda: starts(log) == 2)
        token = run_documents.read_environment(log.parent / "environment.json")["nodes"]["n1"]["token"]
        assert cleanup.members(token)
        os.kill(link.pid, signal.SIGSTOP)
        wait_for(lambda: starts(log) == 3)
        left.extend(cleanup.members(token))
        (tmp_path / "go").touch()

    done = run_on(tmp_path, lasting(tmp_path), begun=strikes(hang, "n1", tmp_path, events=0))
    assert {state for state, _ in states(done).values()} == {"completed"}
    [failed] = [each for each in entries(done) if isinstance(each, DeviceFailed)]
    assert "n1 is lost" in failed.reason
    assert not left, "its guard has ended it, and all of its processes"
    wait_for(lambda: not members(done.folder.path))


@pytest.mark.nightly
def test_a_job_that_ends_while_its_agent_hangs_does_not_run_again(tmp_path: Path) -> None:
    """If it failed, a job with a recorded end that was not heard would run to its end twice."""

    def hang(link: ProcessLink) -> None:
        os.kill(link.pid, signal.SIGSTOP)

    (tmp_path / "sleeps.py").write_text(SLEEPS)
    jobs = [{"name": f"j{number}", "script": str(tmp_path / "sleeps.py"), "args": ["150"]} for number in range(2)]
    done = run_on(tmp_path, jobs, begun=strikes(hang, "n1", tmp_path, events=1, job="j1"))
    assert states(done) == {"j0": ("completed", 150), "j1": ("completed", 150)}
    assert [each.device for each in entries(done) if isinstance(each, DeviceFailed)] == ["n1/cpu"]
    ends = [(each.attempt, each.outcome) for each in entries(done) if isinstance(each, JobExited)]
    assert ends == [(1, Outcome.COMPLETED)] * 2
    wait_for(lambda: not members(done.folder.path))


@pytest.mark.nightly
def test_all_ends_at_once_when_the_run_is_killed(tmp_path: Path) -> None:
    """The lease is so long that only the end of the connection can end the jobs."""
    latest = tmp_path / "runs" / "latest"
    with begun_run(tmp_path, 60.0, [slow_steps("a", 100_000, 5)], "n0") as run:
        assert members(latest)
        run.kill()
        run.wait()
        killed_s = time.monotonic()
        wait_for(lambda: not members(latest))
        assert time.monotonic() - killed_s < 5.0, "it is the end of its stdin that ends the agent"


@pytest.mark.nightly
def test_jobs_end_when_their_agents_hear_nothing_of_the_run_and_do_not_run_twice(tmp_path: Path) -> None:
    """If it failed, the jobs of a run that hangs would go on, and could be given to other machines meanwhile."""
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    jobs = [slow_steps("long", 100_000, 5), {"name": "short", "script": str(tmp_path / "sleeps.py"), "args": ["150"]}]
    folder = RunFolder(tmp_path / "runs" / "latest")
    with begun_run(tmp_path, LEASE_S, jobs, "n0", "n1") as run:
        run.send_signal(signal.SIGSTOP)
        stopped_s = time.monotonic()
        wait_for(lambda: not members(folder.path))
        silent_s = time.monotonic() - stopped_s
        assert LEASE_S - 2 * BEAT_S < silent_s < LEASE_S + ENDS_WITHIN_S, "the lease begins with the last beat"
        run.send_signal(signal.SIGCONT)
        assert run.wait(60.0) == 0
    found = list(event_log.read(folder.events))
    failures = [each for each in found if isinstance(each, DeviceFailed)]
    assert sorted(each.device for each in failures) == ["n0/cpu", "n1/cpu"]
    for each in failures:  # the run sees that the agent is silent, or reads why it has ended
        assert re.fullmatch(r"the node n\d is lost: nothing was heard of (it|the run) for \d+ s", each.reason)
    assert sorted(each.job for each in found if isinstance(each, StartJob)) == ["long", "short"], "nothing ran twice"
    ends = {each.job: each.outcome for each in found if isinstance(each, JobExited)}
    assert ends == {"long": Outcome.DEVICE_FAILED, "short": Outcome.COMPLETED}, "one ended while the run was stopped"
    assert not members(folder.path)


@pytest.mark.nightly
def test_a_machine_that_is_cut_off_ends_its_job_before_another_one_begins_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pipes to the agent hang, and go on later: what they carried meanwhile comes too late to count."""

    def through_pipes(name: str, options: Sequence[str]) -> list[str]:
        return ["sh", "-c", 'cat | setsid "$@" | cat', "sh", *agent_command(name, options)]

    monkeypatch.setattr(agents, "agent_command", through_pipes)
    log = tmp_path / "runs" / "latest" / "events.jsonl"
    left: list[int] = []

    def cut_off(link: ProcessLink) -> None:
        wait_for(lambda: starts(log) == 2)
        token = run_documents.read_environment(log.parent / "environment.json")["nodes"]["n1"]["token"]
        assert cleanup.members(token)
        os.killpg(link.pid, signal.SIGSTOP)  # the agent has a session of its own
        wait_for(lambda: starts(log) == 3)
        left.extend(cleanup.members(token))
        os.killpg(link.pid, signal.SIGCONT)
        (tmp_path / "go").touch()

    done = run_on(tmp_path, lasting(tmp_path), begun=strikes(cut_off, "n1", tmp_path, events=0), cold=True)
    assert {state for state, _ in states(done).values()} == {"completed"}
    [failed] = [each for each in entries(done) if isinstance(each, DeviceFailed)]
    assert failed.device == "n1/cpu" and "nothing was heard of it for" in failed.reason
    assert not left, "its agent has ended the job, and all of its processes"
    again = [(each.attempt, each.lanes) for each in entries(done) if isinstance(each, StartJob) and each.job == "j1"]
    assert again == [(1, (1,)), (2, (0,))]
    ends = [each.outcome for each in entries(done) if isinstance(each, JobExited) and each.job == "j1"]
    assert ends == [Outcome.DEVICE_FAILED, Outcome.COMPLETED], "the end that was told too late does not count"
    wait_for(lambda: not members(done.folder.path))


@pytest.mark.nightly
def test_a_node_without_the_run_folder_is_told_in_one_line(tmp_path: Path) -> None:
    link = agent(tmp_path, "n0", {})
    line = AgentLine("n0", link)
    found = line.answer(AgentCalls.found, 60.0)
    names = tuple(device.name for device in found.devices)
    elsewhere = str(tmp_path / "elsewhere")
    line.call(AgentCalls.open, OpenNode(elsewhere, 0.0, NodePlan(4), 1, names, "p", Limits(), False, NOTHING, LEASE_S))
    with pytest.raises(UnfitEnvironment, match=r"the node n0: .*elsewhere is not there") as told:
        line.answer(AgentCalls.open, 60.0)
    assert "--runs" in told.value.hint
    line.close()
    assert not (tmp_path / "elsewhere").exists()
