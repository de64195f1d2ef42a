"""Search for the clocks, the power limit and the largest batch of a service that keep its target with least joules.

::

    first measurement (default setting) ──► ServiceSearch ──next()──► setting ──► (the caller applies and measures it)
                                                 ▲                                        │
                                                 └────────told(measurement)───────────────┘
                                                 └──best──► the setting to keep

The search is sure of a setting if the upper bound of its p99, at a stated confidence, keeps the target. It proposes
another one only while no setting is known to keep the target: then the likeliest. Nothing is read or written here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from ecoshare.base.measurement import MeasurementStatus
from ecoshare.base.plural import listed
from tuner import (
    BATCH,
    P99,
    POWER,
    TURN,
    ConstrainedTuner,
    Evaluation,
    EvaluationStatus,
    Limit,
    Role,
    ServiceLoad,
    Setting,
    Space,
    TrainingLoad,
    service_energy,
    service_prior,
)
from tuner.service_prior import told_p99_s
from tuner.sure_step import sure_step

CONFIDENCE = 0.75
"""Default of the probability with which the p99 of a setting to try is below its upper bound. A measurement takes
seconds, so it may break the target now and then. See docs/decisions/0039."""
FIRST_CONFIDENCE = 0.9
"""The same for the first trial, if there is such a setting: nothing but the default is known then."""
KEPT_CONFIDENCE = 0.9
"""The same for a setting that is kept, if there is such a one."""
BUDGET = 8
"""Default of the most measurements, the first one included."""
LITTLE_GAIN = 0.01
OVERLOADED = math.log(100) / math.log(20)
"""Least p99 / target at a setting that overloads the service: 5 % of the requests miss the target, and the times of the
slowest fall off exponentially. For as long as the queue grows it is more."""
_WORKING_W = 0.3, 3.0
"""Least and largest power while the service works / mean power. At a low load the former is a small difference."""


class ServiceSearchEnding(Enum):
    """Reason why a search has ended, in words."""

    BUDGET = "the budget is used up"
    LITTLE_GAIN = f"another measurement was expected to gain less than {100 * LITTLE_GAIN:g} %"
    NOTHING_SURE = "no other setting surely keeps the target"
    NOTHING_LEFT = "every setting has been tried"
    NONE_KEEPS = "no setting can keep the target"


@dataclass(frozen=True, slots=True)
class ServiceMeasurement:
    """Measurement of a running service at one setting.

    Attributes:
        power_w: Mean power (W) of the device.
        p99_s: 99th percentile of the latency (s) of the requests.
        batch: Mean requests in a batch.
        batch_s: Mean time (s) of a batch.
        dispersion: Variance of the number of requests in an interval / mean number; 1 for a Poisson process.
        full_s: Mean time (s) of the full batches of a size, by size, as far as known.
        times_s: Time (s) of an iteration of each training job in the lane while it holds the turn.
        status: Validity; the numbers of a disturbed or failed measurement are not used. A measurement that was stopped
            early tells only that the setting overloads the service, and that the p99 is at least `p99_s`.
    """

    power_w: float
    p99_s: float
    batch: float
    batch_s: float
    full_s: Mapping[float, float] = field(default_factory=dict)
    times_s: Mapping[str, float] = field(default_factory=dict)
    status: MeasurementStatus = MeasurementStatus.MEASURED
    dispersion: float = 1.0

    @property
    def turn_s(self) -> float:
        """Time (s) of work for one request."""
        return self.batch_s / self.batch


@dataclass(frozen=True, slots=True)
class TrainingBeside:
    """Job that trains in the lane of a service.

    Attributes:
        alone_w: Power (W) of the device while the job runs alone at the default setting.
        alone_s: Time (s) of an iteration of the job alone at the default setting.
        share: Share of the time that the service leaves.
        tail: Upper quantile of an iteration's time / mean.
        most: Largest allowed ratio: time of an iteration / time at the default setting; None for no limit.
    """

    name: str
    alone_w: float
    alone_s: float
    share: float = 1.0
    tail: float = 1.0
    most: float | None = None


class ServiceSearch:
    """Search that chooses the settings to measure for a service, and keeps the results.

    Attributes:
        space: Settings to choose from. A knob with the role of the work size is the largest batch.
        default: Default setting.
        target_s: Target (s) of the p99.
        confidence: Probability with which the p99 of a setting to try is below its upper bound.
        measurements: Settings and their measurements in order, the default first.
        ending: Reason why the search has ended; None while it goes on.
    """

    def __init__(
        self,
        space: Space,
        default: Setting,
        target_s: float,
        load: ServiceLoad,
        first: ServiceMeasurement,
        training: Sequence[TrainingBeside] = (),
        confidence: float = CONFIDENCE,
        budget: int = BUDGET,
        seed: int = 0,
    ) -> None:
        """Search with one measurement, at the default setting.

        Args:
            space: Settings to choose from.
            default: Default setting.
            target_s: Target (s) of the p99.
            load: Requests of the service.
            first: Measurement at the default setting.
            training: Jobs that train in the lane.
            confidence: Probability with which the p99 of a setting to try is below its upper bound.
            budget: Most measurements, the first one included.
            seed: Seed of the tuner.

        Raises:
            ValueError: The target, the confidence or the budget is out of range, or a number of the first measurement
                is missing or not positive.
        """
        if not (math.isfinite(target_s) and target_s > 0.0):
            raise ValueError(f"a target of {target_s:g} s: expected a positive time")
        if not 0.5 <= confidence < 1.0:
            raise ValueError(f"a confidence of {confidence:g}: expected at least 0.5 and below 1")
        if budget < 1:
            raise ValueError(f"a budget of {budget} measurements: expected at least 1")
        if first.status is not MeasurementStatus.MEASURED:
            raise ValueError("the default setting was not measured, and the search begins with it")
        if not all(math.isfinite(each) and each > 0.0 for each in (first.power_w, first.batch, first.batch_s)):
            raise ValueError("power and batches of the first measurement are positive numbers")
        self.space, self.default, self.target_s, self.confidence = space, dict(default), target_s, confidence
        self.measurements: list[tuple[dict[str, float | str], ServiceMeasurement]] = []
        self.ending: ServiceSearchEnding | None = None
        load = replace(load, dispersion=first.dispersion)
        self._load, self._training, self._budget = load, tuple(training), budget
        self._asked: dict[str, float | str] | None = self.default
        working_w = self._working_w(first)
        self._request_j = working_w * first.turn_s
        self._tuner = ConstrainedTuner(
            space,
            service_energy(load.rate_per_s, self._request_j, self._training_j),
            [
                Limit(P99, target_s, is_absolute=True),
                *(Limit(job.name, job.most) for job in training if job.most is not None),
            ],
            default,
            service_prior(
                space, default, load, self._batches(first, working_w), target_s, self._training_loads(), seed=seed
            ),
            seed,
        )
        self.told(first)

    def next(self) -> dict[str, float | str] | None:
        """Setting to measure next; None if the search has ended. It stays the same until its result is told."""
        if self._asked is None and self.ending is None:
            self._asked, self.ending = self._choose()
        return None if self._asked is None else dict(self._asked)

    def told(self, found: ServiceMeasurement) -> None:
        """Note the result for the setting that `next` gave.

        Raises:
            RuntimeError: `next` was not called before.
            ValueError: A number is missing or not positive.
        """
        if self._asked is None:
            raise RuntimeError("nothing was asked for: next() comes before told()")
        # A disturbed setting is not repeated: a service cannot wait, and other settings are as good.
        status, observed = EvaluationStatus.FAILED, {}
        if found.status is MeasurementStatus.CENSORED:
            # Told as a measurement: samples that a bound leaves out are none at a setting that the prior believes in.
            least_s = max(found.p99_s, OVERLOADED * self.target_s)
            status, observed = EvaluationStatus.MEASURED, {P99: told_p99_s(least_s, self.target_s)}
        elif found.status is MeasurementStatus.MEASURED:
            status = EvaluationStatus.MEASURED
            observed = {POWER: found.power_w, TURN: found.turn_s, P99: told_p99_s(found.p99_s, self.target_s)}
            missing = sorted({job.name for job in self._training} - found.times_s.keys())
            if missing:
                raise ValueError(f"a measurement lacks the iteration time of {listed(missing)}")
            observed |= {job.name: found.times_s[job.name] for job in self._training}
        self._tuner.tell(self._asked, observed, status)
        self.measurements.append((self._asked, found))
        self._asked = None

    @property
    def best(self) -> dict[str, float | str] | None:
        """Measured setting with the least joules of those that keep the target; None if none does.

        Settings that keep it with the probability `KEPT_CONFIDENCE` go first. The others must be likely to keep the
        target, and have been measured so.
        """
        kept = [each for each in self._measured() if self._is_kept(*each)]
        sure = [each for each in kept if self._tuner.feasible(each[0]) >= KEPT_CONFIDENCE]
        return min(sure or kept, key=lambda each: self.energy(each[1]), default=(None, None))[0]

    def bound_s(self, setting: Setting, confidence: float | None = None) -> float:
        """Upper bound (s) of the p99 at a setting, with a confidence, by default that of the search.

        Raises:
            KeyError: The setting is not in the space.
        """
        place = self.space.index(setting)
        return float(self._tuner.upper(P99, self.confidence if confidence is None else confidence)[place])

    def is_sure(self, setting: Setting) -> bool:
        """Whether the upper bound at a setting keeps the target, and the limits of the training jobs are kept.

        Raises:
            KeyError: The setting is not in the space.
        """
        return self.bound_s(setting) <= self.target_s and self._tuner.feasible(setting) >= self.confidence

    def energy(self, found: ServiceMeasurement) -> float:
        """Joules spent / joules that the same work costs alone at the default setting, by measured numbers."""
        rate = self._load.rate_per_s
        work_w = rate * self._request_j
        for name, (joules, share) in self._training_j.items():
            work_w += share * max(0.0, 1.0 - rate * found.turn_s) * joules / found.times_s[name]
        return found.power_w / work_w

    def request_j(self, found: ServiceMeasurement) -> float:
        """Joules a request: its part of the power, by the work of the service and of the training beside it."""
        return self.energy(found) * self._request_j

    def _choose(self) -> tuple[dict[str, float | str] | None, ServiceSearchEnding | None]:
        if len(self.measurements) >= self._budget:
            return None, ServiceSearchEnding.BUDGET
        tried = {self.space.index(setting) for setting, _ in self.measurements}
        if len(tried) == len(self.space):
            return None, ServiceSearchEnding.NOTHING_LEFT
        if any(self._is_kept(*each) for each in self._measured()):
            step = sure_step(self._tuner, self._outward, LITTLE_GAIN)
            if step.setting is None and self._outward > self.confidence:
                step = sure_step(self._tuner, self.confidence, LITTLE_GAIN)
            if step.setting is not None:
                return step.setting, None
            little = step.gain < LITTLE_GAIN
            return None, ServiceSearchEnding.LITTLE_GAIN if little else ServiceSearchEnding.NOTHING_SURE
        setting = dict(self._tuner.ask(self.confidence))
        if not self.is_sure(setting) and self._tuner.feasible(setting) < 1.0 - self.confidence:
            return None, ServiceSearchEnding.NONE_KEEPS  # the setting is the likeliest one
        return setting, None

    @property
    def _outward(self) -> float:
        """Confidence of the next trial. The first one stays near the default, where the model is sure."""
        return max(self.confidence, FIRST_CONFIDENCE) if len(self._measured()) == 1 else self.confidence

    def _measured(self) -> list[tuple[dict[str, float | str], ServiceMeasurement]]:
        return [each for each in self.measurements if each[1].status is MeasurementStatus.MEASURED]

    def _is_kept(self, setting: Setting, found: ServiceMeasurement) -> bool:
        return found.p99_s <= self.target_s and self._tuner.feasible(setting) >= 0.5

    @property
    def _training_j(self) -> dict[str, tuple[float, float]]:
        """Energy (J) of an iteration alone and share, by the name of each training job."""
        return {job.name: (job.alone_w * job.alone_s, job.share) for job in self._training}

    def _training_loads(self) -> dict[str, TrainingLoad]:
        return {
            job.name: TrainingLoad(
                [Evaluation(self.default, {POWER: job.alone_w, job.name: job.alone_s})], job.share, job.tail
            )
            for job in self._training
        }

    def _working_w(self, found: ServiceMeasurement) -> float:
        """Power (W) of the device while the service works, from the mean power and that of the rest of the time."""
        busy = min(1.0, self._load.rate_per_s * found.turn_s)
        rest_w = sum(job.share * job.alone_w for job in self._training) if self._training else self._load.idle_w
        least, most = (factor * found.power_w for factor in _WORKING_W)
        return min(max((found.power_w - (1.0 - busy) * rest_w) / busy, least), most)

    def _batches(self, first: ServiceMeasurement, working_w: float) -> list[Evaluation]:
        """Full batches of the first measurement; the size nearest to the mean batch has the power."""
        knob = next((each for each in self.space.knobs if each.role is Role.WORK_SIZE), None)
        if knob is None:
            return [Evaluation(self.default, {POWER: working_w, BATCH: first.turn_s})]
        settings = {
            float(each[knob.name]): each
            for each in self.space.settings
            if all(each[name] == value for name, value in self.default.items() if name != knob.name)
        }
        nearest = min(settings, key=lambda size: abs(math.log(size / first.batch)))
        known = {size: took_s / size for size, took_s in first.full_s.items() if size in settings}
        known.setdefault(nearest, first.turn_s)
        return [
            Evaluation(settings[size], {BATCH: each, **({POWER: working_w} if size == nearest else {})})
            for size, each in known.items()
        ]
