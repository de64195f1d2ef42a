"""Shockwave: integer program for the number of rounds that each job gets of the next rounds."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_matrix

from ecoshare.base.plural import counted
from ecoshare.core.commands import AskPlanner

_BASES = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
_LOGS = np.log(np.array([1e-6, 0.2, 0.4, 0.6, 0.8, 1.0]))
"""Points between which the logarithm of progress is linear, as in the authors' code. It is concave: no binaries."""

_GAP, _NODES = 1e-3, 20_000
"""Limits at which the solver stops: relative gap and nodes. Without a time limit, equal questions get equal answers."""

_UNIT_S = 100.0
"""Unit of time (s) of the program, so that its numbers are neither large nor small."""


def rounds(plan: AskPlanner) -> dict[str, float]:
    """Part of the next rounds that each job gets.

    The program maximises sum_i w_i pwlog(p_i) / (N T) - k max_i (left_i - runtime_i) over whole rounds n_i <= T, with
    runtime_i = (p_i - done_i) whole_i <= round n_i, p_i <= 1 and sum_i g_i n_i <= devices T. N is the number of jobs, T
    the option `window` (rounds), k the option `spread`, p_i the progress and g_i the devices of job i.

    Source: Zheng et al., "Shockwave", NSDI 2023, section 6.1, with one integer for each job instead of one binary for
    each job and round. Jobs of 1, 2 and 4 devices can be laid out that way.

    Raises:
        RuntimeError: The solver found no solution.
    """
    options = dict(plan.options)
    window, round_s, spread = options["window"], options["round"], options["spread"]
    count, segments = len(plan.jobs), len(_BASES) - 1
    weight = np.array([job.weight for job in plan.jobs])
    whole = np.maximum([job.whole_s for job in plan.jobs], 1e-3) / _UNIT_S
    done = np.array([job.progress for job in plan.jobs])
    gpus = np.array([float(job.gpus) for job in plan.jobs])
    slope = np.diff(_LOGS) / np.diff(_BASES)
    width = np.maximum(0.0, _BASES[1:] - np.maximum(done[:, None], _BASES[:-1]))  # (n, segments) progress ahead
    # Variables: (n,) rounds, (n, segments) progress in each segment, and the largest time left of any job.
    size = count * (1 + segments) + 1
    scale = 1.0 / max(1.0, weight.max() / 1e4)
    cost = np.concatenate(
        [np.full(count, 1e-9), -(weight[:, None] * slope).ravel() * scale / (count * window), [spread * scale]]
    )
    place = count + np.arange(count * segments).reshape(count, segments)
    each, of = np.repeat(np.arange(count), segments), place.ravel()
    runtime = np.repeat(whole, segments)
    rows = np.concatenate([each, np.arange(count), count + each, count + np.arange(count), np.full(count, 2 * count)])
    columns = np.concatenate([of, np.arange(count), of, np.full(count, size - 1), np.arange(count)])
    values = np.concatenate([runtime, np.full(count, -round_s / _UNIT_S), runtime, np.full(count, 1.0 / _UNIT_S), gpus])
    left = np.array([job.needs_s for job in plan.jobs]) / _UNIT_S
    low = np.concatenate([np.full(count, -np.inf), left, [-np.inf]])
    high = np.concatenate([np.zeros(count), np.full(count, np.inf), [plan.devices * window]])
    found = milp(
        cost,
        constraints=LinearConstraint(
            coo_matrix((values, (rows, columns)), shape=(2 * count + 1, size)).tocsr(), low, high
        ),
        bounds=Bounds(np.zeros(size), np.concatenate([np.full(count, window), width.ravel(), [np.inf]])),
        integrality=np.concatenate([np.ones(count), np.zeros(size - count)]),
        options={"mip_rel_gap": _GAP, "node_limit": _NODES},
    )
    if found.x is None:  # there is always a solution: no job runs
        raise RuntimeError(f"the program of {counted(count, 'job')} was not solved: {found.message}")
    return {job.name: min(1.0, math.floor(n + 0.5) / window) for job, n in zip(plan.jobs, found.x[:count], strict=True)}
