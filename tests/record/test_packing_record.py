"""The log of a run tells its packings, so that no later scheduler has to be asked for them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.base.measurement import JobPhase, KnownSetting, class_in
from ecoshare.core.commands import Command, WakeAt
from ecoshare.core.events import Config, Event, RunOpened
from ecoshare.core.policies.orders import Fifo
from ecoshare.core.scheduler import Scheduler
from ecoshare.errors import UsageError
from ecoshare.record import event_log
from ecoshare.record.event_log import EventLog
from ecoshare.record.log_fold import LogEntry
from ecoshare.record.packing_record import PackingChanged, PackingRecorder
from ecoshare.record.packing_timeline import packing_timeline
from ecoshare.record.run_data import read
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.samples import Line, Sample, Session, encode
from ecoshare.reporting.explanation import explain
from ecoshare.reporting.explanation_text import of_run
from ecoshare.simulation.costs import Costs
from ecoshare.simulation.traces.job_trace import TraceJob
from tests.core.test_setting_selection import SLOW, SLOWER, drive
from tests.core.test_setting_selection import job as device_job
from tests.record.test_packing_summary import end_of, searched
from tests.reporting.recorded import Entries, entries_of, plan, write
from tests.simulation.test_packs import JOBS, PACKS, SPEEDS, job, simulated, world

ENERGY = Config("energy", 2, 4, profile=True)
PAIR = [job("a0", "a", 200.0), job("b0", "b", 200.0), job("c0", "c", 60.0)]


def recorded(entries: Entries) -> list[LogEntry]:
    """The log as a run writes it that has these events and commands."""
    core, recorder = Scheduler(), PackingRecorder()
    found: list[LogEntry] = []
    for event, commands, _ in event_log.steps(entries):
        if isinstance(event, RunOpened):
            core = Scheduler()
        core.handle(event)
        found += [event, *commands, *recorder.changes(event, commands, core)]
    return found


def written(path: Path, entries: Entries, jobs: list[TraceJob], records: bool) -> RunFolder:
    """A run folder, with or without the packings in its log."""
    folder = write(path, plan(jobs, ENERGY), [] if records else entries)
    if records:
        log, core = EventLog(folder / "events.jsonl"), Scheduler()
        for event, commands, _ in event_log.steps(entries):
            core.handle(event)
            log.write(event, commands, core)
        log.close()
    return RunFolder(folder)


@pytest.mark.slow
@given(JOBS, SPEEDS, st.sampled_from((*PACKS, "fair")), st.integers(1, 3), st.booleans())
def test_a_log_tells_what_a_replay_of_it_finds(
    jobs: list[TraceJob], speeds: dict[str, float], policy: str, lanes: int, profile: bool
) -> None:
    _, log = simulated(jobs, world(**speeds), Config(policy, lanes, 4, profile=profile), 2, Costs())
    entries: Entries = [each for event, commands in log for each in (event, *commands)]
    assert packing_timeline(recorded(entries)) == packing_timeline(entries)


def test_a_phase_is_a_stretch_of_its_own_with_its_setting() -> None:
    known = (KnownSetting((("a", "b"),), SLOW), KnownSetting(((class_in("a", JobPhase.EVALUATES), "b"),), SLOWER))
    phases = ((3.0, "a", JobPhase.EVALUATES), (5.0, "a", JobPhase.TRAINS), (7.0, "b", JobPhase.AWAY))
    driver = drive(device_job("a", "a", 12.0), device_job("b", "b", 12.0), known_settings=known, phases=phases)
    entries: Entries = [each for event, commands in driver.log for each in (event, *commands)]
    timeline = packing_timeline(recorded(entries))
    assert timeline == packing_timeline(entries)
    shown = [(each.packing, each.settings[-1][1], each.from_s) for each in timeline.stretches if not each.is_passing()]
    both, evaluating = (("a", "b"),), (("a~evaluates", "b"),)
    assert [each[:2] for each in shown] == [(both, SLOW), (evaluating, SLOWER), (both, SLOW), ((("a",),), SLOW)]
    assert [each[2] for each in shown[1:]] == [3.0, 5.0, 7.0]
    known_as = {each.in_training for each in timeline.stretches if 1.0 < each.from_s < 8.0}
    assert known_as == {both}, "for a phase about which nothing is known"


@pytest.mark.nightly
@given(JOBS, SPEEDS, st.sampled_from((*PACKS, "fair")), st.integers(1, 3), st.booleans())
def test_progress_that_is_not_looked_at_changes_no_packing(
    jobs: list[TraceJob], speeds: dict[str, float], policy: str, lanes: int, profile: bool
) -> None:
    """If it failed, the summary of a run would miss a packing: the recorder looks only where one may have changed."""
    _, log = simulated(jobs, world(**speeds), Config(policy, lanes, 4, profile=profile), 2, Costs())
    core, recorder, eager = Scheduler(), PackingRecorder(), PackingRecorder()
    for event, _ in log:
        commands = core.handle(event)
        found = recorder.changes(event, commands, core)
        assert found == eager.changes(event, [*commands, WakeAt(0, event.at_s)], core)


@pytest.mark.slow
@pytest.mark.parametrize("search", [False, True])
def test_the_summary_of_a_run_is_the_same_by_its_records_and_by_a_replay(tmp_path: Path, search: bool) -> None:
    entries, jobs = searched() if search else (entries_of(PAIR, world(ab=0.9), ENERGY), PAIR)
    replayed = read(written(tmp_path / "old" / "run", entries, jobs, records=False)).summary.as_dict()
    told = read(written(tmp_path / "new" / "run", entries, jobs, records=True)).summary.as_dict()
    assert {**told, "run": ""} == {**replayed, "run": ""}
    assert told["packings"]


def test_what_follows_from_packings_is_unknown_where_they_were_not_asked_for(tmp_path: Path) -> None:
    """The joules at the default setting were computed from an empty timeline, as if nothing had been tuned."""
    entries, jobs = searched()
    folder = written(tmp_path / "run", entries, jobs, records=True)
    folder.samples.write_text("".join(map(encode, lines(end_of(entries)))))
    whole, part = read(folder).summary, read(folder, packings=False).summary
    assert whole.search_energy_j is not None and whole.baseline.packed_default_energy_j is not None
    assert part.search_energy_j is part.baseline.packed_default_energy_j is None
    assert (part.packings, part.jobs, part.settings) == ((), whole.jobs, whole.settings)


def lines(end_s: float) -> list[Line]:
    """Lines of a meter that counts 100 W."""
    session = Session(0.0, "n0g0", "a meter", "measured", "gpu", "about it", 0.1, 40.0)
    return [session, *(Sample(0.5 * step, 50.0 * step) for step in range(int(2 * end_s) + 2))]


def test_a_scheduler_that_decides_otherwise_does_not_change_the_summary_of_an_old_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the records, a new version of the scheduler lost the packings and the baseline of every older run."""
    jobs = [*PAIR, job("d0", "d", 60.0)]
    entries = entries_of(jobs, world(ab=0.9), Config("fifo", 2, 1))
    old = written(tmp_path / "old" / "run", entries, jobs, records=False)
    new = written(tmp_path / "new" / "run", entries, jobs, records=True)
    before = read(new)
    monkeypatch.setattr(Fifo, "order", lambda _self, waiting, _at_s: (float(-waiting.number), waiting.number))
    assert read(old).history.packings().differs_s is not None, "the last job comes first now"
    assert read(new).summary == before.summary
    explained = explain(read(new).history)
    assert explained.differs_s is not None, "reasons come from the present scheduler, which has others"
    assert explained.timeline == before.history.packings()
    assert "no reasons are given for that time" in list(of_run(explained, before.summary))[-1]
    assert "nothing is said of that time" in list(of_run(explain(read(old).history), before.summary))[-1]


def test_a_session_without_records_is_replayed_beside_one_that_has_them() -> None:
    """A run of an older version that this one resumed."""
    entries = entries_of(PAIR, world(ab=0.9), ENERGY)
    end_s = max(each.at_s for each in entries if not isinstance(each, Command))
    later = [_later(each, end_s) for each in entries]
    mixed, plain = [*entries, *recorded(later)], [*entries, *later]
    assert packing_timeline(mixed) == packing_timeline(plain)


def _later(entry: Event | Command, by_s: float) -> Event | Command:
    return entry if isinstance(entry, Command) else replace(entry, at_s=entry.at_s + by_s)


@pytest.mark.nightly
def test_records_make_a_log_hardly_longer(tmp_path: Path) -> None:
    jobs = [job(f"j{place}", "abc"[place % 3], 5.0) for place in range(60)]
    entries = entries_of(jobs, world(ab=0.9, bc=0.8, ac=0.7), ENERGY)
    short, full = (
        written(tmp_path / name / "run", entries, jobs, records).events.stat().st_size
        for name, records in (("old", False), ("new", True))
    )
    assert short < full < 1.3 * short


def test_a_record_that_cannot_be_is_named(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", entries_of(PAIR, world(), ENERGY), PAIR, records=True)
    lines = folder.events.read_text().splitlines()
    place = next(number for number, line in enumerate(lines) if '"a0": ' in line and "PackingChanged" in line)
    for faulty in ({"device": "elsewhere"}, {"jobs": {"nobody": 0}}, {"jobs": {"a0": 99}}, {"speeds": [1.0] * 9}):
        told = json.dumps({**json.loads(lines[place]), **faulty})
        folder.events.write_text("\n".join([*lines[:place], told, *lines[place + 1 :]]) + "\n")
        with pytest.raises(UsageError, match=rf"events.jsonl:{place + 1}: not an entry"):
            list(event_log.read(folder.events))


def test_the_packing_of_jobs_does_not_depend_on_their_order() -> None:
    one, other = PackingChanged("d", {"a": 0, "b": 1, "c": 0}), PackingChanged("d", {"c": 3, "a": 3, "b": 2})
    classes = {"a": "x", "b": "z", "c": "y"}
    assert one.packing(classes) == other.packing(classes) == (("x", "y"), ("z",))
