"""Services that miss their targets for a minute are reported from what they record about their requests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ecoshare.base.job_spec import JobSpec
from ecoshare.base.service import REQUESTS, ServiceSpec
from ecoshare.core.events import Event, TargetMissed
from ecoshare.lane.files import of_attempt
from ecoshare.lane.serving.request_record import LATENCY_BOUNDS_S, RequestRecorder
from ecoshare.runtime.live_requests import ServiceViews
from ecoshare.runtime.nodes.attempts import Attempts
from ecoshare.runtime.nodes.job_looks import TargetReports


class Watched:
    """Reports of a run with a service and another job; a second passes with each look."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now_s, self.told = folder, 0.0, list[Event]()
        jobs = {"s": JobSpec("s", "c", service=ServiceSpec(0.05)), "a": JobSpec("a", "c")}
        self.live = {name: SimpleNamespace(job=SimpleNamespace(spec=spec), attempt=1) for name, spec in jobs.items()}
        self.views = ServiceViews(lambda: self.now_s)
        attempts = cast(Attempts, SimpleNamespace(live=self.live))
        self.reports = TargetReports(
            attempts, lambda name: folder / name, lambda: self.now_s, self._tell, self.views.hear
        )
        (folder / "s").mkdir()

    def _tell(self, make: Callable[..., Event]) -> None:
        self.told.append(make(at_s=self.now_s))

    def second(self, answered: int, late: int = 0, refused: int = 0, failed: int = 0) -> None:
        """A second in which the present attempt of the service records so many requests."""
        self.now_s += 1.0
        record = RequestRecorder(of_attempt(self.folder / "s", REQUESTS, self.live["s"].attempt))
        for place in range(answered):
            record.arrived(1)
            record.answered(0.0, due_s=0.05, at_s=0.1 if place < late else 0.01)
        for _ in range(refused):
            record.arrived(1)
            record.refused(1)
        for _ in range(failed):
            record.arrived(1)
        record.failed(failed)
        record.write()
        self.reports.look()


@pytest.mark.parametrize(("late", "refused", "failed"), [(2, 0, 0), (0, 2, 0), (0, 0, 2), (1, 1, 1)])
def test_late_refused_and_failed_requests_count(late: int, refused: int, failed: int, tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    for _ in range(130):
        watched.second(20, late, refused, failed)
    seconds = 61.0, 121.0  # the first look is made at 1 s
    requests, missed = 60 * (20 + refused + failed), 60 * (late + refused + failed)
    found = [(each.at_s, each.job) for each in cast(list[Any], watched.told)]
    assert found == [(at_s, "s") for at_s in seconds]
    assert cast(TargetMissed, watched.told[1]) == TargetMissed(121.0, "s", requests, missed)


def test_counts_are_those_of_all_attempts_with_their_last_lines(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.second(20, late=2, refused=1)
    record = RequestRecorder(of_attempt(tmp_path / "s", REQUESTS, 1))
    record.arrived(3)
    record.failed(1)
    record.called(4)
    record.write()  # after the last look at this attempt
    watched.live["s"].attempt = 2
    watched.second(5)
    counts = watched.views.counts("s")
    assert counts.results == {"in_time": 23, "late": 2, "failed": 1, "refused": 1, "cancelled": 0}
    assert counts.latency_s == pytest.approx(23 * 0.01 + 2 * 0.1)
    place = LATENCY_BOUNDS_S.index(0.01), LATENCY_BOUNDS_S.index(0.1)
    assert [counts.latencies[each] for each in place] == [23, 2] and sum(counts.latencies) == 25
    assert counts.batches == {4: 1} and counts.longest_queue == 3


def test_another_attempt_begins_anew(tmp_path: Path) -> None:
    """If it failed, the requests of a service before its death would part the jobs after it."""
    watched = Watched(tmp_path)
    for attempt in (1, 2, 3):
        watched.live["s"].attempt = attempt
        for _ in range(50):
            watched.second(1, late=1)
    assert not watched.told
