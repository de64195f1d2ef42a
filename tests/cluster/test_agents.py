"""Runs on several agents: the same bits as alone, and no job is lost or runs twice when an agent or the run dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ecoshare.cluster.agent_line import AgentLine
from ecoshare.cluster.agent_messages import NodeFound, NodeOpened, OpenNode
from ecoshare.cluster.process_link import ProcessLink
from ecoshare.core.commands import StartJob
from ecoshare.core.events import DeviceFailed, JobExited
from ecoshare.errors import UnfitEnvironment
from ecoshare.record import event_log, run_documents
from ecoshare.record.log_entry import LogEntry
from ecoshare.runtime import reaping
from ecoshare.runtime.node_claims import ClaimRequest
from ecoshare.runtime.node_parts import NodePlan
from ecoshare.runtime.profiling_window import Limits
from ecoshare.runtime.run_lifecycle import FinishedRun
from ecoshare.values.attempt import Outcome
from tests.cluster.agents import LEASE_S, agent, check_alike, members, run_on, states, strikes
from tests.driver import COMPILER, presets
from tests.driver.runs import two_gpus
from tests.driver.training import COMPUTES
from tests.runtime.running import SLEEPS, slow_steps
from tests.warm import ROOT, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


NOTHING = ClaimRequest(may_set=False, searches=False, sets_known=False, with_processors=False, limits_power=False)


def entries(done: FinishedRun) -> list[LogEntry]:
    return list(event_log.read(done.folder.events))


@pytest.mark.skipif(COMPILER is None, reason="the fake driver is compiled, and there is no C compiler")
def test_a_run_without_a_gpu_uses_the_gpu_of_a_node(tmp_path: Path) -> None:
    driver = two_gpus(tmp_path)
    variables = {**driver.environment, "CUDA_VISIBLE_DEVICES": "1"}
    done = run_on(tmp_path, [COMPUTES.job(8)], ["n0"], device="cuda:0", variables=lambda _name: variables)
    assert states(done) == {"computes": ("completed", 8)}
    (device,) = run_documents.read_plan(done.folder.plan)["devices"]
    assert (device["name"], device["model"]) == ("n0/cuda:0", presets.H200.name)
    power = run_documents.read_environment(done.folder.environment)["power_models"]["n0/cuda:0"]
    assert power["busy_w"] == device["power_limit_w"]


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

    jobs = [slow_steps(f"j{number}", 300, 4) for number in range(2)]
    done = run_on(tmp_path, jobs, begun=strikes(kill, "n1", tmp_path))
    assert states(done) == {"j0": ("completed", 300), "j1": ("completed", 300)}
    check_alike(done.folder.path, ["j0", "j1"], 300, 4)
    found = entries(done)
    [failed] = [each for each in found if isinstance(each, DeviceFailed)]
    assert failed.device == "n1/cpu" and failed.reason.startswith("the node n1 is lost: ")
    [lost] = [each for each in found if isinstance(each, JobExited) and each.outcome is Outcome.DEVICE_FAILED]
    again = [each for each in found if isinstance(each, StartJob) and each.job == lost.job]
    assert [each.attempt for each in again] == [1, 2] and again[1].lanes == (0,)
    assert lost.at_s - failed.at_s >= LEASE_S, "the job begins again only when it has surely ended"
    wait_for(lambda: not members(done.folder.path))


def test_the_jobs_of_an_agent_that_hangs_end_before_they_begin_elsewhere(tmp_path: Path) -> None:
    """If it failed, two machines would train the same job."""
    log = tmp_path / "runs" / "latest" / "events.jsonl"
    left: list[int] = []

    def starts() -> int:
        return log.read_bytes().count(b'"StartJob"')

    def hang(link: ProcessLink) -> None:
        wait_for(lambda: starts() == 2)
        token = run_documents.read_environment(log.parent / "environment.json")["nodes"]["n1"]["token"]
        assert reaping.members(token)
        os.kill(link.pid, signal.SIGSTOP)
        wait_for(lambda: starts() == 3)
        left.extend(reaping.members(token))
        (tmp_path / "go").touch()

    script = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists():\n    time.sleep(0.02)\n"
    (tmp_path / "lasts.py").write_text(script)
    job = {"script": str(tmp_path / "lasts.py"), "args": [str(tmp_path / "go")]}
    jobs = [{"name": f"j{number}", **job} for number in range(2)]
    done = run_on(tmp_path, jobs, begun=strikes(hang, "n1", tmp_path, events=0))
    assert {state for state, _ in states(done).values()} == {"completed"}
    [failed] = [each for each in entries(done) if isinstance(each, DeviceFailed)]
    assert "n1 is lost" in failed.reason
    assert not left, "its guard has ended it, and all of its processes"
    wait_for(lambda: not members(done.folder.path))


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


def test_all_ends_when_the_run_is_killed(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.cluster.agents", str(tmp_path)]
    run = subprocess.Popen(words, cwd=ROOT)
    log = tmp_path / "runs" / "latest" / "events.jsonl"
    wait_for(lambda: log.exists() and b'"IterationsDone"' in log.read_bytes())
    environment = run_documents.read_environment(log.parent / "environment.json")
    token = environment["nodes"]["n0"]["token"]
    assert reaping.members(token)
    run.kill()
    run.wait()
    killed_s = time.monotonic()
    wait_for(lambda: not reaping.members(token))
    assert time.monotonic() - killed_s < 15.0, "it is the end of its stdin that ends the agent, not its lease"


def test_a_node_without_the_run_folder_is_told_in_one_line(tmp_path: Path) -> None:
    link = agent(tmp_path, "n0", {})
    line = AgentLine("n0", link)
    found = line.answer(NodeFound, 60.0)
    names = tuple(device.name for device in found.devices)
    line.send(OpenNode(str(tmp_path / "elsewhere"), 0.0, NodePlan(4), 1, names, "p", Limits(), False, NOTHING, LEASE_S))
    with pytest.raises(UnfitEnvironment, match=r"the node n0: .*elsewhere is not there") as told:
        line.answer(NodeOpened, 60.0)
    assert "--runs" in told.value.hint
    line.close()
    assert not (tmp_path / "elsewhere").exists()
