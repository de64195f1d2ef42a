"""Exports a run in the text format of Prometheus: requests and latencies of its services, work and joules of all jobs.

Names, units and suffixes follow the conventions of Prometheus: seconds, joules, `_total` for counters, `_bucket` for
the buckets of a histogram, which are cumulative. A value that is not known has no line. The label of a job is `name`,
since Prometheus itself gives `job` to all that it scrapes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import PurePath

from ecoshare.record.job_summary import JobSummary
from ecoshare.record.run_data import RunData
from ecoshare.record.service_summary import ServiceSummary
from ecoshare.serving.request_intervals import RequestInterval, cumulative_counts, total

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, math.inf)
"""Upper bounds (s) of the buckets of latencies."""

_HELP = {
    "ecoshare_job_iterations_total": ("counter", "Iterations of the last attempt of a job."),
    "ecoshare_job_turn_seconds_total": ("counter", "Time for which the last attempt of a job held the turn."),
    "ecoshare_job_energy_joules_total": ("counter", "Energy of a job."),
    "ecoshare_service_target_seconds": ("gauge", "Target of the 99th percentile of latencies."),
    "ecoshare_service_missed_minutes_total": ("counter", "Minutes in which the target was missed."),
    "ecoshare_service_requests_total": ("counter", "Requests by what became of them."),
    "ecoshare_service_latency_seconds": ("histogram", "Time from the arrival of a request to its answer."),
    "ecoshare_service_batch_requests": ("histogram", "Requests in a call of the handler."),
    "ecoshare_service_queue_peak_requests": ("gauge", "Most requests that waited at once."),
}
"""Type and meaning of each metric, in the order of the file."""

Sample = tuple[str, str, Mapping[str, str], float]
"""Name of the metric, suffix, labels, value."""


def prometheus(data: RunData) -> str:
    """The metrics of a run, finished or not, as text."""
    lines: dict[str, list[str]] = defaultdict(list)
    run = {"run": PurePath(data.summary.run).name}
    for job in data.summary.jobs:
        for name, suffix, labels, value in _samples(job, data.requests.get(job.name, ())):
            lines[name].append(_line(name + suffix, run | dict(labels), value))
    found = []
    for name, (kind, words) in _HELP.items():
        if name in lines:
            found += [f"# HELP {name} {words}", f"# TYPE {name} {kind}", *lines[name]]
    return "".join(f"{line}\n" for line in found)


def _samples(job: JobSummary, requests: Sequence[RequestInterval]) -> Iterator[Sample]:
    own = {"name": job.name}
    for kind, count in (("train", job.iterations), ("eval", job.eval_iterations)):
        if count is not None:
            yield "ecoshare_job_iterations_total", "", own | {"kind": kind}, count
    if job.held_s is not None:
        yield "ecoshare_job_turn_seconds_total", "", own, job.held_s
    if job.energy is not None:
        yield "ecoshare_job_energy_joules_total", "", own | {"source": job.energy.source}, job.energy.value_j
    if job.service is not None:
        yield from _of_service(job.name, job.service, requests)


def _of_service(name: str, service: ServiceSummary, requests: Sequence[RequestInterval]) -> Iterator[Sample]:
    own = {"name": name}
    yield "ecoshare_service_target_seconds", "", own, service.target_s
    yield "ecoshare_service_missed_minutes_total", "", own, service.missed_minutes
    results = {
        "in_time": service.answered - service.late,
        "late": service.late,
        "failed": service.failed,
        "refused": service.refused,
        "cancelled": service.cancelled,
    }
    for result, count in results.items():
        yield "ecoshare_service_requests_total", "", own | {"result": result}, count
    sums, counts = total(requests), cumulative_counts(requests, BOUNDS_S)
    latencies_s = 0.0 if math.isnan(sums.mean_s) else sums.mean_s * counts[-1]
    yield from _histogram("ecoshare_service_latency_seconds", own, BOUNDS_S, counts, latencies_s)
    sizes, calls = [*sums.batches, math.inf], list(accumulate([*sums.batches.values(), 0]))
    together = sum(size * count for size, count in sums.batches.items())
    yield from _histogram("ecoshare_service_batch_requests", own, sizes, calls, together)
    yield "ecoshare_service_queue_peak_requests", "", own, sums.longest_queue


def _histogram(
    name: str, labels: Mapping[str, str], bounds: Sequence[float], counts: Sequence[int], total_value: float
) -> Iterator[Sample]:
    """Samples of a histogram.

    Args:
        name: Name of the metric.
        labels: Labels of the service.
        bounds: Upper bounds of the buckets, in order; the last one is infinity.
        counts: Number of values at or below each bound.
        total_value: Sum of all values.
    """
    for bound, count in zip(bounds, counts, strict=True):
        yield name, "_bucket", {**labels, "le": _number(bound)}, count
    yield name, "_sum", labels, total_value
    yield name, "_count", labels, counts[-1]


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    words = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{words}}} {_number(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return "+Inf" if value == math.inf else f"{value:.12g}"
