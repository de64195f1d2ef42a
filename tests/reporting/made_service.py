"""Invented requests of a service in an invented run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hdrh.histogram import HdrHistogram

from ecoshare.lane.serving.request_intervals import RequestInterval
from ecoshare.lane.serving.request_record import DIGITS, LONGEST_US
from ecoshare.record.results.service_summary import service_summary
from ecoshare.record.run_data import RunData

TARGET_S = 0.05


def interval(
    from_s: float, latencies_s: Sequence[float], failed: int = 0, refused: int = 0, cancelled: int = 0
) -> RequestInterval:
    """A second with these answers, each of them in a batch of one."""
    histogram = HdrHistogram(1, LONGEST_US, DIGITS)
    for latency_s in latencies_s:
        histogram.record_value(round(latency_s * 1e6))
    count = len(latencies_s)
    return RequestInterval(
        from_s=from_s,
        at_s=from_s + 1.0,
        arrived=count + failed + refused + cancelled,
        answered=count,
        failed=failed,
        refused=refused,
        cancelled=cancelled,
        late=sum(latency_s > TARGET_S for latency_s in latencies_s),
        batches={1: count} if count else {},
        longest_queue=3,
        latencies=histogram.encode().decode() if count else "",
    )


def with_service(data: RunData, found: list[RequestInterval], name: str = "job0") -> RunData:
    """The run, in which one of the jobs is a service with these requests."""
    jobs = [
        replace(job, service=service_summary(TARGET_S, found, job.energy_j)) if job.name == name else job
        for job in data.summary.jobs
    ]
    requests = {**data.requests, name: found}
    return replace(data, summary=replace(data.summary, jobs=tuple(jobs)), requests=requests)
