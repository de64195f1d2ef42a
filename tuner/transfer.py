"""What earlier tuning on a device says of a new packing there: their trials become a prior.

Of an earlier job only some settings were tried, so what transfers is the belief in all its settings given its trials:
samples of its own model. Pooled over the earlier jobs their moments are a prior like the physical model's, and are
mixed with it, so that a job that is like none of them is not held back.

::

    trials of A alone ──► samples of A ─┐
    trials of B alone ──► samples of B ─┼──► samples of the new packing ──► its moments ─┐
    trials of C alone ──► samples of C ─┘                                                ├──► prior
                                              physical model with random coefficients ───┘

What it cannot do: jobs that run side by side hurt each other, and no trial of a job alone tells how. A job whose class
was tried at one setting alone has told nothing of its response. Trials of other devices or spaces are of no use here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from tuner.model import ResponseModel, hypotheses
from tuner.objective import POWER
from tuner.physics import grey_box
from tuner.prior import Prior
from tuner.space import Role, Setting, Space
from tuner.trials import Trial
from tuner.tuner import one_thread

_PHYSICAL_WEIGHT = 0.2
"""Of the physical prior beside what was seen."""

_DRAWN = 512
"""Samples of a new packing, at least."""

_TIME = "time"

Earlier = Sequence[Trial] | Tensor
"""One job alone: its trials, or sample responses: logarithms of power and time, (n_samples, 2, n_settings)."""


def transferred(
    space: Space,
    times: Sequence[str],
    default: Setting,
    earlier: Sequence[Earlier],
    own: Mapping[str, int] | None = None,
    seed: int = 0,
) -> Prior:
    """The prior of a packing, from jobs that were tuned alone on the same device and space.

    The jobs of a packing take equal turns in one lane, so that its power is the mean of theirs.

    Args:
        times: Names of the new jobs' times.
        earlier: What is known of each earlier job. Its trials observe `power_w` and one time, of whatever name and
            amount of work: only the ratio to the default is used.
        own: By the name of a time, the place in `earlier` of the same class of job. A time that is not named may be
            like any of them.

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
        at = space.index(default)
        watts, ratios = torch.zeros(count, len(space), dtype=torch.double), []
        for name in times:
            job = _drawn(known, None if own is None else own.get(name), count, draw)
            watts += job[:, 0].exp() / len(times)
            ratios.append(job[:, 1] - job[:, 1, [at]])
        power = watts.log()
        if space.column(Role.POWER_LIMIT) is None:
            power = power - power[:, [at]]
        samples = torch.stack([power, *ratios], dim=1)
        seen = Prior.of_samples((POWER, *times), samples, physical.scale_sd.tolist())
        return Prior.mixture([(1.0 - _PHYSICAL_WEIGHT, seen), (_PHYSICAL_WEIGHT, physical)])


def _responses(space: Space, default: Setting, earlier: Sequence[Earlier], seed: int) -> list[Tensor]:
    """Sample responses of each earlier job."""
    if all(isinstance(each, Tensor) for each in earlier):
        return [each for each in earlier if isinstance(each, Tensor)]
    alone = grey_box(space, [_TIME], default, seed)
    return [each if isinstance(each, Tensor) else _samples(space, alone, each, seed) for each in earlier]


def _samples(space: Space, alone: Prior, trials: Sequence[Trial], seed: int) -> Tensor:
    """What is believed of an earlier job, (n_samples, 2, n_settings), all of equal weight."""
    names = {name for trial in trials for name in trial.observed} - {POWER}
    if len(names) != 1 or not any(POWER in trial.observed for trial in trials):
        raise ValueError(f"an earlier job has {POWER} and one time, not {', '.join(sorted(names)) or 'none'}")
    (name,) = names
    named = [
        Trial(
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
