from __future__ import annotations

import pytest

from ecoshare.runtime.live_requests import RecentRequests
from tests.reporting.made_service import interval


def test_counts_are_those_of_all_requests_and_the_percentile_that_of_the_last_seconds() -> None:
    recent = RecentRequests()
    recent.add([interval(0.0, [0.3, 0.01], failed=1), interval(1.0, [0.02], refused=2)])
    first = recent.view(0.05, 2.0)
    assert (first.target_s, first.arrived, first.late, first.unanswered) == (0.05, 6, 1, 3)
    assert first.p99_s == pytest.approx(0.3, rel=1e-3)
    recent.add([interval(14.0, [0.04])])
    later = recent.view(0.05, 15.0)
    assert (later.arrived, later.late) == (7, 1)
    assert later.p99_s == pytest.approx(0.04, rel=1e-3)
    assert recent.view(0.05, 30.0).p99_s is None, "a service that is idle has no present latency"


def test_the_percentile_is_kept_for_some_seconds() -> None:
    """A display asks several times a second, and a percentile takes milliseconds."""
    recent = RecentRequests()
    recent.add([interval(0.0, [0.01])])
    before = recent.view(0.05, 1.0)
    recent.add([interval(1.0, [0.04])])
    soon, later = recent.view(0.05, 2.0), recent.view(0.05, 6.5)
    assert (soon.arrived, soon.p99_s) == (2, before.p99_s)
    assert later.p99_s == pytest.approx(0.04, rel=1e-3)
