"""Jobs of one device go to the fastest of equally good devices, and measurements are those of a typical device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from ecoshare.base.attempt import Usage
from ecoshare.base.class_profile import MemoryDemand, Solo
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.base.measurement import Measurement, MeasurementStatus, PairSpeed
from ecoshare.core.commands import AskInterference, MeasureSetting, OpenLane, ProfileJob, StartJob
from ecoshare.core.events import (
    SCHEMA,
    Config,
    Done,
    InterferencePredicted,
    IterationsDone,
    JobArrived,
    Profiled,
    RunOpened,
    SettingMeasured,
)
from ecoshare.core.scheduler import Scheduler

GIB = 1 << 30
UNEVEN = ((), (("", 1.05), ("a", 0.9)), (("", 1.02), ("a", 1.1)))
"""Speeds of three devices: the second is the fastest, but not for class a."""

WELL = tuple(PairSpeed(one, other, 0.95, 0.01) for one in "ab" for other in "ab")
"""Forecasts of neighbours that hardly slow each other down."""


class Core:
    """Scheduler of devices with these speeds; starts and moves are done at once.

    Attributes:
        places: Device of each job that was started.
        commands: All commands so far.
    """

    def __init__(self, *speeds: Any, policy: str = "energy", lanes: int = 2, profile: bool = False) -> None:
        devices = [Device(f"cuda:{place}", "here", 8 * GIB, each) for place, each in enumerate(speeds)]
        self.scheduler, self.places, self.commands, self.now_s = Scheduler(), dict[str, str](), list[Any](), 0.0
        self._lanes: dict[int, str] = {}
        self.tell(RunOpened(0.0, SCHEMA, Config(policy, lanes, profile=profile), tuple(devices)))

    def tell(self, event: Any) -> None:
        for command in self.scheduler.handle(event):
            self.commands.append(command)
            if isinstance(command, OpenLane):
                self._lanes[command.lane] = command.device
            if isinstance(command, StartJob):
                self.places[command.job] = self._lanes[command.lanes[0]]
            if isinstance(command, AskInterference):
                self.tell(InterferencePredicted(self.now_s, command.id, WELL, {}))
            elif type(command).__name__ in ("OpenLane", "StartJob", "MoveJob", "ApplySetting"):
                self.tell(Done(self.now_s, command.id))

    def arrive(self, *names: str, known: bool = True) -> None:
        for name in names:
            spec = JobSpec(name, name[0], memory=MemoryDemand(GIB), profiled=known)
            spec = replace(spec, solo=Solo(name[0], 0.1, 200.0, 40.0)) if known else spec
            self.tell(JobArrived(self.now_s, spec))

    def last(self, kind: type) -> Any:
        return next(each for each in reversed(self.commands) if isinstance(each, kind))


@pytest.mark.parametrize("policy", ["energy", "jct", "makespan", "edp", "fifo", "fair", "srtf"])
def test_a_job_takes_the_fastest_empty_device_for_its_class(policy: str) -> None:
    core = Core(*UNEVEN, policy=policy, lanes=1)
    core.arrive("a1", "b1", "a2")
    assert core.places == {"a1": "cuda:2", "b1": "cuda:1", "a2": "cuda:0"}


@pytest.mark.parametrize("policy", ["energy", "fifo"])
def test_where_devices_are_alike_the_first_one_comes_first(policy: str) -> None:
    alike: Sequence[Any] = [(), (("", 1.0),), ()]
    core = Core(*alike, policy=policy, lanes=1)
    core.arrive("a1", "b1", "a2")
    assert core.places == {"a1": "cuda:0", "b1": "cuda:1", "a2": "cuda:2"}


def test_a_fast_device_with_a_job_comes_after_a_slow_one_without() -> None:
    core = Core((("", 0.9),), (("", 1.1),), policy="fifo", lanes=1)
    core.arrive("a1", "a2")
    assert core.places == {"a1": "cuda:1", "a2": "cuda:0"}


def test_a_measurement_of_neighbours_is_corrected_by_the_speed_of_their_device() -> None:
    """On a device of speed 0.8, times that are 1.25 times those of the profile show no interference."""
    core = Core((("", 0.8),), profile=True)
    core.arrive("a1", "b1")
    core.now_s = 60.0
    for name in ("a1", "b1"):
        core.tell(IterationsDone(60.0, name, Usage(iterations=400, held_s=50.0, span_s=50.0)))
    command = core.last(MeasureSetting)
    times_s = {"a1": 0.125, "b1": 0.25}
    found = Measurement((), MeasurementStatus.MEASURED, power_w=300.0, times_s=times_s)
    core.tell(SettingMeasured(70.0, command.id, found))
    (seen,) = core.last(AskInterference).colocations
    assert dict(zip(seen.classes, seen.speeds, strict=True)) == pytest.approx({"a": 1.0, "b": 0.5})


def test_a_window_on_a_slow_device_gives_the_time_of_a_typical_one() -> None:
    core = Core((("", 0.8),), profile=True)
    core.arrive("a1", known=False)
    core.now_s = 60.0
    core.tell(IterationsDone(60.0, "a1", Usage(iterations=400, held_s=50.0, span_s=50.0)))
    window = core.last(ProfileJob)
    core.tell(Profiled(70.0, window.id, MemoryDemand(GIB), solo=Solo("a", 0.125, 200.0, 40.0)))
    ((name, solo),) = core.last(AskInterference).solos
    assert name == "a" and solo.iteration_s == pytest.approx(0.1)
