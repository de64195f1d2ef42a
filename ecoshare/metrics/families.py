"""All metrics that ecoshare gives to Prometheus: names, types, labels and meanings.

Names follow the conventions of Prometheus: base units, `_total` for counters, `_info` for samples that are always 1.
The label of a job is `name`, since Prometheus itself gives `job` and `instance` to all that it scrapes. Each sample of
a queue has the label `queue` besides, and each sample of an exported run the label `run`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

UNITS = ("seconds", "joules", "watts", "hertz", "bytes", "celsius", "ratio")
"""Base units that a name may end with."""

BATCH_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Upper bounds of the buckets of batch sizes (requests), without infinity."""


class MetricType(Enum):
    """Type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


@dataclass(frozen=True, slots=True, eq=False)  # each is one of a kind, and a key of each sample
class MetricFamily:
    """Metric with all its series.

    Attributes:
        name: Name, with the suffix of its type.
        help: Meaning in one line.
        labels: Names of the labels, without `queue` and `run`.
        is_live: Whether the queue has it.
        is_exported: Whether `ecoshare export --format prometheus` has it.
    """

    name: str
    type: MetricType
    help: str
    labels: tuple[str, ...] = ()
    is_live: bool = True
    is_exported: bool = False

    @property
    def base(self) -> str:
        """Name without the suffix of its type."""
        return self.name.removesuffix("_total").removesuffix("_info")

    @property
    def unit(self) -> str:
        """Base unit; empty for a number of things."""
        last = self.base.rpartition("_")[2]
        return last if last in UNITS else ""


def _counter(name: str, words: str, *labels: str, is_exported: bool = False) -> MetricFamily:
    return MetricFamily(name, MetricType.COUNTER, words, labels, is_exported=is_exported)


def _gauge(name: str, words: str, *labels: str, is_exported: bool = False, is_live: bool = True) -> MetricFamily:
    return MetricFamily(name, MetricType.GAUGE, words, labels, is_live, is_exported)


def _histogram(name: str, words: str, *labels: str, is_exported: bool = False) -> MetricFamily:
    return MetricFamily(name, MetricType.HISTOGRAM, words, labels, is_exported=is_exported)


def _info(name: str, words: str, *labels: str) -> MetricFamily:
    return MetricFamily(name, MetricType.INFO, words, labels)


# The queue

QUEUE_INFO = _info("ecoshare_queue_info", "The queue.", "policy", "objective", "version")
QUEUE_OPENED = _gauge("ecoshare_queue_opened_timestamp_seconds", "Time since 1970 at which this session began.")
JOBS = _gauge("ecoshare_jobs", "Jobs, trials and arriving sweeps that have not ended, by state.", "state")
OPEN_SWEEPS = _gauge("ecoshare_open_sweeps", "Sweeps that have begun and not ended.")
JOBS_ENDED = _counter("ecoshare_jobs_ended_total", "Ends, by final state. Kinds: job, sweep, trial.", "kind", "state")
ATTEMPTS_ENDED = _counter("ecoshare_attempts_ended_total", "Attempts of jobs that have ended, by outcome.", "outcome")
RESTARTS = _counter("ecoshare_restarts_total", "Attempts that another attempt follows, by outcome.", "outcome")
PARKS = _counter("ecoshare_parks_total", "Times that the memory of a job was moved to the host.")
WINDOWS = _counter("ecoshare_profiling_windows_total", "Profiling windows. Results: profiled, failed.", "result")

# Devices

DEVICE_INFO = _info("ecoshare_device_info", "A device, with the name that its maker gives it.", "device", "model")
DEVICE_ENERGY = _counter(
    "ecoshare_device_energy_joules_total",
    "Energy of a device in this session. Sources: measured, modelled.",
    "device",
    "source",
)
DEVICE_JOBS_ENERGY = _counter(
    "ecoshare_device_jobs_energy_joules_total",
    "Energy of a device beyond idle that all its jobs have used, ended ones included.",
    "device",
    "source",
)
DEVICE_ITERATIONS = _counter(
    "ecoshare_device_iterations_total",
    "Iterations of all jobs of a device, ended ones included. Kinds: train, eval. A gang counts on each device.",
    "device",
    "kind",
)
DEVICE_POWER = _gauge("ecoshare_device_power_watts", "Power, as reported or as the mean of about a second.", "device")
DEVICE_CLOCK = _gauge("ecoshare_device_clock_hertz", "Present clock. Domains: gpu, memory.", "device", "domain")
DEVICE_TEMPERATURE = _gauge("ecoshare_device_temperature_celsius", "Temperature.", "device")
DEVICE_MEMORY = _gauge("ecoshare_device_memory_used_bytes", "Memory in use, by all processes.", "device")
DEVICE_MEMORY_LIMIT = _gauge("ecoshare_device_memory_limit_bytes", "Memory that the queue may use.", "device")
DEVICE_BUSY = _gauge("ecoshare_device_busy_ratio", "Part of the last moments in which the device worked.", "device")
DEVICE_FAILED = _gauge("ecoshare_device_failed", "Whether the device has failed (1) or works (0).", "device")
LANE_JOBS = _gauge("ecoshare_lane_jobs", "Jobs that have a place in a lane.", "device", "lane")
TURN_WAIT = _histogram("ecoshare_turn_wait_seconds", "Time from the request for a turn to the turn.", "device")

# Settings in force

SETTING_POWER = _gauge("ecoshare_device_setting_watts", "Power limit in force.", "device", "knob")
SETTING_CLOCK = _gauge("ecoshare_device_setting_hertz", "Clock in force.", "device", "knob")
SETTING_BATCH = _gauge(
    "ecoshare_device_setting_batch_requests", "Largest batch that the services of a device may form.", "device"
)
SETTING_NAMED = _info(
    "ecoshare_device_setting_info", "Value in force that is no number, such as unlocked.", "device", "knob", "value"
)
SETTING_CHANGES = _counter(
    "ecoshare_setting_changes_total", "Changes of a setting. Results: applied, refused.", "device", "result"
)
SETTING_MEASUREMENTS = _counter(
    "ecoshare_setting_measurements_total", "Measurements of a setting, by status.", "device", "status"
)
SEARCHES_BEGUN = _counter("ecoshare_setting_searches_begun_total", "Searches of a setting that have begun.", "device")
SEARCHES_ENDED = _counter("ecoshare_setting_searches_ended_total", "Searches that have come to a result.", "device")

# Jobs that have a process

JOB_ENERGY = _counter(
    "ecoshare_job_energy_joules_total",
    "Energy of a job beyond idle. Sources: attributed, modelled.",
    "name",
    "source",
    is_exported=True,
)
JOB_ITERATIONS = _counter(
    "ecoshare_job_iterations_total", "Iterations of a job. Kinds: train, eval.", "name", "kind", is_exported=True
)
JOB_TURN = _counter("ecoshare_job_turn_seconds_total", "Time for which a job held the turn.", "name", is_exported=True)
JOB_WAIT = _counter("ecoshare_job_turn_wait_seconds_total", "Time for which a job waited for the turn.", "name")
JOB_SLOWDOWN = _gauge(
    "ecoshare_job_slowdown_ratio", "Wall time of an iteration / its time with the turn.", "name", is_exported=True
)
JOB_ATTEMPT = _gauge("ecoshare_job_attempt", "Number of the present attempt, from 1.", "name")
JOB_HAS_TURN = _gauge(
    "ecoshare_job_has_turn", "Whether a job has the turn of its lane (1) or not (0).", "name", "device", "lane"
)

# Services that have a process

SERVICE_TARGET = _gauge(
    "ecoshare_service_target_seconds", "Target of the 99th percentile of latencies.", "name", is_exported=True
)
SERVICE_P99 = _gauge("ecoshare_service_recent_p99_seconds", "99th percentile of latencies of the last 10 s.", "name")
SERVICE_MISSED = _counter(
    "ecoshare_service_target_missed_seconds_total",
    "Time, in whole minutes, in which the target was missed.",
    "name",
    is_exported=True,
)
SERVICE_REQUESTS = _counter(
    "ecoshare_service_requests_total",
    "Requests. Results: in_time, late, failed, refused, cancelled.",
    "name",
    "result",
    is_exported=True,
)
SERVICE_LATENCY = _histogram(
    "ecoshare_service_latency_seconds", "Time from the arrival of a request to its answer.", "name", is_exported=True
)
SERVICE_BATCH = _histogram(
    "ecoshare_service_batch_requests", "Requests in a call of the handler.", "name", is_exported=True
)
SERVICE_PEAK = _gauge(
    "ecoshare_service_queue_peak_requests", "Most requests that waited at once.", "name", is_exported=True
)

FAMILIES = tuple(each for each in list(globals().values()) if isinstance(each, MetricFamily))
"""All metrics, in the order in which they are listed."""
