"""Segments of a log: files beside each other are one log, and a reader of the last one knows what goes on."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest

from ecoshare.base.attempt import Outcome
from ecoshare.base.device import Device
from ecoshare.core.events import RunOpened
from ecoshare.core.scheduler import Scheduler
from ecoshare.errors import UsageError
from ecoshare.record import event_log
from ecoshare.record.event_log import EventLog
from ecoshare.record.kept_file import KeptFile
from ecoshare.record.packing_timeline import LogReplay
from ecoshare.record.run_history import RunHistory
from ecoshare.reporting.explanation import explain
from ecoshare.testing.virtual_driver import VirtualDriver
from tests.core.test_scheduler import GIB, drive, job

DEVICES = (Device("cuda:0", "here", 8 * GIB),)
ALONE = {"lanes_per_device": 2, "places_per_lane": 1}
JOBS = [
    job("short", attempts=((5.0, Outcome.COMPLETED),)),
    job("long", attempts=((3.0, Outcome.FAILED), (40.0, Outcome.COMPLETED)), retries=2),
    job("waits", arrival_s=1.0, attempts=((4.0, Outcome.COMPLETED),)),
    job("late", arrival_s=25.0, attempts=((4.0, Outcome.COMPLETED),)),
]


@pytest.fixture(params=["fair", "energy"])
def driver(request: pytest.FixtureRequest) -> VirtualDriver:
    return drive(request.param, *JOBS, devices=DEVICES, config=ALONE, segments_s=(4.0, 20.0, 26.0))


def written(path: Path, driver: VirtualDriver) -> Path:
    """Write the log of a driver, as a run does."""
    log, core = EventLog(path / "events.jsonl"), Scheduler()
    for event, commands in driver.log:
        core.handle(event)
        log.write(event, list(commands), core)
    log.close()
    return path / "events.jsonl"


def test_segments_are_one_log(tmp_path: Path, driver: VirtualDriver) -> None:
    path = written(tmp_path, driver)
    assert [each.name for each in event_log.segments(path)] == [f"events-{number}.jsonl" for number in (1, 2, 3)]
    entries = list(event_log.read(path))
    assert [each for each in entries if isinstance(each, RunOpened)] == [
        event for event, _ in driver.log if isinstance(event, RunOpened)
    ]
    assert all(logged == now for _, logged, now in event_log.replay(entries))
    replay = LogReplay(entries)
    assert len(list(replay)) == len(driver.log) and replay.differs_s is None


def test_no_report_takes_a_segment_for_an_interruption(tmp_path: Path, driver: VirtualDriver) -> None:
    """The same jobs without segments have the same attempts, packings and reasons."""
    whole = drive(driver.config.policy, *JOBS, devices=DEVICES, config=ALONE)
    (tmp_path / "one").mkdir()
    plain = RunHistory(event_log.read(written(tmp_path / "one", whole)))
    told = RunHistory(event_log.read(written(tmp_path, driver)))
    assert [(each.job, each.number, each.outcome) for each in told.attempts] == [
        (each.job, each.number, each.outcome) for each in plain.attempts
    ]
    assert [(each.jobs, each.ending) for each in told.packings().stretches] == [
        (each.jobs, each.ending) for each in plain.packings().stretches
    ]
    for name, story in explain(told).stories.items():
        assert [words for _, words in story.remarks] == [words for _, words in explain(plain).stories[name].remarks]
        assert all(each.to_s is not None for each in story.intervals), f"{name} has ended"


@pytest.mark.parametrize("driver", ["fair"], indirect=True)
def test_the_last_segment_tells_what_goes_on(tmp_path: Path, driver: VirtualDriver) -> None:
    path = written(tmp_path, driver)
    for each in event_log.segments(path):
        each.unlink()
    history = RunHistory(event_log.read(path))
    assert "short" not in history.jobs, "it ended in an earlier segment"
    long = history.jobs["long"]
    assert long.carried is not None and (long.carried.failures, long.unknown_attempts) == (1, 1)
    (attempt,) = [each for each in history.attempts if each.job == "long"]
    assert (attempt.number, attempt.outcome) == (2, Outcome.COMPLETED)
    assert explain(history).stories["long"].remarks[-1][1] == "completed"
    assert history.packings().stretches[0].jobs == ("long",)


def test_a_reader_finds_the_whole_log_while_it_begins_anew(tmp_path: Path, driver: VirtualDriver) -> None:
    """A reader that has opened the last file reads that file, and no other one twice."""
    path = written(tmp_path, driver)
    expected = list(event_log.read(path))
    os.link(path, tmp_path / "events-4.jsonl")  # the earlier name is there, and the new file is not
    assert list(event_log.read(path)) == expected
    log = EventLog(path)
    assert not (tmp_path / "events-4.jsonl").exists() and list(event_log.read(path)) == expected
    log.close()


def test_a_log_that_cannot_have_another_file_goes_on(
    tmp_path: Path, driver: VirtualDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(source: Path, target: Path) -> None:
        raise PermissionError("no hard links here")

    monkeypatch.setattr(os, "link", fails)
    path = written(tmp_path, driver)
    assert event_log.segments(path) == [] and not list(tmp_path.glob("*.next"))
    assert sum(isinstance(each, RunOpened) for each in event_log.read(path)) == 4


def test_the_new_file_is_locked_before_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events.jsonl"
    file = KeptFile(path, lambda each: fcntl.flock(each, fcntl.LOCK_EX | fcntl.LOCK_NB))
    file.append(b"one\n")
    file.begin_anew(b"two\n", tmp_path / "events-1.jsonl")
    file.append(b"three\n")
    with path.open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    file.close()
    assert path.read_text() == "two\nthree\n" and (tmp_path / "events-1.jsonl").read_text() == "one\n"


def test_a_segment_with_lanes_that_do_not_exist_is_refused(tmp_path: Path, driver: VirtualDriver) -> None:
    path = written(tmp_path, driver)
    damaged = path.read_text().replace('"lanes": [1]', '"lanes": [7]', 1).replace('"lanes": [0]', '"lanes": [7]', 1)
    path.write_text(damaged)
    with pytest.raises(UsageError, match=r"events.jsonl:1: .*are not open"):
        list(event_log.read(path))


def test_a_segment_with_a_lane_of_a_device_that_does_not_exist_is_refused(
    tmp_path: Path, driver: VirtualDriver
) -> None:
    path = written(tmp_path, driver)
    first, *rest = path.read_text().splitlines()
    opened = json.loads(first)
    opened["segment"]["lanes"][0][1] = "nowhere"
    path.write_text("\n".join([json.dumps(opened), *rest]) + "\n")
    with pytest.raises(UsageError, match=r"events.jsonl:1: .*there is no device 'nowhere'"):
        list(event_log.read(path))
