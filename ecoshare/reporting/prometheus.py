"""Exports a run in the text format of Prometheus: requests and latencies of its services, work and joules of all jobs.

`metrics/families.py` has the names and their meanings. A queue tells the same metrics of its jobs while it is up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePath

from prometheus_client.exposition import generate_latest

from ecoshare.metrics.families import JOB_ENERGY, JOB_ITERATIONS, JOB_SLOWDOWN, JOB_TURN
from ecoshare.metrics.metric_set import MetricSet
from ecoshare.metrics.service_metrics import ServiceSamples
from ecoshare.record.results.service_summary import ServiceSummary
from ecoshare.record.run_data import RunData
from ecoshare.serving.request_intervals import RequestInterval, cumulative_counts, total
from ecoshare.serving.request_record import LATENCY_BOUNDS_S


def prometheus(data: RunData) -> bytes:
    """The metrics of a run, finished or not, as text (UTF-8)."""
    metrics = MetricSet({"run": PurePath(data.summary.run).name})
    for job in data.summary.jobs:
        metrics.add(JOB_ITERATIONS, job.iterations, job.name, "train")
        metrics.add(JOB_ITERATIONS, job.eval_iterations, job.name, "eval")
        metrics.add(JOB_TURN, job.held_s, job.name)
        metrics.add(JOB_SLOWDOWN, job.slowdown, job.name)
        if job.energy is not None:
            metrics.add(JOB_ENERGY, job.energy.value_j, job.name, job.energy.source)
        if job.service is not None:
            _samples(job.service, data.requests.get(job.name, ())).add_to(metrics, job.name)
    return generate_latest(metrics)


def _samples(service: ServiceSummary, requests: Sequence[RequestInterval]) -> ServiceSamples:
    sums = total(requests)
    up_to = cumulative_counts(requests, (*LATENCY_BOUNDS_S, math.inf))
    return ServiceSamples(
        target_s=service.target_s,
        missed_minutes=service.missed_minutes,
        results={
            "in_time": service.answered - service.late,
            "late": service.late,
            "failed": service.failed,
            "refused": service.refused,
            "cancelled": service.cancelled,
        },
        latencies=[later - earlier for earlier, later in pairwise([0, *up_to])],
        latency_s=0.0 if math.isnan(sums.mean_s) else sums.mean_s * up_to[-1],
        batches=sums.batches,
        longest_queue=sums.longest_queue,
    )
