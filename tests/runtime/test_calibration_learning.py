"""Times of a class on a device are learned from iterations that had the device to themselves."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.device import Device
from ecoshare.base.job_spec import JobSpec
from ecoshare.core.commands import ApplySetting, OpenLane, ProfileJob, StartJob
from ecoshare.core.events import Config, Done, JobArrived, JobExited, Profiled, RunOpened
from ecoshare.knowledge.profile import Profile, times
from ecoshare.lane.trace import Kind, Mark
from ecoshare.record import event_log
from ecoshare.record.accounts.alone_time import WARM_UP
from ecoshare.record.accounts.turn_account import TurnAccount, union
from ecoshare.record.run_history import RunHistory
from ecoshare.runtime.planning.learning import AloneIterations, measured_times
from tests.knowledge.classes import profile
from tests.runtime.running import run as finished

Life = tuple[str, int, list[Mark], float, float]
"""A job of the class of its first letter: its name, lane, trace, start (s) and end (s)."""


def turn(from_s: float, iterations: int, each_s: float, kind: Kind = Kind.TRAIN) -> list[Mark]:
    ends = [Mark(kind, from_s + each_s * (number + 1)) for number in range(iterations)]
    return [Mark(Kind.TURN_BEGINS, from_s), *ends, Mark(Kind.TURN_ENDS, ends[-1].at_s)]


def data(*lives: Life, between: tuple[Any, ...] = (), **usage: Any) -> AloneIterations:
    """Run with two lanes on each of two devices: 0 and 1 on `d0`, 2 and 3 on `d1`."""
    entries: list[Any] = [RunOpened(0.0, 3, Config("fair", 2), (Device("d0", "here", 1), Device("d1", "here", 1)))]
    entries += [OpenLane(lane, lane, f"d{lane // 2}", 1) for lane in range(4)]
    for number, (name, lane, _, from_s, _) in enumerate(lives, start=10):
        entries += [JobArrived(from_s, JobSpec(name, name[0])), StartJob(number, name, 1, (lane,), 1)]
        entries.append(Done(from_s, number))
    entries += between
    ended = Usage(**usage)
    entries += [JobExited(to_s, name, 1, Outcome.COMPLETED, 0, "", ended) for name, _, _, _, to_s in lives]
    traces = {(name, 1): marks for name, _, marks, _, _ in lives}
    return counted(entries, traces)


def counted(entries: list[Any], traces: dict[tuple[str, int], list[Mark]]) -> AloneIterations:
    marks = {
        key: (np.array([each.kind for each in own], np.uint8), np.array([each.at_s for each in own]))
        for key, own in traces.items()
    }
    history = RunHistory(entries)
    return AloneIterations(TurnAccount.of_marks(history, marks), history)


def found(measured: AloneIterations, **made: Profile) -> dict[str, dict[str, tuple[float, int]]]:
    """Time (s), to the microsecond, and number of iterations by device and class."""
    return {
        device: {name: (round(each.seconds, 6), each.iterations) for name, each in classes.items()}
        for device, classes in measured_times(measured, made, "r").items()
        if classes
    }


def test_warm_iterations_of_a_job_alone_count() -> None:
    alone = data(("a", 0, turn(1.0, 100, 0.1), 0.0, 12.0), ("b", 2, turn(1.0, 100, 0.2), 0.0, 22.0))
    count = 100 - WARM_UP
    assert found(alone) == {"d0": {"a": (0.1, count)}, "d1": {"b": (0.2, count)}}


def test_iterations_beside_a_job_of_another_lane_do_not_count() -> None:
    """The job beside it takes half of the device from 3 s on: iterations take twice as long from then on."""
    slow = [*turn(1.0, 30, 0.1)[:-1], *turn(4.0, 100, 0.2)[1:]]
    beside = data(("a", 0, slow, 0.0, 30.0), ("b", 1, turn(3.95, 100, 0.2), 3.0, 30.0))
    assert found(beside) == {"d0": {"a": (0.1, 20 - WARM_UP)}}, "b starts at 3 s, and has the processors from then on"
    assert found(data(("a", 0, slow, 0.0, 30.0), ("b", 2, turn(3.95, 100, 0.2), 3.0, 30.0)))["d0"]["a"][0] == 0.2


def test_each_attempt_is_compared_with_those_beside_it_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, each was compared with all others: a sweep of 400 trials took 40 s more at its end."""
    spans: list[int] = []

    def counts(sets: list[np.ndarray]) -> np.ndarray:
        spans.append(sum(map(len, sets)))
        return union(sets)

    lives = [(f"a{number}", 0, turn(10.0 * number, 20, 0.1), 10.0 * number, 10.0 * number + 3.0) for number in range(9)]
    made = data(*lives)
    monkeypatch.setattr("ecoshare.runtime.planning.learning.union", counts)
    assert found(made)["d0"]["a"] == (0.1, 9 * (20 - WARM_UP))
    assert spans == [0] * 9


def test_jobs_that_take_turns_in_one_lane_are_alone_in_their_turns() -> None:
    first = [*turn(1.0, 20, 0.1), *turn(5.0, 20, 0.1), *turn(9.0, 20, 0.1)]
    second = [*turn(3.0, 10, 0.2), *turn(7.0, 10, 0.2)]
    shared = found(data(("a", 0, first, 0.0, 11.0), ("b", 0, second, 0.0, 9.0)))["d0"]
    # Those that begin in one turn and end in the next have waited. All of the first turn of a is beside the start of b.
    assert shared == {"a": (0.1, 38), "b": (0.2, 9)}


def test_a_setting_that_is_not_the_default_and_a_window_do_not_count() -> None:
    steps = turn(0.0, 100, 0.1)
    applied = (ApplySetting(50, "d0", (("gpu_clock", 900.0),)), Done(5.05, 50))
    assert found(data(("a", 0, steps, 0.0, 10.0), between=applied)) == {"d0": {"a": (0.1, 50 - WARM_UP)}}
    window = (Done(5.05, 99), ProfileJob(51, "a", 1), Profiled(7.05, 51, None))
    assert found(data(("a", 0, steps, 0.0, 10.0), between=window)) == {"d0": {"a": (0.1, 100 - WARM_UP - 21)}}


@pytest.mark.parametrize(
    "life",
    [
        ("a", 0, turn(0.0, WARM_UP + 4, 1.0), 0.0, 20.0),
        ("a", 0, turn(0.0, WARM_UP + 90, 0.01), 0.0, 20.0),
        ("a", 0, turn(0.0, 100, 0.1, Kind.EVAL), 0.0, 20.0),
    ],
    ids=["few", "short", "inference"],
)
def test_what_is_too_little_is_left_out(life: Life) -> None:
    assert found(data(life)) == {}


def test_a_job_with_children_on_its_device_does_not_count() -> None:
    """The trace is that of the launcher."""
    assert found(data(("a", 0, turn(0.0, 100, 0.1), 0.0, 20.0), keeps_lane="torchrun")) == {}


def test_a_window_stands_in_for_a_class_without_iterations_alone() -> None:
    seen = times([0.3] * 20)
    assert seen is not None
    made = profile("a").model_copy(update={"train": seen, "doubt": ""})
    machine = made.machine.model_copy(update={"device": "d1"})
    made = made.model_copy(update={"machine": machine})
    short = data(("a", 2, turn(0.0, 12, 0.1), 0.0, 20.0))
    assert found(short, a=made) == {"d1": {"a": (0.3, 20)}}
    long = data(("a", 2, turn(0.0, 100, 0.1), 0.0, 20.0))
    assert found(long, a=made) == {"d1": {"a": (0.1, 90)}}
    doubted = made.model_copy(update={"doubt": "other programs kept 1.4 of 2 processors busy"})
    assert found(long, a=doubted) == {}, "the run was disturbed, not only its window"


UNEVEN = """
import os, time
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
slow = min(os.sched_getaffinity(0)) == FIRST
for step in range(180):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.030 if slow else 0.015)
"""
"""Script that stands for devices which differ: an iteration takes twice as long on the first partition."""


@pytest.mark.nightly
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two partitions take two processors")
def test_the_next_run_knows_which_device_is_fast(tmp_path: Path) -> None:
    (tmp_path / "uneven.py").write_text(UNEVEN.replace("FIRST", str(min(os.sched_getaffinity(0)))))
    jobs = [{"name": name, "script": "uneven.py"} for name in "ab"]
    options = ("--device", "cpu/2", "--profiles", str(tmp_path / "profiles"))
    first = finished(tmp_path, *jobs, options=options)
    assert first.code == 0 and "slower" not in first.stderr
    assert [first.job(name)["devices"] for name in "ab"] == [["cpu:0"], ["cpu:1"]]
    again = finished(tmp_path, jobs[0], options=(*options, "--policy", "energy"))
    assert again.code == 0, again.stderr
    assert re.search(r"cpu:0 is up to \d\d % slower than cpu:1: jobs go to the fastest free device", again.stderr)
    assert again.job("a")["devices"] == ["cpu:1"]
    opened = next(iter(event_log.read(again.folder / "events.jsonl")))
    assert isinstance(opened, RunOpened)
    slow, fast = (dict(device.speeds)[""] for device in opened.devices)
    assert slow < 0.95 < 1.05 < fast
