"""Physical model of a GPU's time and power, with random coefficients: it gives sample responses for the prior.

The model for job j at core clock f and memory clock m (1 at their largest), and work size b (1 at the default) is::

    device_j = (g_j + b r_j(b)) ((c_j / f)^p + (d_j / m)^p)^(1/p)  c compute, d memory traffic, p degree of overlap
    step_j   = (h_j^q + (i_j b)^q + device_j^q)^(1/q)              h launches, i input: independent of the clocks
    time_j   = step_j / b                                          for a fixed amount of work
    power    = leak(V) + refresh m + clock f V^2 (1 - gate (1 - busy))
               + sum_j (compute_j V^2 + traffic_j) e_j(b) b r_j(b) / step_j
    busy     = mean_j min(1, device_j / step_j)
    V        = max(floor, 1 - slope (1 - f))                       voltage
    f        = the largest clock up to the set one at which the power keeps the power limit

The work size changes the work of a sample (r) by a smooth drift and a rough part, and its power (e) by a rough part:
libraries pick another algorithm, tiles fill or do not. The change is the same at each clock and power limit. In half of
the workloads r also grows with b: samples of different length are padded to the longest of their batch, which is the
longer the more there are.

A step has phases of different power, and the limit holds in each phase. One part of the time draws less power than the
rest, so the limit slows a job down before the mean power reaches it.

All coefficients are drawn from wide distributions. They cover any GPU and workload, and describe no particular one. The
forms follow Guerreiro et al., "GPGPU Power Modeling for Multi-Domain Voltage-Frequency Scaling", HPCA 2018 (power), and
the roofline with overlap, Williams et al., CACM 2009 (time).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from tuner.objective import POWER
from tuner.prior import Prior
from tuner.space import Role, Setting, Space

SAMPLES = 2000
_PADDING = 0.25
"""Padding of padded workloads: the work of a sample grows by 0 to 40 % or so when the batch doubles."""
_PARTS = 8
"""Number of Gaussians that stand for the samples. More of them separate better whether a limit binds."""
_CLOCKS = np.linspace(0.1, 1.0, 46)
"""Core clocks (1 at the largest) among which a power limit chooses."""

_UNKNOWN_SCALE_SD, _KNOWN_SCALE_SD = 5.0, 0.1

Array = NDArray[np.float64]


def grey_box(space: Space, times: Sequence[str], default: Setting, seed: int = 0, samples: int = SAMPLES) -> Prior:
    """Prior of the physical model for the power and the time of each job.

    Args:
        space: Space of the settings.
        times: Names of the jobs' times. The observables of the prior are the power and these.
        default: Default setting.
        seed: Seed of the samples.
        samples: Number of samples.
    """
    is_absolute = space.column(Role.POWER_LIMIT) is not None
    scale_sd = [_KNOWN_SCALE_SD if is_absolute else _UNKNOWN_SCALE_SD] + [_UNKNOWN_SCALE_SD] * len(times)
    paddings = (0.0,) if space.column(Role.WORK_SIZE) is None else (0.0, _PADDING)
    drawn = [responses(space, len(times), default, seed, samples, padding) for padding in paddings]
    priors = [Prior.of_samples((POWER, *times), torch.from_numpy(each), scale_sd, _PARTS) for each in drawn]
    return priors[0] if len(priors) == 1 else Prior.mixture([(1.0, each) for each in priors])


def responses(space: Space, jobs: int, default: Setting, seed: int, samples: int, padding: float = 0.0) -> Array:
    """Sample responses: logarithms of the power and of each job's time, (samples, 1 + jobs, n_settings).

    Times are ratios to the times at the default. Power is a ratio, too, unless the space has a power limit to compare
    it with: then it is in watts.

    Args:
        space: Space of the settings.
        jobs: Number of jobs.
        default: Default setting.
        seed: Seed of the samples.
        samples: Number of samples.
        padding: Standard deviation of the growth (logarithm) of the work of a sample each time that the work size
            doubles. The growth is never negative.
    """
    draw = np.random.default_rng(seed)
    grid = _Grid(space, default)
    drawn: Array = _responses(grid, jobs, draw, samples, padding)
    at = space.index(default)
    drawn[:, 1:] -= drawn[:, 1:, [at]]
    if grid.limit is None:
        drawn[:, 0] -= drawn[:, 0, [at]]
    return drawn + _other_knobs(space, at, draw, samples, 1 + jobs)


class _Grid:
    """Space in the units of the model: clock / largest clock, work size / work size of the default.

    Attributes:
        clocks: Core clocks in ascending order, with those of the settings.
        clock: Index in `clocks` of the core clock that each setting asks for, (n,).
        limit: Power limit (W) of each setting, (n,); None without such a knob.
        rest: Memory clock and work size, each combination once, (n_rest, 2).
        place: Index in `rest` of each setting, (n,).
    """

    def __init__(self, space: Space, default: Setting) -> None:
        ones = np.ones(len(space))
        core, memory = space.column(Role.CORE_CLOCK), space.column(Role.MEMORY_CLOCK)
        core = core / core.max() if core is not None else ones
        memory = memory / memory.max() if memory is not None else ones
        work = space.column(Role.WORK_SIZE)
        work = work / work[space.index(default)] if work is not None else ones
        self.clocks = np.unique(np.concatenate([_CLOCKS, core]))
        self.clock = np.searchsorted(self.clocks, core)
        self.limit = space.column(Role.POWER_LIMIT)
        self.rest, self.place = np.unique(np.stack([memory, work], axis=1), axis=0, return_inverse=True)


def _responses(grid: _Grid, jobs: int, draw: np.random.Generator, samples: int, padding: float) -> Array:
    """Logarithms of power and times, (samples, 1 + jobs, n_settings)."""

    def uniform(low: float, high: float) -> Array:
        return draw.uniform(low, high, (samples, 1, 1))

    def lognormal(median: float, sigma: float) -> Array:
        return np.exp(draw.normal(np.log(median), sigma, (samples, 1, 1)))

    f = grid.clocks[None, None, :]  # (1, 1, n_clocks)
    m, b = grid.rest[:, 0][None, :, None], grid.rest[:, 1][None, :, None]  # (1, n_rest, 1)
    # The voltage falls with the clock, by a tenth to nearly a half, and is constant below.
    voltage = np.maximum(uniform(0.55, 0.9), 1.0 - uniform(0.3, 0.9) * (1.0 - f))
    # Assumed power of a busy board: about a tenth leaks, a tenth refreshes memory, a fifth drives clocks, a fifth moves
    # data, and the largest part is arithmetic.
    leak, clock, refresh, gate = uniform(0.05, 0.25), lognormal(0.25, 0.5), lognormal(0.1, 0.6), uniform(0.0, 1.0)
    power = leak * (0.5 + 0.5 * voltage) + refresh * m
    saturated = leak + clock + refresh
    busy = np.zeros_like(power)
    times = []
    for _ in range(jobs):
        compute, traffic = draw.beta(0.5, 0.5, (samples, 1, 1)), draw.beta(0.4, 0.6, (samples, 1, 1))
        most = np.maximum(compute, traffic)
        compute, traffic = compute / most, traffic / most
        overlap, hiding = np.exp(uniform(0.0, np.log(10.0))), np.exp(uniform(0.0, np.log(8.0)))
        alone = ((compute / f) ** overlap + (traffic / m) ** overlap) ** (1.0 / overlap)
        drift = _drift(grid.rest[:, 1], padding, draw, samples) + _rough(grid.rest[:, 1], 0.05, draw, samples)
        drift = np.exp(drift)
        intensity = np.exp(_rough(grid.rest[:, 1], 0.025, draw, samples))
        device = (lognormal(0.06, 1.2) + b * drift) * alone / (compute**overlap + traffic**overlap) ** (1.0 / overlap)
        launches, sample = lognormal(0.08, 1.6), lognormal(0.2, 1.5)
        step = (launches**hiding + (sample * b) ** hiding + device**hiding) ** (1.0 / hiding)
        times.append(step / b)
        rate = intensity * b * drift / step / jobs
        arithmetic, transfer = lognormal(0.6, 0.5) * compute, lognormal(0.25, 0.6) * traffic
        power = power + rate * (arithmetic * voltage**2 + transfer)
        saturated = saturated + (arithmetic + transfer) / jobs
        busy = busy + np.minimum(1.0, device / step) / jobs
    power = power + clock * f * voltage**2 * (1.0 - gate * (1.0 - busy))
    if grid.limit is None:
        shape = (samples, len(grid.rest), len(grid.clocks))
        picked = [np.broadcast_to(each, shape)[:, grid.place, grid.clock] for each in (power, *times)]
        logs: Array = np.log(np.stack(picked, axis=1))
        return logs
    # The largest power limit of a board is about its power when it is busy all the time.
    watts = power / saturated * lognormal(1.0, 0.35) * grid.limit.max()
    share, milder = draw.uniform(0.0, 0.6, (samples, 1)), draw.uniform(0.3, 1.0, (samples, 1, 1))
    busy_phase, mild_phase = _under_limit(grid, watts, times), _under_limit(grid, milder * watts, times)
    took = [(1.0 - share) * one + share * other for one, other in zip(busy_phase[1:], mild_phase[1:], strict=True)]
    # A phase that slows down takes a larger part of the time. The mean power does not depend on which job slows down.
    mild_s = share * sum(mild_phase[1:]) / sum(took)
    power = (1.0 - mild_s) * busy_phase[0] + mild_s * mild_phase[0]
    limited: Array = np.log(np.stack([power, *took], axis=1))
    return limited


def _under_limit(grid: _Grid, watts: Array, times: list[Array]) -> list[Array]:
    """Power and times at the largest clocks that the power limits allow."""
    assert grid.limit is not None
    found = [np.empty((len(watts), len(grid.place))) for _ in range(1 + len(times))]
    for setting, (place, top) in enumerate(zip(grid.place, grid.clock, strict=True)):
        curve, limit = watts[:, place, : top + 1], grid.limit[setting]
        # Power rises with the clock, so the clocks that fit come first.
        fits = np.clip((curve <= limit).sum(axis=1), 1, top + 1)
        low, high = fits - 1, np.minimum(fits, top)
        rows = np.arange(len(watts))
        below, above = curve[rows, low], curve[rows, high]
        part = np.where(above > below, np.clip((limit - below) / np.maximum(above - below, 1e-12), 0.0, 1.0), 0.0)
        for out, values in zip(found, (watts, *times), strict=True):
            curve_of = np.broadcast_to(values, watts.shape)[:, place, :]
            out[:, setting] = (1.0 - part) * curve_of[rows, low] + part * curve_of[rows, high]
    return found


def _drift(work: Array, padding: float, draw: np.random.Generator, samples: int) -> Array:  # (samples, n_rest, 1)
    """Logarithm of the device's work for one unit against the default's size: smooth, some percent a doubling."""
    points, where = np.unique(np.log2(work), return_inverse=True)
    walk = np.exp(-np.abs(points[:, None] - points[None]) / 6.0)
    smooth = draw.standard_normal((samples, len(points))) @ np.linalg.cholesky(walk + 1e-9 * np.eye(len(points))).T
    slope = draw.normal(0.0, 0.05, (samples, 1))
    if padding > 0.0:
        slope = slope + np.abs(draw.normal(0.0, padding, (samples, 1)))
    drift = 0.12 * smooth + slope * points
    zero = int(np.argmin(np.abs(points)))
    moved: Array = (drift - drift[:, [zero]])[:, where, None]
    return moved


def _rough(work: Array, size: float, draw: np.random.Generator, samples: int) -> Array:  # (samples, n_rest, 1)
    """Independent effect (logarithm) of each size against the default's size: larger for some workloads than others."""
    points, where = np.unique(np.log2(work), return_inverse=True)
    each = np.exp(draw.normal(np.log(size), 0.7, (samples, 1))) * draw.standard_normal((samples, len(points)))
    zero = int(np.argmin(np.abs(points)))
    rough: Array = (each - each[:, [zero]])[:, where, None]
    return rough


def _other_knobs(space: Space, default: int, draw: np.random.Generator, samples: int, observables: int) -> Array:
    """Effect (logarithm) of knobs of unknown role: a slope and a bend of any sign, and an effect of each special value.

    All of them are usually small.
    """
    effect = np.zeros((samples, observables, len(space)))
    for place, knob in enumerate(space.knobs):
        if knob.role is not Role.OTHER:
            continue
        logs = np.log(space.numbers[:, place])
        z = (logs - logs.min()) / max(float(np.ptp(logs)), 1e-12)
        shape = (samples, observables, 1)
        size = np.exp(draw.normal(np.log(0.08), 1.0, shape))
        curve = (
            draw.standard_normal(shape) * z + 2.0 * draw.standard_normal(shape) * (z - draw.uniform(0, 1, shape)) ** 2
        )
        effect += size * curve
        for name in knob.special:
            chosen = np.array([setting[knob.name] == name for setting in space.settings])
            effect += size * draw.standard_normal(shape) * chosen
    relative: Array = effect - effect[:, :, [default]]
    return relative
