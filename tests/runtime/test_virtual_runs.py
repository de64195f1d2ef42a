"""The real driver, node, log and resume in virtual time: jobs, servers, messages and devices that fail."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.base.attempt import Outcome
from ecoshare.core.commands import StartJob
from ecoshare.core.events import JobExited, Parked, Resumed
from ecoshare.devices.memory_transfer import TransferFault
from ecoshare.errors import UnfitEnvironment
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.lane import exit_records
from ecoshare.lane.messages import Ended, LaunchAttempt, Message
from ecoshare.lane.tables.table_layout import SLOTS
from ecoshare.record.kept_file import KeptFile
from ecoshare.record.run_data import read
from ecoshare.reporting.tables.run_table import totals
from ecoshare.runtime import driver
from ecoshare.runtime.measuring.profiling_window import Limits
from tests.virtual.lanes import Fate
from tests.virtual.run import CONTEXT_W, IDLE_W, World, check, check_spans, entries, resume, run, run_in, states

POLICIES = ("fifo", "srtf", "fair", "priority")
DISPLACE = ("srtf", "fair", "priority")
GIB = 1 << 30


def test_jobs_take_turns_and_wait_for_no_time_of_the_machine(tmp_path: Path) -> None:
    """Twenty iterations of 100 ms each take four seconds; loading takes three, and starting one."""
    finished = run(World(tmp_path), [{"name": "a"}, {"name": "b"}], policy="fair")
    check(finished)
    assert states(finished) == {"a": "completed", "b": "completed"}
    a, b = finished.data.summary.jobs
    assert (a.iterations, b.iterations) == (20, 20)
    assert min(a.handovers or 0, b.handovers or 0) > 5, "they run by turns"
    assert finished.data.summary.makespan_s == pytest.approx(3.0 + 1.0 + 4.0, abs=0.5)


@pytest.mark.slow
def test_the_same_world_gives_the_same_log(tmp_path: Path) -> None:
    """Else a failure of a schedule of faults could not be looked into."""
    logs = []
    for number in range(3):
        faults: dict[str, Any] = {"server_dies_s": (1006.0,), "fates": {("b", 1): Fate(outcome="failed")}}
        world = World(tmp_path / f"{number}", **faults)
        finished = run(world, [{"name": name, "retries": 1} for name in "abc"], policy="fair")
        logs.append(
            [repr(each).replace(str(world.folder), "") for each in entries(finished.folder.path)],
        )
    assert logs[0] == logs[1] == logs[2]


def test_a_job_beside_its_gpu_gets_none_of_the_joules(tmp_path: Path) -> None:
    """Else a script that fell back to the processors would look as if it had cost an idle GPU's joules."""
    finished = run(World(tmp_path, {("a", 1): Fate(beside=True)}), [{"name": "a"}, {"name": "b"}])
    check(finished)
    summary = finished.data.summary
    a, b = summary.jobs
    assert a.is_beside_its_gpu and a.iterations == 20 and a.energy is None
    assert not b.is_beside_its_gpu and b.energy is not None
    assert summary.baseline is not None and summary.baseline.exclusive_energy_j is None
    assert "a never used its GPU" in summary.baseline.unknown


def test_the_power_of_contexts_is_told_apart_and_no_job_pays_for_it(tmp_path: Path) -> None:
    """The idle power that is taken off is that with contexts. The power before the first job is told beside it."""
    fates = {(name, 1): Fate(load_s=0.0, iterations=400) for name in "ab"}
    known: dict[str, Any] = {"store": ProfileStore(tmp_path / "profiles"), "lanes": 1, "jobs_per_lane": 2}
    summary = run(World(tmp_path, fates), [{"name": name} for name in "ab"], "fair", **known).data.summary
    assert summary.empty_power_w == pytest.approx(IDLE_W, rel=0.01)
    assert summary.idle_power_w == pytest.approx(IDLE_W + 2 * CONTEXT_W, rel=0.05)
    assert summary.energy is not None and summary.idle_energy_j is not None
    assert summary.idle_energy_j == pytest.approx(summary.energy.value_j, rel=0.05), "nothing but contexts was there"
    assert "(50 W before the first job, 90 W with contexts)" in totals(summary)


def test_a_job_that_hangs_is_ended_by_the_second_request(tmp_path: Path) -> None:
    world = World(tmp_path, {("a", 1): Fate(iterations=5, hangs=True)}, stops_s=(1010.0, 1012.0))
    finished = run(world, [{"name": "a"}, {"name": "b"}])
    check(finished)
    assert states(finished) == {"a": "cancelled", "b": "cancelled"}


def test_jobs_of_a_silent_server_are_ended_and_the_run_is_over(tmp_path: Path) -> None:
    """The server gets no stop. Before the time limit the run would wait for it for ever."""
    endless = {("a", 1): Fate(iterations=10**6)}
    lost = World(tmp_path, endless, stops_s=(1008.0, 1009.0), latency_s=lambda each: _unless(each, "StopAttempt"))
    finished = run(lost, [{"name": "a"}])
    check(finished)
    assert states(finished) == {"a": "cancelled"}
    assert finished.data.summary.makespan_s == pytest.approx(9.0 + 5.0, abs=1.0)


def _unless(message: Message, name: str) -> float | None:
    return None if type(message).__name__ == name else 0.001


def test_a_device_that_fails_takes_no_job_with_it(tmp_path: Path) -> None:
    """The jobs go on from the start on the other one."""
    world = World(tmp_path, fails_s={"cuda:1": 1005.0}, devices=2)
    finished = run(world, [{"name": name} for name in "abcd"], policy="fair")
    check(finished)
    assert set(states(finished).values()) == {"completed"}
    assert Counter(job for job, _ in world.completed) == Counter("abcd")


def test_a_run_waits_for_room_on_its_disk_and_loses_nothing(tmp_path: Path) -> None:
    """A job ends, and the next begins, while there is none: both are in the log once there is room."""
    world = World(tmp_path, full_s=[(1004.0, 1050.0)])
    finished = run(world, [{"name": name} for name in "abc"], lanes=1, jobs_per_lane=1)
    check(finished)
    assert states(finished) == dict.fromkeys("abc", "completed")
    assert [job for job, _ in world.started] == list("abc")
    assert world.spans[0].to_s < 1010.0 and world.spans[1].from_s >= 1050.0, "no job begins that the log cannot have"


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("at_first", [True, False])
def test_a_line_that_may_not_be_on_the_disk_ends_the_run(
    tmp_path: Path, number: int, at_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing may follow from it. At first, or when there is room again, the file takes the line, but not the disk."""
    world, sync = World(tmp_path, full_s=() if at_first else [(1004.0, 1010.0)]), KeptFile.sync

    def fails(self: KeptFile) -> None:
        if world.clock.monotonic_s() >= 1004.0:
            raise OSError(number, os.strerror(number))
        sync(self)

    monkeypatch.setattr(KeptFile, "sync", fails)
    with pytest.raises(UnfitEnvironment, match=os.strerror(number)):
        run(world, [{"name": name} for name in "ab"], lanes=1, jobs_per_lane=1)
    assert [job for job, _ in world.started] == ["a"]


@pytest.mark.parametrize("stops_s", [(), (1030.0,)])
def test_a_disk_without_room_for_long_ends_the_run_which_can_be_resumed(
    tmp_path: Path, stops_s: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user may end the wait."""
    monkeypatch.setattr(driver, "FULL_DISK_S", 60.0)
    world = World(tmp_path, full_s=[(1006.0, 1e9)], stops_s=stops_s)
    with pytest.raises(UnfitEnvironment, match="No space left on device") as told:
        run(world, [{"name": name} for name in "ab"], lanes=1, jobs_per_lane=1)
    waited_s = world.clock.monotonic_s() - 1006.0
    assert waited_s < 50.0 if stops_s else 60.0 <= waited_s < 100.0
    assert "ecoshare run --resume" in told.value.hint
    world.full_s = world.stops_s = ()
    finished = resume(world, world.disk)
    assert states(finished) == dict.fromkeys("ab", "completed")


def test_a_job_that_could_not_be_launched_leaves_its_place_to_the_next(tmp_path: Path) -> None:
    world = World(tmp_path, {("a", 1): Fate(launched=False), ("b", 1): Fate(launched=False)})
    finished = run(world, [{"name": name} for name in "abcd"], lanes=1, jobs_per_lane=1)
    check(finished)
    assert states(finished) == {"a": "failed", "b": "failed", "c": "completed", "d": "completed"}


@pytest.mark.parametrize(
    "replace",
    [
        lambda path: path.symlink_to(path),
        lambda path: path.mkdir(),
        lambda path: os.mkfifo(path),
        lambda path: path.write_text("{}"),
    ],
)
def test_files_in_the_place_of_an_exit_record_harm_no_run(tmp_path: Path, replace: Callable[[Path], None]) -> None:
    """The log has the ends. Before, a job could so keep its run from a summary."""
    finished = run(World(tmp_path), [{"name": "a"}, {"name": "b"}])
    path = exit_records.exit_path(finished.folder.job("a"), 1)
    path.unlink()
    replace(path)
    assert [job.state for job in read(finished.folder).summary.jobs] == ["completed", "completed"]


def test_jobs_that_could_not_be_launched_take_no_slot_from_those_that_follow(tmp_path: Path) -> None:
    """The table of a lane has room for 64."""
    bad = [f"bad-{number}" for number in range(SLOTS + 1)]
    world = World(tmp_path, {(name, 1): Fate(launched=False) for name in bad})
    finished = run(world, [{"name": name} for name in (*bad, "last")], lanes=1, jobs_per_lane=1)
    check(finished)
    assert states(finished) == {**dict.fromkeys(bad, "failed"), "last": "completed"}


def test_an_end_that_was_not_heard_is_read_from_its_record(tmp_path: Path) -> None:
    """The job ends at 6 s, its server dies at 7 s, and the message would have come at 10 s."""
    late = World(tmp_path, server_dies_s=(1007.0,), latency_s=lambda each: 4.0 if isinstance(each, Ended) else 0.001)
    finished = run(late, [{"name": "a", "retries": 1}])
    check(finished)
    assert states(finished) == {"a": "completed"} and late.started == [("a", 1)]


def test_the_log_has_each_start_before_the_server_does(tmp_path: Path) -> None:
    """Else a controller that dies between the two would leave an attempt that its resume knows nothing of."""
    logged: list[bool] = []

    def sent(message: Message) -> float:
        if isinstance(message, LaunchAttempt):
            starts = [each for each in entries(run_in(world.disk)) if isinstance(each, StartJob)]
            logged.append((message.job, message.attempt) in {(each.job, each.attempt) for each in starts})
        return 0.001

    world = World(tmp_path, latency_s=sent)
    run(world, [{"name": name} for name in "abc"])
    assert logged == [True] * 3


def test_a_run_waits_for_a_job_that_arrives_when_all_others_have_ended(tmp_path: Path) -> None:
    world = World(tmp_path)
    finished = run(world, [{"name": "a"}, {"name": "b", "arrival": "60 s"}])
    check(finished)
    assert states(finished) == {"a": "completed", "b": "completed"}
    assert world.spans[1].from_s >= 1060.0


def test_another_controller_goes_on_where_one_died(tmp_path: Path) -> None:
    """A job that had completed is not run again, and an attempt after the death has a number of its own."""
    world = World(tmp_path, {("b", 1): Fate(iterations=200)}, image_s=1010.0)
    run(world, [{"name": "a"}, {"name": "b"}])
    assert world.image is not None
    again = World(tmp_path)
    finished = resume(again, world.image)
    check(finished)
    assert states(finished) == {"a": "completed", "b": "completed"}
    assert again.started == [("b", 2)]


@pytest.mark.parametrize(
    ("faults", "attempts"),
    [
        ({}, 1),
        ({"parks_fail": [TransferFault("it is not ready", runs_on=True)]}, 1),
        ({"parks_fail": [TransferFault("it hangs", runs_on=False)]}, 2),
        ({"resumes_fail": {0}}, 2),
        ({"server_dies_s": (1026.0,)}, 2),
    ],
    ids=["parked", "runs on", "is lost on the way out", "is lost on the way back", "dies with its server"],
)
def test_a_parked_job_goes_on_or_begins_again(faults: dict[str, Any], attempts: int, tmp_path: Path) -> None:
    world = World(tmp_path, {("long", 1): Fate(iterations=400)}, memory_bytes=2 * GIB, **faults)
    jobs: list[dict[str, Any]] = [{"name": "long"}, {"name": "urgent", "priority": 9, "arrival": "5 s"}]
    finished = run(world, jobs, policy="priority", lanes=1, jobs_per_lane=1, host_memory=8 * GIB)
    check(finished)
    assert states(finished) == {"long": "completed", "urgent": "completed"}
    assert Counter(job for job, _ in world.started)["long"] == attempts
    told = entries(finished.folder.path)
    is_parked = not any(world.parks_fail)
    assert any(isinstance(each, Parked) for each in told) == is_parked
    assert any(isinstance(each, Resumed) for each in told) == (is_parked and attempts == 1)


_SHORT = Limits(shortest_s=0.5, modelled_s=0.5, longest_s=3.0)
"""Limits on a window, with which a job of a few iterations may be measured."""


def _fates(iterations: tuple[int, int], longest_s: float) -> st.SearchStrategy[Fate]:
    return st.builds(
        Fate,
        load_s=st.floats(0.0, 5.0),
        iterations=st.integers(*iterations),
        iteration_s=st.floats(0.001, longest_s),
        outcome=st.sampled_from(["completed", "completed", "completed", "failed", "crashed", "out of memory"]),
        launched=st.sampled_from([True, True, True, False]),
    )


fates = _fates((1, 12), 2.0) | _fates((40, 80), 0.5)


@given(
    policy=st.sampled_from(POLICIES),
    devices=st.integers(1, 2),
    jobs=st.lists(st.lists(fates, min_size=1, max_size=3), min_size=1, max_size=5),
    retries=st.integers(0, 2),
    deaths=st.lists(st.floats(1000.5, 1040.0), max_size=3),
    slow=st.sampled_from([0.0, 0.001, 0.5]),
    image_s=st.none() | st.floats(1000.0, 1040.0),
    parks_fail=st.none() | st.lists(st.sampled_from([None, True, False]), max_size=3),
    resumes_fail=st.sets(st.integers(0, 3), max_size=2),
    windows=st.booleans(),
)
def test_no_job_is_lost_or_done_twice(
    tmp_path_factory: pytest.TempPathFactory,
    policy: str,
    devices: int,
    jobs: list[list[Fate]],
    retries: int,
    deaths: list[float],
    slow: float,
    image_s: float | None,
    parks_fail: list[bool | None] | None,
    resumes_fail: set[int],
    windows: bool,
) -> None:
    """Whatever jobs, servers and the controller do: each job has one end, and one that it deserves.

    A controller that dies is the copy of its folder at that moment, with which another controller goes on. If jobs are
    parked, urgent ones come later, and transfers fail. A fault tells whether the job runs on. If there are profiles,
    jobs are measured in windows, each of which may end with its job or its server.
    """
    told = {
        (f"j{number}", attempt): fate for number, own in enumerate(jobs) for attempt, fate in enumerate(own, start=1)
    }
    world = World(
        tmp_path_factory.mktemp("world"),
        told,
        server_dies_s=deaths,
        latency_s=lambda message: slow,
        devices=devices,
        image_s=image_s,
        memory_bytes=2 * GIB,
        parks_fail=[None if runs_on is None else TransferFault("it fails", runs_on) for runs_on in parks_fail or ()],
        resumes_fail=resumes_fail,
    )
    asked = [{"name": f"j{number}", "retries": retries} for number in range(len(jobs))]
    options: dict[str, Any] = {"lanes": 2, "jobs_per_lane": 2}
    if parks_fail is not None and policy in DISPLACE:
        options = {"lanes": 1, "jobs_per_lane": 1, "host_memory": 8 * GIB}
        asked = [
            {**each, "priority": 9 * number, "arrival": f"{2 * number + 3} s"} for number, each in enumerate(asked)
        ]
    if windows:
        asked = [{**each, "args": [each["name"]]} for each in asked]  # a class each
        options["store"] = ProfileStore(world.folder / "profiles")
    finished = run(world, asked, policy=policy, window=_SHORT, **options)
    _check_ends(world, finished, len(jobs))
    if world.image is not None:
        again = World(world.folder, told, devices=devices, memory_bytes=2 * GIB)
        before = {
            each.job
            for each in entries(run_in(world.image))
            if isinstance(each, JobExited) and each.outcome is Outcome.COMPLETED
        }
        finished = resume(again, world.image)
        check(finished)
        assert {job.name for job in finished.data.summary.jobs} == {each["name"] for each in asked}
        assert not before & {job for job, _ in again.started}, "a job that had completed was run again"


def _check_ends(world: World, finished: Any, jobs: int) -> None:
    check(finished)
    ends = states(finished)
    assert len(ends) == jobs and set(ends.values()) <= {"completed", "failed"}
    assert Counter(job for job, _ in world.completed) == Counter(
        name for name, end in ends.items() if end == "completed"
    )
    assert len(world.started) == len(set(world.started)), "an attempt began twice"


def test_a_job_of_two_devices_waits_for_both_and_keeps_them(tmp_path: Path) -> None:
    world = World(tmp_path, {("a", 1): Fate(iterations=60)}, devices=2)
    jobs: list[dict[str, Any]] = [{"name": "a"}, {"name": "b"}, {"name": "both", "gpus": 2}, {"name": "c"}]
    finished = run(world, jobs, policy="fifo", lanes=1, jobs_per_lane=1)
    check(finished)
    assert states(finished) == dict.fromkeys(("a", "b", "both", "c"), "completed")
    spans = {each.job: each for each in world.spans}
    assert spans["both"].from_s >= spans["a"].to_s, "it needs the device of a, too"
    assert spans["c"].from_s >= spans["both"].to_s


def test_a_sweep_ends_bad_trials_early_and_a_dead_controller_loses_none(tmp_path: Path) -> None:
    """Samples and rule go on from the log, and trials that have ended are not drawn again."""
    losses = {f"s.{number:04d}": (1.0 + number,) * 20 for number in range(9)}
    told = {(name, attempt): Fate(losses=own) for name, own in losses.items() for attempt in (1, 2)}
    world = World(tmp_path, told, image_s=1014.0)
    finished = run(world, [_sweep(9, "asha")], policy="fifo", lanes=1, jobs_per_lane=1)
    check(finished)
    ends = states(finished)
    assert Counter(ends.values())["pruned"] >= 4 and ends["s.0000"] == "completed"
    assert world.image is not None
    ended = {each.job for each in entries(run_in(world.image)) if isinstance(each, JobExited)}
    again = World(tmp_path, told)
    finished = resume(again, world.image)
    check(finished)
    assert states(finished).keys() == losses.keys()
    assert ended and not ended & {job for job, _ in again.started}


def _sweep(trials: int, stop: str | None, **keys: Any) -> dict[str, Any]:
    more: dict[str, Any] = {} if stop is None else {"stop": stop}
    if stop == "halving":
        keys = {**keys, "preemptible": True, "resume_args": ["--resume"]}
    grid = {"x": [float(each) for each in range(trials)]}
    return {"name": "s", "sweep": {"grid": grid, "metric": "loss", **more}, **keys}


@pytest.mark.slow
@given(
    stop=st.sampled_from([None, "asha", "median", "halving"]),
    policy=st.sampled_from(("fifo", "fair", "srtf", "energy")),
    devices=st.integers(1, 2),
    trials=st.lists(st.tuples(fates, st.lists(st.sampled_from([1.0, 2.0, 3.0]), max_size=12)), min_size=1, max_size=8),
    gang=st.booleans(),
    deaths=st.lists(st.floats(1000.5, 1040.0), max_size=2),
    image_s=st.none() | st.floats(1000.0, 1040.0),
)
def test_no_trial_is_lost_or_drawn_twice(
    tmp_path_factory: pytest.TempPathFactory,
    stop: str | None,
    policy: str,
    devices: int,
    trials: list[tuple[Fate, list[float]]],
    gang: bool,
    deaths: list[float],
    image_s: float | None,
) -> None:
    """Whatever trials report, and whatever dies: each is drawn once and has one end, beside a job of all devices."""
    names = [f"s.{number:04d}" for number in range(len(trials))]
    told = {
        (name, attempt): replace(fate, losses=tuple(losses))
        for name, (fate, losses) in zip(names, trials, strict=True)
        for attempt in range(1, 9)
    }
    folder = tmp_path_factory.mktemp("world")
    world = World(folder, told, server_dies_s=deaths, devices=devices, image_s=image_s)
    asked = [_sweep(len(trials), stop, retries=1)]
    if gang:
        asked.append({"name": "wide", "gpus": devices, "arrival": "5 s", "retries": 4})
    finished = run(world, asked, policy=policy, lanes=2, jobs_per_lane=2)
    check(finished)
    check_spans(world)
    ends = states(finished)
    assert ends.keys() == {*names, *(["wide"] if gang else [])}
    assert set(ends.values()) <= {"completed", "failed", "pruned"}
    done = Counter(name for name, end in ends.items() if end == "completed")
    assert Counter(job for job, _ in world.completed) == done
    assert len(world.started) == len(set(world.started)), "an attempt began twice"
    if world.image is not None:
        again = World(folder, told, devices=devices)
        over = {
            each.job
            for each in entries(run_in(world.image))
            if isinstance(each, JobExited) and each.outcome in (Outcome.COMPLETED, Outcome.PRUNED)
        }
        finished = resume(again, world.image)
        check(finished)
        assert states(finished).keys() == ends.keys()
        assert not over & {job for job, _ in again.started}, "a trial that had ended was run again"
