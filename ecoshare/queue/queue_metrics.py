"""Metrics of a queue at one moment, for Prometheus.

Only jobs that have a process get labels. Jobs that wait are counted by state, so that a scrape costs the same for ten
and for ten thousand of them. Jobs that have ended are in the sums.
"""

from __future__ import annotations

import asyncio
from operator import add

from prometheus_client.exposition import choose_encoder

import ecoshare
from ecoshare.base.attempt import Usage
from ecoshare.base.measurement import BATCH
from ecoshare.core.records import JobState
from ecoshare.lane.tables.table_layout import WAIT_BOUNDS_S
from ecoshare.metrics import families
from ecoshare.metrics.families import MetricFamily
from ecoshare.metrics.metric_set import MetricSet, ServiceSamples
from ecoshare.queue.live_queue import LiveQueue
from ecoshare.queue.queue_totals import WorkDone
from ecoshare.record.run_view import DeviceStatus, ServiceStatus
from ecoshare.runtime.nodes.run_node import AttemptReading

_HERTZ = 1e6

_KIND = {"W": families.SETTING_POWER, "MHz": families.SETTING_CLOCK}
"""Metric of the values of a knob, by the unit of the knob."""

_Key = tuple[MetricFamily, tuple[str, ...]]


class QueueMetrics:
    """Metrics of a queue. All calls are made in the loop of the run."""

    def __init__(self, queue: LiveQueue) -> None:
        """Metrics of a queue in progress."""
        self._queue = queue
        self._highest: dict[_Key, float] = {}

    async def text(self, accept: str) -> tuple[bytes, str]:
        """Metrics as text, and the media type of the text.

        Args:
            accept: Media types that the client accepts, as in its header `Accept`.
        """
        encode, media_type = choose_encoder(accept)
        views = self._queue.driver.views
        for name in [name for name, job in self._queue.totals.live.items() if job.spec.service is not None]:
            views.job(name)  # takes a percentile, which takes milliseconds and is kept for some seconds
            await asyncio.sleep(0)
        # The metrics are of one moment of the run. Text is made of them in a thread, so that the run goes on.
        return await asyncio.to_thread(encode, self.present()), media_type

    def present(self) -> MetricSet:
        """Metrics of now."""
        queue, run = self._queue, self._queue.run
        for name in run.node.knobs:  # each time: machines may have come
            queue.totals.expect_settings(name)
        found = MetricSet({"queue": queue.name})
        found.add_info(families.QUEUE_INFO, run.plan.policy, run.plan.objective, ecoshare.__version__)
        found.add(families.QUEUE_OPENED, queue.opened_unix_s)
        self._add_states(found)
        for (family, labels), count in queue.totals.counts.items():
            found.add(family, count, *labels)
        node = run.node
        attempts = {name: node.attempt(name) for name in node.in_progress if name in queue.totals.live}
        for view in self._queue.driver.views.devices():
            self._add_device(found, view)
            self._add_work(found, view.name, {name: each.usage for name, each in attempts.items()})
        for name, each in attempts.items():
            self._add_job(found, name, each)
        live = queue.totals.live
        self._highest = {key: value for key, value in self._highest.items() if _job_of(key) in live or not _job_of(key)}
        return found

    def _add_states(self, found: MetricSet) -> None:
        queue, run = self._queue, self._queue.run
        states = {state.value: 0 for state in JobState if not state.ended}
        for job in queue.totals.live.values():
            states[job.state.value] += 1
        held = run.arrivals.gate.held
        states[JobState.HELD.value] += held
        for state, count in {"arriving": len(run.arrivals.names_to_come) - held, **states}.items():
            found.add(families.JOBS, count, state)
        found.add(families.OPEN_SWEEPS, queue.open_sweeps)

    # Devices

    def _add_device(self, found: MetricSet, view: DeviceStatus) -> None:
        name = view.name
        found.add_info(families.DEVICE_INFO, name, view.described)
        found.add(families.DEVICE_FAILED, bool(view.failed), name)
        found.add(families.DEVICE_POWER, view.power_w, name)
        for domain, clock_mhz in (("gpu", view.gpu_clock_mhz), ("memory", view.memory_clock_mhz)):
            found.add(families.DEVICE_CLOCK, None if clock_mhz is None else clock_mhz * _HERTZ, name, domain)
        found.add(families.DEVICE_TEMPERATURE, view.temperature_c, name)
        found.add(families.DEVICE_MEMORY, view.memory_bytes, name)
        found.add(families.DEVICE_MEMORY_LIMIT, view.memory_total_bytes, name)
        found.add(families.DEVICE_BUSY, view.busy, name)
        reading = self._queue.run.energy.device(name)
        if reading is not None and reading.energy_j is not None:
            self._rise(found, families.DEVICE_ENERGY, reading.energy_j, name, reading.source)
            self._rise(found, families.DEVICE_JOBS_ENERGY, reading.jobs_j, name, reading.source)
        for lane in view.lanes:
            found.add(families.LANE_JOBS, len(lane.jobs), name, str(lane.number))
        self._add_setting(found, view)
        self._add_waits(found, name)

    def _add_setting(self, found: MetricSet, view: DeviceStatus) -> None:
        """Add the value of each knob, set or as it was found."""
        for spec in self._queue.run.node.knobs.get(view.name, ()):
            value = view.setting.get(spec.name, spec.default)
            family = _KIND.get(spec.unit)
            if family is None or isinstance(value, str):
                text = value if isinstance(value, str) else f"{value:g}"
                found.add_info(families.SETTING_NAMED, view.name, spec.name, text)
            else:
                found.add(family, value * (_HERTZ if spec.unit == "MHz" else 1.0), view.name, spec.name)
        if isinstance(batch := view.setting.get(BATCH), int | float):
            found.add(families.SETTING_BATCH, batch, view.name)

    def _add_waits(self, found: MetricSet, device: str) -> None:
        counts, waited_s = [0] * (len(WAIT_BOUNDS_S) + 1), 0.0
        for lane in self._queue.run.node.device(device).lanes.values():
            counts = list(map(add, counts, lane.waits))
            waited_s += lane.waited_s
        found.add_histogram(families.TURN_WAIT, WAIT_BOUNDS_S, counts, waited_s, device)

    def _add_work(self, found: MetricSet, device: str, usages: dict[str, Usage]) -> None:
        """Add the iterations of all attempts of a device."""
        totals = self._queue.totals
        ended = totals.ended_work.get(device, WorkDone())
        now = [usage for job, usage in usages.items() if device in totals.devices_of.get(job, ())]
        train = ended.iterations + sum(usage.iterations for usage in now)
        evaluated = ended.eval_iterations + sum(usage.eval_iterations for usage in now)
        self._rise(found, families.DEVICE_ITERATIONS, train, device, "train")
        self._rise(found, families.DEVICE_ITERATIONS, evaluated, device, "eval")

    # Jobs

    def _add_job(self, found: MetricSet, name: str, attempt: AttemptReading) -> None:
        queue, run, usage = self._queue, self._queue.run, attempt.usage
        view = self._queue.driver.views.job(name)
        assert view is not None, "it has a process"
        before = queue.totals.earlier.get(name, WorkDone())
        self._rise(found, families.JOB_ITERATIONS, before.iterations + usage.iterations, name, "train")
        self._rise(found, families.JOB_ITERATIONS, before.eval_iterations + usage.eval_iterations, name, "eval")
        self._rise(found, families.JOB_TURN, before.held_s + usage.held_s, name)
        self._rise(found, families.JOB_WAIT, before.waited_s + usage.waited_s, name)
        if (joules := run.energy.job(name)) is not None:
            self._rise(found, families.JOB_ENERGY, joules[0], name, joules[1])
        found.add(families.JOB_SLOWDOWN, view.slowdown, name)
        found.add(families.JOB_ATTEMPT, queue.totals.live[name].attempt, name)
        for lane in attempt.lanes:
            found.add(families.JOB_HAS_TURN, lane in attempt.turns, name, run.core.lanes[lane].device.name, str(lane))
        if view.service is not None:
            self._add_service(found, name, view.service)

    def _add_service(self, found: MetricSet, name: str, service: ServiceStatus) -> None:
        counts = self._queue.run.requests.counts(name)
        found.add(families.SERVICE_P99, service.p99_s, name)
        ServiceSamples(
            target_s=service.target_s,
            missed_minutes=self._queue.totals.missed_minutes[name],
            results=counts.results,
            latencies=counts.latencies,
            latency_s=counts.latency_s,
            batches=counts.batches,
            longest_queue=counts.longest_queue,
        ).add_to(found, name)

    def _rise(self, found: MetricSet, family: MetricFamily, value: float, *labels: str) -> None:
        """Add a counter that is the sum of readings. Such a sum may fall for a moment, and a counter must not.

        The last interval of a meter may change until it is over, and an attempt is neither live nor ended until its end
        is told.
        """
        highest = max(value, self._highest.get((family, labels), 0.0))
        self._highest[family, labels] = highest
        found.add(family, highest, *labels)


def _job_of(key: _Key) -> str:
    """Job of a sample; empty for one of a device."""
    family, labels = key
    return labels[0] if family.labels[0] == "name" else ""
