"""A recorded run at any moment agrees with its summary, its traces and with the core that decided."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from ecoshare.core.commands import KillJob
from ecoshare.core.events import Config
from ecoshare.core.records import JobState
from ecoshare.record import event_log
from ecoshare.record.log_fold import LogEntry
from ecoshare.record.packing_timeline import LogReplay
from ecoshare.record.run_data import read, with_traces
from ecoshare.record.run_folder import RunFolder
from ecoshare.top.recorded_run import RecordedJobs, RecordedRun, RisingSum, changes
from tests.golden.archive import run_folder
from tests.record.test_old_runs import OLD
from tests.reporting.recorded import entries_of
from tests.runtime.running import SLEEPS, run
from tests.simulation import test_packs

_PLACES = {"starting", "running", "stopping", "parking", "resuming"}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Real run of two jobs that take turns, and of one that fails."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "sleeps.py").write_text(SLEEPS)
    (folder / "fails.py").write_text("raise SystemExit(3)")
    jobs = [{"name": name, "script": "sleeps.py", "args": [60], "iterations": 60} for name in ("a", "b")]
    done = run(folder, *jobs, {"name": "fails", "script": "fails.py", "retries": 0})
    return RunFolder.open(done.folder)


@pytest.mark.slow
def test_the_end_is_that_of_the_summary(recorded: RunFolder) -> None:
    data, played = read(recorded), RecordedRun(recorded)
    view = played.at(played.end_s)
    assert not played.goes_on and {job.name: job.state for job in view.jobs} == {
        job.name: job.state for job in data.summary.jobs
    }
    for job in data.summary.jobs:
        shown = view.job(job.name)
        assert shown is not None and shown.iterations == job.iterations and shown.exit_code == job.exit_code
        assert shown.energy_j == (None if job.energy_j is None else pytest.approx(job.energy_j))
        assert shown.started_unix_s == job.start_s and shown.ended_unix_s == job.finish_s
    (device,) = view.devices
    assert device.energy_j == pytest.approx(data.energy.value_j) and device.described == "".join(
        f"{each.model}, {each.cores} cores" for each in data.summary.devices
    )
    assert all(not lane.jobs and not lane.holder for lane in device.lanes)


@pytest.mark.slow
def test_turns_and_iterations_are_those_of_the_traces(recorded: RunFolder) -> None:
    data, played = with_traces(read(recorded), recorded), RecordedRun(recorded)
    checked = 0
    for attempt in data.history.attempts:
        for turn in data.turns(attempt):
            middle_s = (turn.from_s + turn.to_s) / 2
            view = played.at(middle_s)
            if (job := view.job(attempt.job)) is None or job.state != "running" or turn.to_s - turn.from_s < 1e-3:
                continue
            assert [lane.holder for lane in view.devices[0].lanes if lane.holder] == [attempt.job]
            marks = data.traces[attempt.job, attempt.number]
            assert job.iterations >= sum(mark.kind.name == "TRAIN" and mark.at_s <= middle_s for mark in marks)
            checked += 1
    assert checked > 3


@pytest.mark.slow
def test_time_only_adds_and_a_jump_shows_what_playing_shows(recorded: RunFolder) -> None:
    played, jumping = RecordedRun(recorded), RecordedRun(recorded)
    times_s = [played.end_s * part / 50 for part in range(51)]
    views = [played.at(at_s) for at_s in times_s]
    for before, after in itertools.pairwise(views):
        for job in before.jobs:
            later = after.job(job.name)
            assert later is not None and later.iterations >= job.iterations
            assert (later.energy_j or 0.0) >= (job.energy_j or 0.0) - 1e-9
        assert (after.devices[0].energy_j or 0.0) >= (before.devices[0].energy_j or 0.0)
    order = list(range(51))
    random.Random(0).shuffle(order)
    for place in order:
        assert jumping.at(times_s[place]) == views[place]
    assert any(job.expected_end_unix_s for view in views for job in view.jobs)
    assert all(lane.jobs or not lane.holder for view in views for lane in view.devices[0].lanes)


@pytest.mark.parametrize("name", OLD)
def test_runs_of_earlier_versions_are_played(name: str, tmp_path: Path) -> None:
    played = RecordedRun(RunFolder(run_folder(name, tmp_path)))
    views = [played.at(played.end_s * part / 20) for part in range(21)]
    assert views[0].devices and views[-1].jobs and all(job.ended_unix_s is not None for job in views[-1].jobs)
    if name == "old-sweep":
        sweeps = {each.name for each in read(played.folder).summary.sweeps}
        assert {job.name for job in views[-1].jobs if job.trials} == sweeps
    else:
        assert any(view.devices[0].setting for view in views), "the search has set something"


def agrees_with_the_core(entries: list[LogEntry]) -> int:
    """Check the states after each event against a core that replays the log; returns the number of those checked."""
    replay = list(LogReplay(iter(entries)))
    core = replay[-1].core
    ends = {name: each.state.value for name, each in core.jobs.items()}
    jobs = RecordedJobs(changes(entries, ends))
    checked = 0
    for moment in LogReplay(iter(entries)):
        if moment.next_s is not None and moment.next_s <= moment.event.at_s:
            continue  # the record knows the state after all events of one time
        found = jobs.at(moment.event.at_s)
        for name, each in moment.core.jobs.items():
            state = JobState.QUEUED.value if each.state is JobState.PAUSED else each.state.value
            assert found[name].state == state, (moment.event, name)
            assert (found[name].state in _PLACES) == bool(found[name].lanes), (moment.event, name)
            checked += 1
    return checked


@pytest.mark.slow
@pytest.mark.parametrize("config", [Config("fair", 1, 2), Config("srtf", 1, 1, preempt=True)])
def test_the_states_are_those_of_the_core(config: Config) -> None:
    jobs = [test_packs.job(f"job{n}", "class", 400.0 - 60.0 * n, arrival_s=20.0 * n) for n in range(6)]
    entries = entries_of(jobs, test_packs.world(), config)
    assert config.preempt == any(isinstance(each, KillJob) for each in entries)
    assert agrees_with_the_core(list(entries)) > 50


@pytest.mark.slow
def test_the_states_of_a_real_run_are_those_of_the_core(recorded: RunFolder) -> None:
    assert agrees_with_the_core(list(event_log.read(recorded.events))) > 20


def test_joules_rise_evenly_within_an_interval() -> None:
    joules = RisingSum()
    assert joules.at(1.0) is None
    joules.add(1.0, 3.0, 10.0)
    joules.add(4.0, 5.0, 6.0)
    assert [joules.at(at_s) for at_s in (0.5, 1.0, 2.0, 3.0, 3.5, 4.5, 9.0)] == [None, 0.0, 5.0, 10.0, 10.0, 13.0, 16.0]
    assert [joules.rate_w(at_s) for at_s in (0.5, 2.0, 3.5, 4.5, 6.0)] == [None, 5.0, None, 6.0, None]
