"""Warm start: the evaluations of earlier jobs on a device become the prior of a new packing there.

An earlier job was evaluated at some settings only. So the transfer uses posterior samples of its own model, which cover
all settings. The moments of these samples, pooled over the earlier jobs, form a prior. A mixture of this prior and the
physical model's prior serves a job that is unlike all earlier jobs.

::

    evaluations of A alone ──► samples of A ─┐
    evaluations of B alone ──► samples of B ─┼──► samples of the new packing ──► its moments ─┐
    evaluations of C alone ──► samples of C ─┘                                                ├──► prior
                                                   physical model with random coefficients ───┘

A sample of job j alone holds its watts P_j and its relative time r_j (time / time at the default) at each setting. The
model of the packing is::

    time_j  = r_j level_j e^(c_j excess)                    relative to its own time at the default
    level_j = 1 + (slowdown_j - 1) mean_others r_other^g    slowdown from neighbours, at each setting
    power   = idle + o sum_j share_j (P_j - idle) / level_j
    excess  = log((power - idle) / (limit - idle))          above 0 if the power limit throttles the packing

`share_j` is the share of time in which job j works. The shares of jobs that take turns in one lane add up to 1; the
shares of co-located jobs add up to more. The first evaluation measures the slowdown at the default. The evaluations of
jobs alone do not tell the other coefficients, so they are drawn at random:

- idle: Idle watts.
- g: Exponent of a neighbour's relative time: whether a neighbour that is slower itself costs more or less.
- o: Factor for the overlap of watts.
- c_j: Exponent of the excess, drawn around the job's own trade of time for watts between the default and the setting
  that draws least.

Jobs that take turns use none of g, o and c, and their idle watts cancel if the shares add up to 1. The model treats
each job as a neighbour of every other job, even if some of them share a lane and others run in another lane.

Times of a job in other packings tell of it, too, but roughly. Neighbours, and a limit that throttles the whole packing,
change the ratio to the default. So the samples of the job are drawn again, those that agree better with these ratios
more often (importance resampling). The error of such a ratio is taken as 5 %.

Evaluations at a single setting tell nothing about the response of a class. Evaluations on other devices or spaces are
of no use here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from tuner.evaluations import Evaluation
from tuner.objective import POWER
from tuner.physics import grey_box
from tuner.prior import Prior
from tuner.response_process import ResponseProcess, hypotheses
from tuner.space import Role, Setting, Space
from tuner.tuner import one_thread

_PHYSICAL_WEIGHT = 0.2
"""Weight of the physical prior in the mixture."""

_DRAWN = 512
"""Least number of samples of a new packing."""

_TIME = "time"

_COMPANY_SD = 0.05
"""Standard deviation of a ratio (logarithm) in another packing, against the job alone."""
_IN_TURNS = 1.05
"""Largest sum of measured shares that still means that the jobs take turns."""
_SLOWDOWN = math.log(2.0), 0.4
"""Mean and standard deviation of the logarithm of a slowdown that was not measured."""
_SWELL_SD, _OVERLAP_SD, _TRADE_SD = 0.3, 0.08, 0.4
"""Standard deviations of g, of log o, and of log(c / the job's own trade)."""
_IDLE = 0.2, 0.95
"""Range of the ratio: idle watts / least watts that any job draws."""
_LEAST_SAVED, _MOST_TRADE = 0.05, 3.0

Earlier = Sequence[Evaluation] | Tensor
"""One job alone: its evaluations, or sample responses (logarithms of power and time, (n_samples, 2, n_settings))."""


def transferred(
    space: Space,
    times: Sequence[str],
    default: Setting,
    earlier: Sequence[Earlier],
    own: Mapping[str, int] | None = None,
    seed: int = 0,
    shares: Mapping[str, float] | None = None,
    slowdowns: Mapping[str, float] | None = None,
    in_company: Mapping[int, Sequence[tuple[Setting, float]]] | None = None,
) -> Prior:
    """Prior of a packing, from jobs that were tuned alone on the same device and space.

    Args:
        times: Names of the new jobs' times.
        earlier: Evaluations or sample responses of each earlier job. Evaluations observe `power_w` and one time of any
            name and amount of work: only the ratio to the default is used.
        own: Index in `earlier` of the job of the same class, by the name of a new job's time. A job that is not named
            may be like any of them.
        shares: Share of time in which a job works, by the name of its time. None: the jobs take equal turns in one
            lane.
        slowdowns: Ratio at the default setting: time beside the other jobs / time alone, by the name of a job's time.
            Any value is possible for a job that is not named, unless all jobs take turns: then none is slower.
        in_company: Measurements of an earlier job in other packings, by its index in `earlier`: settings, each with the
            ratio: time / time at the default in that packing.

    Raises:
        ValueError: There is no earlier job, or the evaluations of one lack `power_w` or have not exactly one time.
    """
    if not earlier:
        raise ValueError("there is nothing to transfer from")
    with one_thread():
        physical = grey_box(space, times, default, seed)
        known = _responses(space, default, earlier, seed)
        draw = np.random.default_rng(seed)
        for job, ratios in (in_company or {}).items():
            known[job] = _resampled(known[job], space, space.index(default), ratios, draw)
        count = len(known) * math.ceil(_DRAWN / len(known))
        jobs = [_drawn(known, None if own is None else own.get(name), count, draw) for name in times]
        parts = [1.0 / len(times) if shares is None else shares[name] for name in times]
        slower = [None if slowdowns is None else slowdowns.get(name) for name in times]
        samples = _packed(space, space.index(default), jobs, parts, slower, draw)
        seen = Prior.of_samples((POWER, *times), samples, physical.scale_sd.tolist())
        return Prior.mixture([(1.0 - _PHYSICAL_WEIGHT, seen), (_PHYSICAL_WEIGHT, physical)])


def _packed(
    space: Space,
    at: int,
    jobs: Sequence[Tensor],
    shares: Sequence[float],
    slowdowns: Sequence[float | None],
    draw: np.random.Generator,
) -> Tensor:  # (count, 1 + n_jobs, n_settings)
    """Sample responses of a packing, from the responses of each job alone, (count, 2, n_settings)."""
    count, in_turns = len(jobs[0]), sum(shares) <= _IN_TURNS
    slow = [job[:, 1] - job[:, 1, [at]] for job in jobs]
    watts = torch.stack([job[:, 0].exp() for job in jobs])
    least = watts.amin(dim=(0, 2))[:, None]
    idle = _column(draw.uniform(*_IDLE, count)) * least
    active = watts - idle
    levels = [torch.ones_like(each) for each in slow] if in_turns else _levels(slow, slowdowns, draw)
    rates = [share / level for share, level in zip(shares, levels, strict=True)]
    drawn = torch.stack([rate * each for rate, each in zip(rates, active, strict=True)]).sum(dim=0)
    limits = space.column(Role.POWER_LIMIT)
    excess = torch.zeros_like(drawn)
    if not in_turns:
        drawn = drawn * _column(draw.normal(0.0, _OVERLAP_SD, count)).exp()
        if limits is not None:
            excess = (drawn.log() - (torch.from_numpy(limits) - idle).clamp_min(1.0).log()).clamp_min(0.0)
    power = (idle + drawn * (-excess).exp()).log()
    if limits is None:
        power = power - power[:, [at]]
    trades = [_trade(*each, at, draw) for each in zip(slow, active, strict=True)]
    times = [own + level.log() + trade * excess for own, level, trade in zip(slow, levels, trades, strict=True)]
    return torch.stack([power, *(each - each[:, [at]] for each in times)], dim=1)


def _levels(slow: Sequence[Tensor], slowdowns: Sequence[float | None], draw: np.random.Generator) -> list[Tensor]:
    """Slowdown of each job beside the others, at each setting: one (count, n_settings) array for each job."""
    count = len(slow[0])
    swollen = [(_column(draw.normal(0.0, _SWELL_SD, count)) * each).exp() for each in slow]
    found = []
    for place, measured in enumerate(slowdowns):
        slowdown = np.exp(draw.normal(*_SLOWDOWN, count)) if measured is None else np.full(count, measured)
        others = [each for other, each in enumerate(swollen) if other != place]
        cost = torch.stack(others).mean(dim=0) if others else torch.ones_like(slow[place])
        found.append(1.0 + _column(np.maximum(0.0, slowdown - 1.0)) * cost)
    return found


def _trade(slow: Tensor, active: Tensor, at: int, draw: np.random.Generator) -> Tensor:  # (count, 1)
    """Exponent c of a job: growth of log time for each unit that its log active watts fall.

    The exponent is drawn around the job's own slope between the default and the setting that draws least.
    """
    lowest = active.argmin(dim=1, keepdim=True)
    saved = (active[:, [at]].log() - active.gather(1, lowest).log()).clamp_min(_LEAST_SAVED)
    steepness = (slow.gather(1, lowest) / saved).clamp(0.0, _MOST_TRADE)
    return steepness * _column(draw.normal(0.0, _TRADE_SD, len(slow))).exp()


def _column(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values)[:, None]


def _responses(space: Space, default: Setting, earlier: Sequence[Earlier], seed: int) -> list[Tensor]:
    """Sample responses of each earlier job, from its model unless they are given."""
    if all(isinstance(each, Tensor) for each in earlier):
        return [each for each in earlier if isinstance(each, Tensor)]
    alone = grey_box(space, [_TIME], default, seed)
    return [each if isinstance(each, Tensor) else _samples(space, alone, each, seed) for each in earlier]


def _samples(space: Space, alone: Prior, trials: Sequence[Evaluation], seed: int) -> Tensor:
    """Posterior samples of an earlier job, (n_samples, 2, n_settings), all of equal weight."""
    names = {name for trial in trials for name in trial.observed} - {POWER}
    if len(names) != 1 or not any(POWER in trial.observed for trial in trials):
        raise ValueError(f"an earlier job has {POWER} and one time, not {', '.join(sorted(names)) or 'none'}")
    (name,) = names
    named = [
        Evaluation(
            trial.setting,
            {(_TIME if each == name else each): value for each, value in trial.observed.items()},
            trial.status,
        )
        for trial in trials
    ]
    return ResponseProcess(space, alone, hypotheses(), seed).condition(named)


def _resampled(
    samples: Tensor, space: Space, at: int, ratios: Sequence[tuple[Setting, float]], draw: np.random.Generator
) -> Tensor:  # (n_samples, 2, n_settings)
    """Samples of a job, those that agree with its ratios in other packings more often."""
    slow = samples[:, 1] - samples[:, 1, [at]]
    away = torch.stack([slow[:, space.index(setting)] - math.log(ratio) for setting, ratio in ratios])
    weights = torch.softmax(-0.5 * (away / _COMPANY_SD).square().sum(dim=0), dim=0)
    return samples[torch.from_numpy(draw.choice(len(samples), len(samples), p=weights.numpy()))]


def _drawn(known: Sequence[Tensor], own: int | None, count: int, draw: np.random.Generator) -> Tensor:
    """Sample responses of one job of a new packing, (count, 2, n_settings).

    With `own` None, each earlier job gives equally many (give or take one); otherwise only job `own` gives samples.
    """
    which = draw.permutation(np.arange(count) % len(known)) if own is None else np.full(count, own)
    return torch.stack([known[job][int(draw.integers(len(known[job])))] for job in which])
