"""Measurements: a packing that ran at a setting, and jobs that ran beside each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

OBJECTIVES = ("energy", "edp", "jct", "makespan")
"""Objectives of a search for a setting. The policies of the same names choose co-located jobs."""

TUNING_LIMIT = 1.1
"""Default of the tuning limit: time of an iteration at a setting / time at the default setting, at most."""


@dataclass(frozen=True, slots=True)
class Goal:
    """Objective and limits of a search for settings.

    Attributes:
        objective: `energy`, `edp`, `jct` or `makespan`.
        tuning_limit: Largest factor (>= 1) by which an iteration may take longer than at the default setting.
        budget: Largest number of settings that are measured.
        seed: Seed of the optimizer.
    """

    objective: str
    tuning_limit: float
    budget: int
    seed: int = 0


Packing = tuple[tuple[str, ...], ...]
"""Job classes in each lane of a device, without its empty lanes. Both the classes and the lanes are sorted. Jobs that
are away are left out, and a job that evaluates is of a class of its own: see `class_in`."""


class JobPhase(Enum):
    """Long part of a job, as far as another setting may be best for its device then."""

    TRAINS = "trains"
    EVALUATES = "evaluates"
    AWAY = "away"
    """The job neither has nor wants the turn: it loads data, waits for an answer or writes a file, say."""


_EVALUATES = "~evaluates"
"""End of a name in a packing. No name of a class has such a sign."""


def class_in(job_class: str, phase: JobPhase) -> str:
    """Name in a packing of a job of this class in this phase."""
    return f"{job_class}{_EVALUATES}" if phase is JobPhase.EVALUATES else job_class


def class_of(name: str) -> str:
    """Class of a job, from its name in a packing."""
    return name.removesuffix(_EVALUATES)


def phase_words(name: str) -> str:
    """Words after a class for its name in a packing; empty for a job that trains."""
    return " (evaluating)" if name.endswith(_EVALUATES) else ""


Setting = tuple[tuple[str, float | str], ...]
"""Sorted (knob, value) pairs of the knobs that differ from how the device was found."""

AS_FOUND: Setting = ()
"""The default setting: no knob differs."""

BATCH = "batch"
"""Knob of a service, not of its device: the largest batch that it may form."""


@dataclass(frozen=True, slots=True)
class KnownSetting:
    """Best setting of a packing, from an earlier search.

    Attributes:
        slower: Largest ratio over the jobs: iteration time at the setting / iteration time at the default setting.
    """

    packing: Packing
    setting: Setting
    slower: float = 1.0


def setting_of(values: Mapping[str, float | str], found: Mapping[str, float | str]) -> Setting:
    """Setting that these values of the knobs make on a device that was found with the values `found`."""
    return tuple(sorted((name, value) for name, value in values.items() if value != found.get(name)))


class MeasurementStatus(Enum):
    """Validity of a measurement."""

    MEASURED = "measured"
    CENSORED = "censored"
    """The measurement stopped early because a job was clearly too slow: the times are lower bounds. So is the p99 of a
    service."""
    CONTAMINATED = "contaminated"
    """Something other than the setting determined the result."""
    FAILED = "failed"
    """The setting could not be applied."""

    @property
    def has_numbers(self) -> bool:
        """Whether the numbers say something about the setting: they are whole, or bounds."""
        return self in (MeasurementStatus.MEASURED, MeasurementStatus.CENSORED)


@dataclass(frozen=True, slots=True)
class ServiceFigures:
    """Figures of a service during a measurement.

    Attributes:
        arrived: Number of requests that came.
        missed: Number of requests that missed the target: answered late, refused or failed.
        rate_per_s: Requests a second.
        p99_s: 99th percentile of the latency (s).
        batch: Mean number of requests in a call of the handler.
        batch_s: Mean time (s) of a call.
        full_s: Mean time (s) of the calls with each number of requests, in ascending order of the numbers.
        rates_per_s: Requests a second in each interval of about a second.
    """

    arrived: int
    missed: int
    rate_per_s: float
    p99_s: float
    batch: float
    batch_s: float
    full_s: tuple[tuple[int, float], ...] = ()
    rates_per_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Measurement:
    """Result of running a packing at one setting for a while.

    Attributes:
        setting: The setting.
        status: Validity of the result.
        power_w: Mean power (W) of the device; None without a meter.
        joules: Energy (J) that the device spent; None without a meter.
        processors_w: Mean power (W) of the processors beside a GPU; None if they are no part of the objective.
        processors_j: Energy (J) that these processors spent; None if they are no part of the objective.
        duration_s: Wall time (s) of the measurement.
        times_s: Seconds per iteration of each job while it holds its turn. A service has none.
        shares: Part of the time, in [0, 1], in which each job held its turn.
        rates: Iterations per second of each job, with its waits for the turn and for data.
        achieved: Observed value of each knob: the mean of a clock, the power profiles in force by name, the last
            reading of any other knob. Knobs that cannot be read are left out.
        throttles: Reasons for lower clocks during the measurement, in words.
        temperature_c: Mean temperature of the device (degrees Celsius); None if it cannot be read.
        note: Reason for a status other than `MEASURED`, in words.
        services: Figures of each service.
        overloaded: Services that the setting surely overloads: they miss their targets. Their figures may be missing.
        modelled_w: Mean power (W) of a device without a meter, by a model of it; None if it has a meter, or no model.
    """

    setting: Setting
    status: MeasurementStatus
    power_w: float | None = None
    joules: float | None = None
    duration_s: float = 0.0
    times_s: dict[str, float] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    achieved: dict[str, float | str] = field(default_factory=dict)
    throttles: tuple[str, ...] = ()
    temperature_c: float | None = None
    note: str = ""
    processors_w: float | None = None
    processors_j: float | None = None
    services: dict[str, ServiceFigures] = field(default_factory=dict)
    overloaded: tuple[str, ...] = ()
    modelled_w: float | None = None

    @property
    def drawn_w(self) -> float | None:
        """Mean power (W) of the device, measured or modelled; None if it has neither a meter nor a model."""
        return self.modelled_w if self.power_w is None else self.power_w

    @property
    def missed_share(self) -> float | None:
        """Part of the requests of a service that missed its target: the largest of all services; None if unknown.

        An overloaded service counts as 1: its queue grows for as long as the setting is in force.
        """
        if self.overloaded:
            return 1.0
        return max((each.missed / each.arrived for each in self.services.values() if each.arrived), default=None)

    @property
    def objective_w(self) -> float | None:
        """Power (W) that the objective counts: of the device, and of the processors if these are a part of it."""
        return self.power_w if self.power_w is None else self.power_w + (self.processors_w or 0.0)


@dataclass(frozen=True, slots=True)
class ColocationMeasurement:
    """Measurement of co-located jobs at the default setting.

    Attributes:
        classes: Class of each job.
        speeds: Relative speed of each job: rate beside its neighbours / rate alone.
        power_w: Mean power (W) of the device, measured or modelled; None if it is not known.
    """

    classes: tuple[str, ...]
    speeds: tuple[float, ...]
    power_w: float | None


@dataclass(frozen=True, slots=True)
class PairSpeed:
    """Predicted speed of a job class beside a neighbour in another lane, at the default setting.

    Attributes:
        one: Class that the speed is about.
        other: Class of the neighbour.
        speed: Relative speed in (0, 1]: rate beside the neighbour / rate alone.
        error: Standard deviation of `speed`.
    """

    one: str
    other: str
    speed: float
    error: float
