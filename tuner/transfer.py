"""What earlier tuning on a device says of a new packing there: their trials become a prior.

Of an earlier job only some settings were tried, so what transfers is the belief in all its settings given its trials:
samples of its own model. Pooled over the earlier jobs their moments are a prior like the physical model's, and are
mixed with it, so that a job that is like none of them is not held back.

::

    trials of A alone ──► samples of A ─┐
    trials of B alone ──► samples of B ─┼──► samples of the new packing ──► its moments ─┐
    trials of C alone ──► samples of C ─┘                                                ├──► prior
                                              physical model with random coefficients ───┘

Of job j alone a sample tells the watts P_j and the time r_j, over its own at the default, at each setting. Together::

    time_j  = r_j level_j e^(c_j excess)                    over its own at the default
    level_j = 1 + (slowdown_j - 1) mean_others r_other^g    what neighbours cost, at the default and elsewhere
    power   = idle + o sum_j share_j (P_j - idle) / level_j
    excess  = log((power - idle) / (limit - idle))          where the power limit holds back all of them together

`share_j` is the part of the time in which it is at work: turns in one lane add up to 1, jobs beside each other to more.
The slowdown at the default is measured with the first trial. What no trial of a job alone tells is drawn: idle watts;
g, whether neighbours cost more or less where they are slower themselves; o, how watts overlap; and, about its own trade
of time for watts between the default and the setting that draws least, c_j. In turns all of that falls away. Each job
is taken for a neighbour of each other one, also where some of them share a lane and others run beside it.

A job whose class was tried at one setting alone has told nothing of its response. Trials of other devices or spaces are
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
from tuner.response_model import ResponseModel, hypotheses
from tuner.space import Role, Setting, Space
from tuner.tuner import one_thread

_PHYSICAL_WEIGHT = 0.2
"""Of the physical prior beside what was seen."""

_DRAWN = 512
"""Samples of a new packing, at least."""

_TIME = "time"

_IN_TURNS = 1.05
"""Shares that add up to no more, measured as they are, are of jobs that take turns."""
_SLOWDOWN = math.log(2.0), 0.4
"""Beside others, where it was not measured: mean and sd of the logarithm."""
_SWELL_SD, _OVERLAP_SD, _TRADE_SD = 0.3, 0.08, 0.4
"""Of g, and of the logarithms of o and of c over the job's own trade."""
_IDLE = 0.2, 0.95
"""Idle watts over the least that any job draws."""
_LEAST_SAVED, _MOST_TRADE = 0.05, 3.0

Earlier = Sequence[Evaluation] | Tensor
"""One job alone: its trials, or sample responses: logarithms of power and time, (n_samples, 2, n_settings)."""


def transferred(
    space: Space,
    times: Sequence[str],
    default: Setting,
    earlier: Sequence[Earlier],
    own: Mapping[str, int] | None = None,
    seed: int = 0,
    shares: Mapping[str, float] | None = None,
    slowdowns: Mapping[str, float] | None = None,
) -> Prior:
    """The prior of a packing, from jobs that were tuned alone on the same device and space.

    Args:
        times: Names of the new jobs' times.
        earlier: Trials of each earlier job. They observe `power_w` and one time, of whatever name and
            amount of work: only the ratio to the default is used.
        own: Place in `earlier` of the same class of job, by the name of a time. A time that is not named may be like
            any of them.
        shares: Part of the time in which a job is at work, by the name of its time. By default the jobs take equal
            turns in one lane.
        slowdowns: Time at the default setting beside the other jobs over that alone, by the name of a time. Any value
            is possible for a time that is not named, unless all jobs take turns: then none is slower.

    Raises:
        ValueError: There is no earlier job, or one was not observed as above.
    """
    if not earlier:
        raise ValueError("there is nothing to transfer from")
    with one_thread():
        physical = grey_box(space, times, default, seed)
        known = _responses(space, default, earlier, seed)
        draw = np.random.default_rng(seed)
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
    """Sample responses of a packing, of those of its jobs alone, each (count, 2, n_settings)."""
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
    """By how much each job is slower beside the others than alone, at each setting: (count, n_settings)."""
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
    """By how much a job's time grows as its watts beyond idle fall, both as logarithms: about as from the default to
    where it draws least."""
    lowest = active.argmin(dim=1, keepdim=True)
    saved = (active[:, [at]].log() - active.gather(1, lowest).log()).clamp_min(_LEAST_SAVED)
    steepness = (slow.gather(1, lowest) / saved).clamp(0.0, _MOST_TRADE)
    return steepness * _column(draw.normal(0.0, _TRADE_SD, len(slow))).exp()


def _column(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values)[:, None]


def _responses(space: Space, default: Setting, earlier: Sequence[Earlier], seed: int) -> list[Tensor]:
    """Sample responses of each earlier job."""
    if all(isinstance(each, Tensor) for each in earlier):
        return [each for each in earlier if isinstance(each, Tensor)]
    alone = grey_box(space, [_TIME], default, seed)
    return [each if isinstance(each, Tensor) else _samples(space, alone, each, seed) for each in earlier]


def _samples(space: Space, alone: Prior, trials: Sequence[Evaluation], seed: int) -> Tensor:
    """What is believed of an earlier job, (n_samples, 2, n_settings), all of equal weight."""
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
    logs, weights = ResponseModel(space, alone, hypotheses(), seed).condition(named)
    return logs[weights > 0.0]


def _drawn(known: Sequence[Tensor], own: int | None, count: int, draw: np.random.Generator) -> Tensor:
    """Sample responses of one job of a new packing, (count, 2, n_settings): of each earlier job equally many."""
    which = draw.permutation(np.arange(count) % len(known)) if own is None else np.full(count, own)
    return torch.stack([known[job][int(draw.integers(len(known[job])))] for job in which])
