"""Search for the setting of a packing with one service: measurements of a run, told to a `ServiceSearch`.

::

    Measurement ──► watts, p99, batches, iterations of the training ──► ServiceSearch ──► next setting
                └─► judgement: joules against the default, target kept?

A setting is judged by requests: it keeps the target if their p99 does. A setting that overloads the service is known to
break it, even if nothing else was measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ecoshare.base.measurement import BATCH, TUNING_LIMIT, Measurement, MeasurementStatus
from ecoshare.knowledge.advisers.service_search import (
    ServiceMeasurement,
    ServiceSearch,
    ServiceSearchEnding,
    TrainingBeside,
)
from ecoshare.knowledge.advisers.setting_search import JudgedMeasurement, PackedJob, SettingScore, saved_part
from tuner import Knob, Role, ServiceLoad, Setting, Space, dispersion

MOST_WITH_BATCHES = 3_000
"""Most settings with all batch sizes together."""


@dataclass(frozen=True, slots=True)
class PackedService:
    """The service of the packing.

    Attributes:
        target_s: Target (s) of the p99.
        sizes: Batch sizes that it may use, in ascending order; empty if they are not known.
        idle_w: Power (W) of the idle device.
    """

    name: str
    target_s: float
    sizes: tuple[int, ...] = ()
    idle_w: float = 0.0


def with_batch(space: Space, default: Setting, sizes: Sequence[int]) -> tuple[Space, dict[str, float | str]]:
    """Space with the largest batch as another knob, and the default setting in it: any size may be used.

    The smallest sizes are left out if there are too many settings: a batch grows only as large as requests make it.
    """
    kept = [float(size) for size in sizes[-max(1, MOST_WITH_BATCHES // len(space)) :]]
    if len(kept) < 2:
        return space, dict(default)
    knob = Knob(BATCH, tuple(kept), Role.WORK_SIZE)
    settings = [{**setting, BATCH: size} for setting in space.settings for size in kept]
    return Space([*space.knobs, knob], settings), {**default, BATCH: kept[-1]}


class ServicePackingSearch:
    """Search for the setting of a packing with one service.

    Attributes:
        space: Settings to choose from, with the largest batch.
        default: Default setting.
        jobs: Names of all jobs.
        most: Largest allowed ratio of each training job: time / time at the default setting.
        measurements: Measurements in order, each with its judgement.
    """

    def __init__(
        self,
        space: Space,
        default: Setting,
        service: PackedService,
        training: Sequence[PackedJob],
        found: Measurement,
        budget: int,
        seed: int = 0,
        tuning_limit: float = TUNING_LIMIT,
    ) -> None:
        """Search with the measurement at the default setting.

        Args:
            space: Settings of the device.
            default: Default setting of the device.
            service: The service.
            training: Jobs beside it, with their shares of all time.
            found: Measurement at the default setting.
            budget: Most measurements, the first one included.
            seed: Seed of the tuner.
            tuning_limit: Time of an iteration at a setting / time at the default setting, at most.

        Raises:
            ValueError: The measurement has no power, or figures of the service are missing.
        """
        if service.name not in found.services or found.power_w is None:
            raise ValueError("the default setting was measured, with the power and the requests of the service")
        figures = found.services[service.name]
        self.space, self.default = with_batch(space, default, service.sizes)
        self.jobs = tuple(sorted([service.name, *(job.name for job in training)]))
        self.most = {job.name: tuning_limit if job.most is None else min(tuning_limit, job.most) for job in training}
        self.measurements: list[JudgedMeasurement] = []
        self._service, self._target_s, self._first = service.name, service.target_s, found
        left = max(1e-3, 1.0 - found.shares.get(service.name, 0.0))
        self._search = ServiceSearch(
            self.space,
            self.default,
            service.target_s,
            ServiceLoad(figures.rate_per_s, service.idle_w),
            self._numbers(found),
            [
                TrainingBeside(
                    name=job.name,
                    alone_w=job.alone_w,
                    alone_s=job.alone_s or found.times_s[job.name],
                    share=min(1.0, job.share / left),
                    most=self.most[job.name],
                )
                for job in training
            ],
            budget=budget,
            seed=seed,
        )
        self._keep(self.default, found)

    @property
    def ending(self) -> ServiceSearchEnding | None:
        """Reason why the search has ended; None while it goes on."""
        return self._search.ending

    def next(self) -> Setting | None:
        """Setting to measure next; None if the search has ended. It stays the same until its result is told."""
        return self._search.next()

    def told(self, found: Measurement) -> JudgedMeasurement:
        """Note the result for the setting that `next` gave.

        Returns:
            The measurement with its judgement.

        Raises:
            RuntimeError: `next` was not called before.
            ValueError: A complete measurement lacks a number.
        """
        asked = self._search.next()
        if asked is None:
            raise RuntimeError("nothing was asked for: next() comes before told()")
        self._search.told(self._numbers(found))
        return self._keep(asked, found)

    @property
    def best(self) -> Setting | None:
        """Measured setting with the least joules of those that keep the target; None if none does."""
        return self._search.best

    def judged(self, setting: Setting) -> SettingScore | None:
        """Score of the last measurement of a setting; None if it has none."""
        scores = [each.score for each in self.measurements if each.requested == setting and each.score is not None]
        return scores[-1] if scores else None

    @property
    def saved(self) -> float | None:
        """Part of the default's joules that the best setting saves; None if no setting keeps the target."""
        best = self.best
        return saved_part(None if best is None else self.judged(best), self.judged(self.default))

    def _numbers(self, found: Measurement) -> ServiceMeasurement:
        """Numbers of a measurement, as the search takes them."""
        figures = found.services.get(self._service)
        if found.status is MeasurementStatus.CENSORED and self._service in found.overloaded:
            p99_s = max(self._target_s, figures.p99_s if figures is not None else 0.0)
            return ServiceMeasurement(math.nan, p99_s, 1.0, math.nan, status=found.status)
        if found.status is not MeasurementStatus.MEASURED or found.power_w is None or figures is None:
            return ServiceMeasurement(0.0, 0.0, 1.0, 0.0, status=MeasurementStatus.FAILED)
        return ServiceMeasurement(
            power_w=found.power_w,
            p99_s=figures.p99_s,
            batch=figures.batch,
            batch_s=figures.batch_s,
            full_s={float(size): took_s for size, took_s in figures.full_s},
            times_s=found.times_s,
            dispersion=dispersion(figures.rates_per_s),
        )

    def _keep(self, setting: Mapping[str, float | str], found: Measurement) -> JudgedMeasurement:
        own = JudgedMeasurement(len(self.measurements) + 1, dict(setting), found)
        if self._numbers(found).status is MeasurementStatus.CENSORED:
            own = replace(own, feasible=False)
        elif (score := self._score(found)) is not None:
            is_best, slower = self.best == own.requested, score.interference
            own = replace(own, score=score, interference=slower, feasible=score.feasible, best=is_best)
        self.measurements.append(own)
        return own

    def _score(self, found: Measurement) -> SettingScore | None:
        numbers = self._numbers(found)
        if numbers.status is not MeasurementStatus.MEASURED:
            return None
        slower = {name: time_s / self._first.times_s[name] for name, time_s in found.times_s.items()}
        kept = numbers.p99_s <= self._search.target_s and all(slower[name] <= most for name, most in self.most.items())
        energy = self._search.energy(numbers)
        return SettingScore(energy=energy, interference=slower, objective=energy, feasible=kept)
