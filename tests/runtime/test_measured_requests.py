"""Figures of a service during a measurement, from the record that the service writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoshare.lane.serving.request_record import RequestRecorder
from ecoshare.runtime.measuring.setting_measurement import FEWEST, MeasuredRequests


class Service:
    """A service that answers a batch of two every 10 ms, on a clock of its own."""

    def __init__(self, path: Path) -> None:
        self.now_s = 0.0
        self._recorder = RequestRecorder(path, clock=lambda: self.now_s)

    def serve(self, seconds: float, latency_s: float = 0.02) -> None:
        for _ in range(round(seconds * 100)):
            self._recorder.arrived(1)
            self._recorder.arrived(2)
            self._recorder.called(2)
            self._recorder.took(2, 0.004)
            self.now_s += 0.01
            for _ in range(2):
                self._recorder.answered(self.now_s - latency_s, self.now_s - latency_s + 0.05, self.now_s)
            if self._recorder.left_s() <= 0.0:
                self._recorder.write()


def test_only_what_came_since_it_began_counts(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    service, watched = Service(path), MeasuredRequests(path)
    service.serve(3.5, latency_s=0.9)
    watched.applied(service.now_s)
    service.serve(4.0)
    watched.look()
    found = watched.figures()
    assert found is not None and not watched.surely_misses
    assert (found.missed, found.batch) == (0, 2.0), "the second in which it began is left out"
    assert found.p99_s == pytest.approx(0.02, rel=0.01)
    assert found.rate_per_s == pytest.approx(200.0, rel=0.02)
    assert found.rates_per_s == pytest.approx([200.0] * len(found.rates_per_s), rel=0.02) and found.rates_per_s
    assert found.batch_s == pytest.approx(0.004) and dict(found.full_s) == {2: pytest.approx(0.004)}
    assert watched.answered == found.arrived


def test_requests_that_wait_since_the_setting_before_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    service, watched = Service(path), MeasuredRequests(path)
    service.serve(1.5)
    applied_s = service.now_s
    watched.applied(applied_s)
    watched.begin(applied_s + 0.5)
    service.serve(2.5, latency_s=2.0)  # the queue that the setting before has left
    watched.look()
    assert watched.answered == 0 and not watched.surely_misses, "the backlog is no fault of this setting"
    service.serve(3.0)
    watched.look()
    found = watched.figures()
    assert found is not None and found.missed == 0 and found.p99_s == pytest.approx(0.02, rel=0.01)


def test_few_requests_have_no_percentile(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    service, watched = Service(path), MeasuredRequests(path)
    watched.applied(0.0)
    assert watched.figures() is None
    service.serve(FEWEST / 2 / 200)
    watched.look()
    assert watched.figures() is None


def test_many_late_requests_are_enough_to_say_so(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    service, watched = Service(path), MeasuredRequests(path)
    watched.applied(0.0)
    service.serve(2.2, latency_s=0.2)
    watched.look()
    assert watched.surely_misses
    found = watched.figures()
    assert found is not None and found.p99_s > 0.1 and found.missed == found.arrived
