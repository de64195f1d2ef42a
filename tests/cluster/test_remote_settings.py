"""Clocks and power of other machines: two agents, each with a fake GPU through the real `nvidia-ml-py` and `zeus`."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ecoshare import run_options
from ecoshare.base.measurement import Setting
from ecoshare.cluster import joined_nodes
from ecoshare.core.commands import ApplySetting
from ecoshare.core.events import DeviceFailed, Done, IterationsDone, SettingMeasured
from ecoshare.devices.knob import GPU_CLOCK
from ecoshare.errors import UnfitEnvironment
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.record import event_log
from ecoshare.record.log_fold import LogEntry
from ecoshare.runtime.run_lifecycle import FinishedRun
from tests.cluster.agents import run_on
from tests.devices.claims import FOUND_W
from tests.driver import Fault
from tests.driver.fake import Settings
from tests.driver.training import COMPUTES
from tests.runtime.machine import BEFORE, MARKS, Machine
from tests.warm import wait_for

pytestmark = MARKS

NODES = ("n0", "n1")


class Machines:
    """Two machines with a GPU each, and jobs that end when the file `until` exists."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.until, self.log = folder, folder / "until", folder / "runs" / "latest" / "events.jsonl"
        self.of: dict[str, Machine] = {}
        for name in NODES:
            (folder / name).mkdir()
            self.of[name] = Machine(folder / name)
        (folder / "trains.py").write_text((folder / "n0" / "trains.py").read_text())

    def variables(self, name: str) -> dict[str, str]:
        return self.of[name].environment

    def run(self, jobs: int, meanwhile: Callable[[dict[str, Any]], None], **options: Any) -> FinishedRun:
        """Run jobs of one class under `energy`, with a search for its setting.

        Args:
            jobs: Number of jobs.
            meanwhile: Called in a thread with the links of the agents.
            options: Options of the plan.
        """
        training = COMPUTES.job(100_000, "--responds", "--until", str(self.until))
        threads = []

        def begun(started: dict[str, Any]) -> None:
            def work() -> None:
                try:
                    meanwhile(started)
                finally:
                    self.until.touch()

            threads.append(threading.Thread(target=work))
            threads[0].start()

        done = run_on(
            self.folder,
            [{**training, "name": f"j{number}"} for number in range(jobs)],
            begun=begun,
            policy="energy",
            device="cuda:0",
            variables=self.variables,
            **{
                "control": "auto",
                "tuning_limit": 1.1,
                "names": NODES,
                "store": ProfileStore(self.folder / "profiles"),
                **options,
            },
        )
        threads[0].join()
        return done

    def entries(self) -> list[LogEntry]:
        return list(event_log.read(self.log)) if self.log.exists() else []

    def works(self) -> bool:
        """Whether a job has done iterations."""
        return any(isinstance(each, IterationsDone) for each in self.entries())

    def settings(self) -> list[Settings]:
        return [each.driver.gpu(0).settings() for each in self.of.values()]


def applied(entries: Sequence[LogEntry]) -> set[str]:
    done = {each.command for each in entries if isinstance(each, Done)}
    return {each.device for each in entries if isinstance(each, ApplySetting) and each.setting and each.id in done}


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    return Machines(tmp_path)


@pytest.mark.nightly
def test_settings_are_searched_on_both_nodes_and_put_back_even_if_an_agent_is_killed(machines: Machines) -> None:
    machines.of["n1"].driver.gpu(0).fault(Fault.NO_PERMISSION, functions="nvmlDeviceSetGpuLockedClocks")

    def asked_on(device: str) -> list[Setting]:
        return [
            each.setting
            for each in machines.entries()
            if isinstance(each, ApplySetting) and each.device == device and each.setting
        ]

    def kill(started: dict[str, Any]) -> None:
        wait_for(lambda: len(asked_on("n0/cuda:0")) >= 2 and len(asked_on("n1/cuda:0")) >= 3, 200)
        wait_for(lambda: applied(machines.entries()) == {"n0/cuda:0", "n1/cuda:0"})
        os.kill(started["n1"].pid, signal.SIGKILL)
        wait_for(lambda: machines.settings()[1] == BEFORE)
        wait_for(lambda: any(isinstance(each, DeviceFailed) for each in machines.entries()))

    done = machines.run(4, kill)
    assert {job.state for job in done.data.summary.jobs} == {"completed"}
    found = [each.measurement for each in machines.entries() if isinstance(each, SettingMeasured)]
    assert all(each.power_w for each in found if each.times_s), "joules are measured on the nodes"
    clocks = {device: [GPU_CLOCK in dict(each) for each in asked_on(device)] for device in ("n0/cuda:0", "n1/cuda:0")}
    assert clocks["n1/cuda:0"].count(True) <= 1 <= clocks["n0/cuda:0"].count(True), "the run hears which knob is lost"
    assert machines.settings() == [BEFORE, BEFORE], "the guard of the killed agent has put its settings back"
    assert not done.unrestored
    for _, logged, now in event_log.replay(event_log.read(machines.log)):
        assert logged == now


@pytest.mark.nightly
def test_settings_are_searched_on_a_machine_that_comes(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined_nodes, "LOOK_S", 0.2)

    def meanwhile(_started: dict[str, Any]) -> None:
        wait_for(lambda: applied(machines.entries()) == {"n0/cuda:0", "n1/cuda:0"}, 200)

    monkeypatch.setattr(run_options, "MOST_TRIALS", 3)  # the machine joins when the search is over
    done = machines.run(2, meanwhile, names=["n0"], coming=lambda: NODES, lanes=1, jobs_per_lane=1)
    assert {job.state for job in done.data.summary.jobs} == {"completed"}
    assert machines.settings() == [BEFORE, BEFORE] and not done.unrestored


@pytest.mark.nightly
def test_nothing_is_set_anywhere_if_one_node_may_set_nothing(machines: Machines) -> None:
    environment = machines.variables

    def variables(name: str) -> dict[str, str]:
        slurm = {"SLURM_JOB_ID": "1"} if name == "n1" else {}
        return {**environment(name), **slurm}

    machines.variables = variables  # type: ignore[method-assign]
    done = machines.run(2, lambda _started: wait_for(machines.works))
    assert "clocks and power stay as they are: Slurm has allocated no whole GPU" in done.notes
    assert not applied(machines.entries()) and machines.settings() == [BEFORE, BEFORE]
    with pytest.raises(UnfitEnvironment, match="the node n1: power limits cannot be set: Slurm has allocated"):
        machines.run(1, lambda _started: None, control="known", power_budget=900.0)
    machines.of["n0"].driver.gpu(0).load(1, compute=0.1, memory=0.0)
    with pytest.raises(UnfitEnvironment, match="the node n0: power limits cannot be set: 1 other process on cuda:0"):
        machines.run(1, lambda _started: None, control="known", power_budget=900.0)


@pytest.mark.nightly
def test_a_power_budget_is_kept_over_nodes(machines: Machines) -> None:
    limits: list[float] = []

    def look(_started: dict[str, Any]) -> None:
        wait_for(lambda: any(isinstance(each, SettingMeasured) for each in machines.entries()), 120)
        limits.extend(each.power_limit_w for each in machines.settings())

    done = machines.run(2, look, control="known", power_budget=900.0)
    assert {job.state for job in done.data.summary.jobs} == {"completed"}
    assert sum(limits) <= 900.0 < 2 * FOUND_W
    assert machines.settings() == [BEFORE, BEFORE]
