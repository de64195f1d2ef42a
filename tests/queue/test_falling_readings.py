"""Readings that fall for a moment, as the last interval of a meter may, make no counter fall."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from ecoshare.base.attempt import Usage
from ecoshare.base.job_spec import JobSpec
from ecoshare.core.arrival_gate import ArrivalGate
from ecoshare.core.records import Job
from ecoshare.lane.tables.table_layout import WAIT_BOUNDS_S
from ecoshare.metrics.metric_set import MetricSet
from ecoshare.queue.live_queue import LiveQueue
from ecoshare.queue.queue_metrics import QueueMetrics
from ecoshare.queue.queue_totals import QueueTotals
from ecoshare.record.accounts.run_energy import LiveReading
from ecoshare.record.run_view import DeviceStatus, JobView, LaneStatus
from ecoshare.record.samples import Sample
from ecoshare.runtime.nodes.run_node import AttemptReading, DeviceReading, LaneReading


class Device:
    """A queue with a device and a job, and readings that a test may change."""

    def __init__(self) -> None:
        self.energy_j, self.job_j, self.usage = 100.0, 40.0, Usage(iterations=7, held_s=2.0)
        self.view = DeviceStatus(
            name="cuda:0",
            described="NVIDIA H200",
            lanes=[LaneStatus(number=0, jobs=["a"])],
            memory_total_bytes=1 << 30,
        )
        waits = tuple(2 if bucket == 3 else 0 for bucket in range(len(WAIT_BOUNDS_S) + 1))
        reading = DeviceReading((), "", {0: LaneReading("a", waits, 0.015)})
        self.in_progress = {"a"}
        node = SimpleNamespace(
            knobs={},
            in_progress=self.in_progress,
            attempt=lambda _name: AttemptReading(self.usage, (0,), (0,)),
            device=lambda _name: reading,
        )
        views = SimpleNamespace(
            job=lambda name: JobView(name, "running", (0,), True, 7, 0, None, None, 1.5),
            devices=lambda: (self.view,),
        )
        energy = SimpleNamespace(
            device=lambda _name: LiveReading(Sample(1.0, 1.0), 50.0, self.energy_j, self.job_j, "measured"),
            job=lambda _name: (self.job_j, "attributed"),
        )
        lane = SimpleNamespace(device=SimpleNamespace(name="cuda:0"))
        run = SimpleNamespace(
            plan=SimpleNamespace(policy="fair", objective="energy"),
            arrivals=SimpleNamespace(gate=ArrivalGate(), names_to_come=()),
            node=node,
            energy=energy,
            core=SimpleNamespace(lanes={0: lane}),
        )
        self.totals = QueueTotals()
        self.totals.live["a"] = Job(JobSpec("a", "c"), 0.0)
        self.totals.devices_of["a"] = ("cuda:0",)
        driver = SimpleNamespace(run=run, views=views)
        queue = SimpleNamespace(name="q", driver=driver, run=run, totals=self.totals, opened_unix_s=1.0, open_sweeps=0)
        self.metrics = QueueMetrics(cast(LiveQueue, queue))

    def values(self, *names: str) -> list[float]:
        """Value of the first sample of each name now."""
        found: MetricSet = self.metrics.present()
        samples = [each for family in found.collect() for each in family.samples]
        return [next(each.value for each in samples if each.name == name) for name in names]


NAMES = (
    "ecoshare_device_energy_joules_total",
    "ecoshare_device_jobs_energy_joules_total",
    "ecoshare_job_energy_joules_total",
    "ecoshare_job_iterations_total",
    "ecoshare_job_turn_seconds_total",
    "ecoshare_device_iterations_total",
)


def test_a_sum_of_readings_stays_until_it_is_exceeded() -> None:
    device = Device()
    before = device.values(*NAMES)
    assert before == [100.0, 40.0, 40.0, 7.0, 2.0, 7.0]
    device.energy_j, device.job_j, device.usage = 99.0, 39.0, Usage(iterations=6, held_s=1.9)
    assert device.values(*NAMES) == before
    device.energy_j, device.job_j, device.usage = 101.0, 41.0, Usage(iterations=8, held_s=2.1)
    assert device.values(*NAMES) == [101.0, 41.0, 41.0, 8.0, 2.1, 8.0]


def test_an_attempt_that_is_over_but_not_told_yet_keeps_its_iterations_on_the_device() -> None:
    device = Device()
    assert device.values("ecoshare_device_iterations_total") == [7.0]
    device.in_progress.clear()
    assert device.values("ecoshare_device_iterations_total") == [7.0]


def test_another_job_of_a_name_does_not_begin_where_the_first_one_ended() -> None:
    device = Device()
    device.values(*NAMES)
    ended = device.totals.live.pop("a")
    device.values("ecoshare_device_energy_joules_total")
    device.totals.live["a"], device.usage = ended, Usage(iterations=1)
    assert device.values("ecoshare_job_iterations_total") == [1.0]


def test_waits_are_those_of_the_lanes_of_the_device() -> None:
    count, total = Device().values("ecoshare_turn_wait_seconds_count", "ecoshare_turn_wait_seconds_sum")
    assert (count, total) == (2.0, 0.015)
