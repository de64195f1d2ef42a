"""Prior of a service: the physical model's batches, as a load of requests uses them.

::

    measured batches ──► samples of (watts, time) of full batches at every setting ─┐
                                                                                    ├─ load ─► samples ──► prior
    measured iterations ──► samples of (watts, time) of each neighbour ─────────────┘

The observables are those that a measurement of a running service gives: the mean power, the time of work for a request,
the p99 of the latency, and the iteration time of each job that trains in the same lane. The work size of the space is
the largest batch that the service may form. `tuner.service_load` has the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from tuner.evaluations import Evaluation
from tuner.objective import P99, POWER, TURN
from tuner.physics import grey_box
from tuner.prior import Prior
from tuner.response_process import ResponseProcess, hypotheses
from tuner.service_load import Array, ServiceLoad, served
from tuner.space import Knob, Role, Setting, Space, Value

Places = NDArray[np.int64]

BATCH = "batch_s"
"""Time (s) of a full batch / requests in it: the time that an evaluation of a service's batches observes."""

_PARTS = 8
_POWER_SD, _TURN_SD, _RATIO_SD, _ITERATION_SD = 0.05, 0.05, 0.4, 0.05
"""Standard deviations of the unknown constants. The ratio is p99 / formula, which differs between services."""
_RATIO_SPREAD = 3.0
"""Factor of the noise and of the residual of the p99: a percentile of 1,000 requests is good to 3 to 10 %, and the
formula to 10 % between settings of one service. Both are for a Poisson process: they grow with the standard deviation
of the number of requests in an interval."""
_NO_KNOB = Knob("none", (1.0,))
"""Knob of a job for which nothing can be set: only the batch of the service can."""
_TRUST = 0.98
"""Probability that a service follows the physical model. An upper bound must not be that of the exceptions."""
_MOST_LATE = 4.0
"""Largest latency that is told apart, in multiples of the target. Beyond it, a setting is out of the question."""


@dataclass(frozen=True)
class TrainingLoad:
    """A job that trains in the lane of a service.

    Attributes:
        evaluations: Measurements of the job alone: power (W) and `time`, at settings with or without a batch size.
        share: Share of the time that the service leaves.
        tail: Upper quantile of an iteration's time / mean.
    """

    evaluations: Sequence[Evaluation]
    share: float = 1.0
    tail: float = 1.0


def service_prior(
    space: Space,
    default: Setting,
    load: ServiceLoad,
    batches: Sequence[Evaluation],
    target_s: float,
    training: Mapping[str, TrainingLoad] | None = None,
    interference: float = 1.0,
    seed: int = 0,
) -> Prior:
    """Prior of `POWER`, `TURN`, `P99` and the time of each training job, for a service under load.

    Args:
        space: Space of the settings. The knob with the role of the work size is the largest batch.
        default: Default setting.
        load: Requests of the service.
        batches: Measurements of full batches: `BATCH` and, where known, the power (W) while they are answered. The
            first setting to know is the default's.
        target_s: Target (s) of the p99.
        training: Jobs in the service's lane, by the name of their time.
        interference: Time of a batch beside the jobs of other lanes / time in `batches`.
        seed: Seed of the samples.
    """
    watts, request_s = _alone(space, default, batches, BATCH, seed)
    request_s = request_s * interference
    jobs = {name: _without_batch(space, default, each, name, seed) for name, each in (training or {}).items()}
    rest_w = np.full_like(watts, load.idle_w) if not jobs else np.zeros_like(watts)
    longest_s = np.zeros_like(watts)
    for name, each in (training or {}).items():
        rest_w += each.share * jobs[name][0]
        longest_s = np.maximum(longest_s, each.tail * jobs[name][1])
    power_w, turn_s, late_s = np.empty_like(watts), np.empty_like(watts), np.empty_like(watts)
    for own, places, sizes in _by_largest(space):
        batch_s = sizes * request_s[:, places]  # (S, n_own, n_sizes)
        found = served(sizes, batch_s, watts[:, places], longest_s[:, own], load)
        busy = np.minimum(1.0, load.rate_per_s * found.turn_s)
        working_w = found.batch_j / (found.turn_s * found.batch)
        power_w[:, own] = busy * working_w + (1.0 - busy) * rest_w[:, own]
        turn_s[:, own], late_s[:, own] = found.turn_s, found.latency_s
    late_s = np.minimum(late_s, _MOST_LATE * target_s)
    samples = np.log(np.stack([power_w, turn_s, late_s, *(each[1] for each in jobs.values())], axis=1))
    count = len(jobs)
    return Prior.of_samples(
        (POWER, TURN, P99, *jobs),
        torch.from_numpy(samples),
        [_POWER_SD, _TURN_SD, _RATIO_SD] + [_ITERATION_SD] * count,
        _PARTS,
        [1.0, 1.0, _RATIO_SPREAD * math.sqrt(load.dispersion)] + [1.0] * count,
        _TRUST,
    )


def told_p99_s(p99_s: float, target_s: float) -> float:
    """Latency (s) to tell a tuner with such a prior: all that is far over the target is alike."""
    return min(p99_s, _MOST_LATE * target_s)


def _alone(
    space: Space, default: Setting, evaluations: Sequence[Evaluation], time: str, seed: int
) -> tuple[Array, Array]:
    """Samples of the power (W) and the time (s), each (S, n_settings), given evaluations."""
    logs = ResponseProcess(space, grey_box(space, [time], default, seed), hypotheses(1.0), seed).condition(evaluations)
    both: Array = logs.exp().numpy()
    return both[:, 0], both[:, 1]


def _without_batch(space: Space, default: Setting, job: TrainingLoad, time: str, seed: int) -> tuple[Array, Array]:
    """The same of a job that the batch of the service does not change, at all settings of the service's space."""
    knobs = [knob for knob in space.knobs if knob.role is not Role.WORK_SIZE] or [_NO_KNOB]

    def reduced(setting: Setting) -> dict[str, Value]:
        return {knob.name: setting.get(knob.name, 1.0) for knob in knobs}

    distinct = {tuple(reduced(each).values()): reduced(each) for each in space.settings}
    own = Space(knobs, distinct.values())
    evaluations = [Evaluation(reduced(each.setting), each.observed, each.status) for each in job.evaluations]
    where = [own.index(reduced(each)) for each in space.settings]
    power_w, time_s = _alone(own, reduced(default), evaluations, time, seed)
    return power_w[:, where], time_s[:, where]


def _by_largest(space: Space) -> Iterator[tuple[Places, Places, Array]]:
    """Settings with one list of batch sizes: their indices, those of the same with each size, and the sizes.

    The shapes are (n_own,), (n_own, n_sizes) and (n_sizes,). The last size is that of the settings themselves.
    """
    names = [knob.name for knob in space.knobs if knob.role is not Role.WORK_SIZE]
    column = space.column(Role.WORK_SIZE)
    size = np.ones(len(space)) if column is None else column
    beside: dict[tuple[Value, ...], list[int]] = {}
    for place in np.argsort(size, kind="stable").tolist():
        beside.setdefault(tuple(space.settings[place][name] for name in names), []).append(place)
    alike: dict[tuple[float, ...], list[list[int]]] = {}
    for places in beside.values():
        for count in range(1, len(places) + 1):
            alike.setdefault(tuple(size[places[:count]].tolist()), []).append(places[:count])
    for sizes, rows in alike.items():
        found = np.array(rows)
        yield found[:, -1], found, np.array(sizes)
