"""Places under a policy that sets widths: of jobs that cannot be resized, and of jobs that can."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.class_profile import MemoryDemand, Solo
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.core.commands import Command, KillJob, StartJob
from ecoshare.core.events import Config, Event, JobExited
from ecoshare.core.records import Job, JobState, Lane
from ecoshare.testing.virtual_driver import ScriptedJob, VirtualDriver
from tests.core.stepping import GIB, Core


class Fluid(Core):
    """One device of four places."""

    def __init__(self, policy: str) -> None:
        self.commands: list[Command] = []
        super().__init__(policy, lanes=2, places=2)
        handle = self.scheduler.handle

        def remember(event: Event) -> list[Command]:
            commands = handle(event)
            self.commands += commands
            return commands

        self.scheduler.handle = remember  # type: ignore[method-assign]

    def come(self, name: str, hours: int) -> None:
        self.arrive(name, gib=0.1, iterations=hours, solo=Solo(iteration_s=1.0))

    def end(self, name: str) -> None:
        self.tell(JobExited(self.now_s, name, 1, Outcome.COMPLETED, 0, "", Usage()))

    def running(self) -> set[str]:
        return {name for name, job in self.scheduler.jobs.items() if job.state is JobState.RUNNING}


@pytest.mark.parametrize("policy", ["fluid", "equal"])
def test_live_jobs_fill_all_places_and_are_never_stopped(policy: str) -> None:
    core = Fluid(policy)
    for name, hours in (("a", 5), ("b", 100), ("c", 1), ("d", 50), ("e", 20), ("f", 70)):
        core.come(name, hours)
    assert core.running() == set("abcd")
    assert sorted(len(lane.jobs) for lane in core.scheduler.lanes.values()) == [2, 2]
    core.end("c")
    assert core.running() == set("abdf"), "the longest of those that wait"
    core.end("b")
    assert core.running() == set("adef")
    assert not any(isinstance(command, KillJob) for command in core.commands)


@pytest.mark.parametrize(("hours", "first"), [(1, "f"), (1000, "e")])
def test_a_job_of_unknown_length_counts_as_the_mean(hours: int, first: str) -> None:
    core = Fluid("fluid")
    for name in "abcd":
        core.come(name, 10)
    core.come("e", hours)
    core.arrive("f", gib=0.1)
    core.end("a")
    assert core.running() == {*"bcd", first}


DEVICES = tuple(Device(f"cuda:{number}", "here", 8 * GIB) for number in range(4))


def resizable(name: str, length_s: float, arrival_s: float = 0.0, **spec: Any) -> tuple[JobSpec, ScriptedJob]:
    known: dict[str, Any] = {"movable": True, "widest": 4, "memory": MemoryDemand(GIB), "profiled": True}
    known |= {"iterations": int(20 * length_s), "solo": Solo(name, iteration_s=0.05), **spec}
    described = JobSpec(name, name, **known)
    return described, ScriptedJob(arrival_s, ((length_s, Outcome.COMPLETED),))


def widths(
    *jobs: tuple[JobSpec, ScriptedJob], policy: str = "fluid", restart_s: float = 0.0, **config: Any
) -> dict[str, list[int]]:
    """Numbers of devices that each job had, attempt by attempt, on four devices of one place."""
    told = Config(policy, 1, 1, options=(("restart", restart_s),), **config)
    driver = VirtualDriver(told, DEVICES, {spec.name: (spec, script) for spec, script in jobs}).run()
    assert set(driver.states().values()) == {JobState.COMPLETED}
    found: dict[str, list[int]] = {}
    for command in (each for _, commands in driver.log for each in commands if isinstance(each, StartJob)):
        found.setdefault(command.job, []).append(len(set(command.lanes)))
    return found


def test_a_job_is_narrower_while_another_one_is_there() -> None:
    found = widths(resizable("a", 60.0), resizable("b", 5.0, arrival_s=10.0))
    assert found["a"][0] == found["a"][-1] == 4 and 1 <= min(found["a"]) < 4
    assert found["b"] == [1], "its part of the work is small, and jobs that run are not resized for the last moments"


@pytest.mark.parametrize(
    ("changes", "widest"),
    [({"widest": 2}, 2), ({"movable": False, "widest": 1}, 1), ({"gpus": 2, "widest": 3, "nodes": None}, 3)],
)
def test_a_job_has_no_more_devices_than_it_can_use(changes: dict[str, Any], widest: int) -> None:
    assert widths(resizable("a", 20.0, **changes)) == {"a": [widest]}


def test_a_gang_keeps_the_devices_that_it_needs_at_least() -> None:
    found = widths(resizable("a", 20.0, gpus=2, widest=4), resizable("b", 400.0, arrival_s=1.0))
    assert found["a"] == [4, 2] and found["b"][0] == 2


def test_a_long_job_gives_a_gang_its_devices() -> None:
    jobs = resizable("a", 300.0), resizable("b", 30.0, arrival_s=1.0, gpus=2, movable=False, widest=2)
    told = Config("fluid", 1, 1, options=(("restart", 0.0),))
    driver = VirtualDriver(told, DEVICES, {spec.name: (spec, script) for spec, script in jobs}).run()
    (start,) = [
        event.at_s for event, log in driver.log for each in log if isinstance(each, StartJob) and each.job == "b"
    ]
    assert start < 5.0, "it does not wait for the end of the long one"


def test_a_job_is_no_wider_than_its_machines_are() -> None:
    devices = tuple(replace(device, node=f"n{number // 2}") for number, device in enumerate(DEVICES))
    jobs = resizable("a", 30.0, nodes=1), resizable("b", 30.0, nodes=1)
    driver = VirtualDriver(Config("fluid", 1, 1), devices, {spec.name: (spec, script) for spec, script in jobs}).run()
    starts = [each for _, commands in driver.log for each in commands if isinstance(each, StartJob)]
    assert [len(each.lanes) for each in starts][:2] == [2, 2]


def test_a_power_budget_leaves_jobs_as_narrow_as_they_can_be() -> None:
    devices = tuple(replace(device, draws_w=(10.0, 100.0)) for device in DEVICES)
    spec, script = resizable("a", 5.0)
    told = Config("fluid", 1, 1, power_budget_w=1000.0, budget_by_placement=True)
    driver = VirtualDriver(told, devices, {"a": (spec, script)}).run()
    (start,) = [each for _, commands in driver.log for each in commands if isinstance(each, StartJob)]
    assert len(start.lanes) == 1


def test_a_job_that_gains_too_little_is_not_stopped() -> None:
    jobs = resizable("a", 6.0), resizable("b", 4.0)
    assert len(widths(*jobs)["a"]) == 2
    assert len(widths(*jobs, restart_s=10.0)["a"]) == 1


def test_a_wide_job_has_all_memory_of_its_devices() -> None:
    spec, script = resizable("a", 5.0)
    driver = VirtualDriver(Config("fluid", 1, 1, enforces_memory=True), DEVICES, {"a": (spec, script)}).run()
    (start,) = [each for _, commands in driver.log for each in commands if isinstance(each, StartJob)]
    assert len(start.lanes) == 4 and start.cap_bytes == 8 * GIB


@pytest.mark.parametrize(
    ("iteration_s", "done"),
    [(0.1, 400), (0.025, 100), (0.09, 400), (0.03, 100)],
    ids=["whole batches", "quarters", "whole, a little faster", "quarters, with some overhead"],
)
def test_the_time_of_an_iteration_tells_what_it_counts_on_four_devices(iteration_s: float, done: int) -> None:
    job = Job(JobSpec("a", "a", solo=Solo("a", iteration_s=0.1), iterations=1000, movable=True), 0.0)
    job.lanes = tuple(Lane(number, device, 1) for number, device in enumerate(DEVICES))
    job.tell(Usage(iterations=100, held_s=100 * iteration_s, span_s=99 * iteration_s), 10.0)
    assert job.done_iterations == done
    assert job.needs_s(10.0) == pytest.approx(0.1 * (1000 - done))


def test_jobs_are_arranged_anew_once_a_need_is_known() -> None:
    """A job that was started again tells how long it needs only when it has done some iterations."""
    known = resizable("a", 30.0, widest=2, solo=None, iterations=600)
    fails = resizable("b", 0.2, arrival_s=5.0, widest=1, solo=None, iterations=None)
    told = Config("fluid", 1, 1, options=(("restart", 1.0),), profile=True)
    jobs = {spec.name: (spec, script) for spec, script in (known, fails)}
    driver = VirtualDriver(told, DEVICES[:2], jobs).run()
    starts = [each for _, commands in driver.log for each in commands if isinstance(each, StartJob)]
    assert [len(each.lanes) for each in starts if each.job == "a"] == [2, 1, 2]


def test_a_job_of_unknown_length_counts_as_long_as_it_has_run() -> None:
    unknown = resizable("a", 100.0, widest=2, iterations=None)
    other = resizable("b", 30.0, arrival_s=5.0, widest=1)
    told = Config("fluid", 1, 1, options=(("restart", 5.0),), profile=True)
    jobs = {spec.name: (spec, script) for spec, script in (unknown, other)}
    driver = VirtualDriver(told, DEVICES[:2], jobs).run()
    starts = [each for _, commands in driver.log for each in commands if isinstance(each, StartJob)]
    assert [len(each.lanes) for each in starts if each.job == "a"] == [2, 1, 2]
