"""Requests of the user about single jobs, as `ecoshare explain` tells them."""

from __future__ import annotations

from functools import partial

from ecoshare.base.attempt import Outcome
from ecoshare.core.events import (
    CancelRequested,
    HoldRequested,
    JobArrived,
    PriorityChanged,
    ReleaseRequested,
    RetryRequested,
)
from ecoshare.record.run_history import RunHistory
from ecoshare.reporting.explanation import explain
from ecoshare.reporting.reason_words import reason_words
from tests.core.test_scheduler import drive, job


def test_a_held_and_a_cancelled_job_are_explained() -> None:
    jobs = [job(name, attempts=((9.0, Outcome.COMPLETED),)) for name in "abc"]
    requests = (
        (1.0, partial(HoldRequested, job="b")),
        (12.0, partial(ReleaseRequested, job="b")),
        (2.0, partial(CancelRequested, job="c", reason="cancelled by the user")),
        (2.0, partial(PriorityChanged, job="b", priority=3)),
        (3.0, partial(CancelRequested, job="never", reason="a failed, and had to complete first")),
        (4.0, partial(RetryRequested, job="c")),
        (5.0, partial(JobArrived, job=jobs[2][0])),
    )
    driver = drive("fifo", *jobs, config={"places_per_lane": 1}, requests=requests)
    entries = [each for event, commands in driver.log for each in (event, *commands)]
    stories = explain(RunHistory(entries)).stories
    words = [reason_words("b", each.reason, "fifo", ()) for each in stories["b"].intervals]
    assert "held by the user" in words and words[-1].startswith("alone")
    assert (2.0, "has priority 3 from now on") in stories["b"].remarks
    assert stories["c"].remarks[:2] == [
        (2.0, "was cancelled: cancelled by the user"),
        (4.0, "runs again, since the user asked for it"),
    ]
    assert stories["c"].remarks[-1][1] == "completed"
    assert stories["never"].remarks == [(3.0, "was cancelled: a failed, and had to complete first")]
