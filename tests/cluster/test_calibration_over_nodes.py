"""Devices of two nodes that differ in speed: each is known by its UUID, and later runs choose the faster one.

The GPUs are fake ones behind the real `nvidia-ml-py`. A ceiling on the clock makes one of them slow.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoshare.base.device import DeviceInfo
from ecoshare.core.commands import OpenLane, StartJob
from ecoshare.core.events import RunOpened
from ecoshare.jobs.load import load
from ecoshare.knowledge.calibration_store import CalibrationStore, IterationTime
from ecoshare.knowledge.profile import IterationTimes
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.record import event_log, run_documents
from ecoshare.runtime.run_lifecycle import FinishedRun
from tests.cluster.agents import members, run_on, states
from tests.driver import COMPILER, FakeDriver, presets
from tests.driver.training import COMPUTES, SCRIPT, WAITS
from tests.planning import planned
from tests.reporting.profiles import PROFILE
from tests.runtime.running import job_file
from tests.warm import wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(COMPILER is None, reason="the fake driver is written in C, and there is no compiler"),
]

NODES = ("n0", "n1")
STEPS = 100


class Machines:
    """Two machines with a fake GPU each, and one folder of profiles."""

    def __init__(self, folder: Path) -> None:
        """The machines see different GPUs of their drivers, since UUIDs of fake GPUs count from 0 in each driver."""
        self.folder, self.store = folder, ProfileStore(folder / "profiles")
        (folder / "trains.py").write_text(SCRIPT)
        self.drivers = dict[str, FakeDriver]()
        for name in NODES:
            (folder / name).mkdir()
            self.drivers[name] = FakeDriver(folder / name, [presets.H200] * len(NODES))
        self.gpus = {name: driver.gpu(number) for number, (name, driver) in enumerate(self.drivers.items())}

    def variables(self, name: str) -> dict[str, str]:
        folder, driver = self.folder / name, self.drivers[name].environment
        return {**driver, "CUDA_VISIBLE_DEVICES": self.gpus[name].uuid, "ECOSHARE_SYSFS": str(folder / "sys")}

    def devices(self) -> tuple[DeviceInfo, ...]:
        """Devices of a run over both machines."""
        size, model = presets.H200.memory_bytes, presets.H200.name
        return tuple(
            DeviceInfo(f"{name}/cuda:0", "cuda", "nvidia", model, gpu.uuid, size, 1, node=name)
            for name, gpu in self.gpus.items()
        )

    def profile(self, *jobs: dict[str, object]) -> list[str]:
        """Store a profile of each job's class, and return the names of the classes.

        No run opens a profiling window then. Otherwise a window that other programs disturb would keep the run from
        learning the speeds.
        """
        plan = planned(load(job_file(self.folder, *jobs)), self.devices())
        for job in plan.jobs:
            times = IterationTimes(count=100, mean_s=0.02, standard_error_s=0.0, median_s=0.02, p95_s=0.02)
            machine = PROFILE.machine.model_copy(update={"kind": "cuda", "uuid": None})
            changes = {"job_class": job.job_class.name, "origin": job.job_class.origin}
            self.store.save(PROFILE.model_copy(update={**changes, "machine": machine, "train": times}))
        return [job.job_class.name for job in plan.jobs]

    def run(self, policy: str, *jobs: dict[str, object]) -> FinishedRun:
        """Run jobs on both machines, one on each at a time."""
        return run_on(
            self.folder,
            jobs,
            NODES,
            policy=policy,
            device="cuda:0",
            variables=self.variables,
            store=self.store,
            lanes=1,
            jobs_per_lane=1,
        )


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    return Machines(tmp_path)


def check(done: FinishedRun) -> dict[str, str]:
    """Check that all jobs have completed, that the log replays, and that no process is left; device of each job."""
    assert set(states(done).values()) == {("completed", STEPS)}
    entries = list(event_log.read(done.folder.events))
    for _, logged, now in event_log.replay(iter(entries)):
        assert logged == now
    wait_for(lambda: not members(done.folder.path))
    devices = {each.lane: each.device for each in entries if isinstance(each, OpenLane)}
    return {each.job: devices[each.lanes[0]] for each in entries if isinstance(each, StartJob)}


def known_speeds(done: FinishedRun) -> dict[str, dict[str, float]]:
    """Speeds of the devices as the run was opened with them, by device and class."""
    opened = next(iter(event_log.read(done.folder.events)))
    assert isinstance(opened, RunOpened)
    return {device.name: dict(device.speeds) for device in opened.devices}


@pytest.mark.nightly
def test_the_next_run_knows_which_node_is_fast(machines: Machines) -> None:
    """The first node is slow. A job takes its device unless a run has learned that."""
    machines.gpus["n0"].ceiling(990)
    job = COMPUTES.job(STEPS, "--responds")
    (job_class,) = machines.profile(job)
    first = machines.run("fair", *({**job, "name": name} for name in "ab"))
    assert check(first) == {"a": "n0/cuda:0", "b": "n1/cuda:0"}
    assert known_speeds(first) == {"n0/cuda:0": {}, "n1/cuda:0": {}}
    kept = {each.device: each for each in CalibrationStore(machines.store.folder).all()}
    for device in machines.devices():
        found = kept.pop(str(device.uuid))
        assert (found.name, [each.job_class for each in found.classes]) == (device.name, [job_class])
    assert not kept

    for policy in ("fair", "energy"):
        done = machines.run(policy, {**job, "name": policy})
        assert check(done) == {policy: "n1/cuda:0"}
        slow, fast = (speeds[job_class] for speeds in known_speeds(done).values())
        assert slow < 0.95 < 1.05 < fast
        notes = [each for each in run_documents.read_plan(done.folder.plan).notes if "slower" in each]
        assert len(notes) == 1 and notes[0].startswith("n0/cuda:0 is up to ")
        assert notes[0].endswith(" % slower than n1/cuda:0: jobs go to the fastest free device")


@pytest.mark.nightly
def test_the_class_that_suffers_more_gets_the_fast_node_under_pal(machines: Machines) -> None:
    """The first node is fast, so that the first job would take it without the speeds."""
    jobs = [WAITS.job(STEPS), COMPUTES.job(STEPS)]
    waits, computes = machines.profile(*jobs)
    store = CalibrationStore(machines.store.folder)
    for device, slowness in zip(machines.devices(), (1.0, 2.0), strict=True):
        times_s = {waits: 0.025, computes: 0.025 * slowness}
        store.add(
            device, {name: IterationTime(seconds=time, iterations=100, run="earlier") for name, time in times_s.items()}
        )
    done = machines.run("pal", *jobs)
    assert check(done) == {"computes": "n0/cuda:0", "waits": "n1/cuda:0"}
    speeds = known_speeds(done)
    assert {speeds[device][waits] for device in speeds} == {1.0}
    assert speeds["n1/cuda:0"][computes] < 0.95 < 1.05 < speeds["n0/cuda:0"][computes]
