"""Invented workloads for the tuner, with another form than its own model of a device.

A step is a list of kernels, each bound by arithmetic or by memory, run in waves of blocks, never shorter than a launch,
with an algorithm that a library picks anew for each size; input is made beside it, one sample after the other. The
clock follows the power limit in each of up to three phases, in steps. The response to a size is therefore rough, as in
measured tables, and no smooth curve of the tuner fits it. The workloads were written before the tuner's prior was
improved, as its test, and have not changed since.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner import Knob, Role, Setting, Space

Array = NDArray[np.float64]

_STEPS = np.linspace(0.3, 1.0, 57)
"""Core clocks from which a power limit chooses, relative to the largest."""


@dataclass(frozen=True)
class Workload:
    """One workload on a device of its own.

    Attributes:
        logs: (2, n_settings) logarithms of power (W) and the time of a fixed amount of work.
    """

    space: Space
    default: Setting
    logs: Array

    @property
    def at(self) -> int:
        """Index of the default."""
        return self.space.index(self.default)

    @property
    def joules(self) -> Array:
        """(n_settings,) logarithm of the energy."""
        total: Array = self.logs.sum(axis=0)
        return total

    def feasible(self, most: float) -> NDArray[np.bool_]:
        """(n_settings,) whether time stays within a multiple of the default's."""
        result: NDArray[np.bool_] = self.logs[1] - self.logs[1, self.at] <= np.log(most)
        return result


def limits_and_batches(seed: int) -> tuple[Space, Setting]:
    """Space of 5 to 9 power limits and 4 to 13 batch sizes; the default is the largest limit and a large batch."""
    draw = np.random.default_rng([seed, 1])
    largest = draw.choice([150.0, 250.0, 300.0, 400.0])
    limits = np.round(np.linspace(draw.uniform(0.35, 0.6), 1.0, draw.integers(5, 10)) * largest)
    count = int(draw.integers(4, 14))
    between = np.array([1.0, 1.5]) if draw.random() < 0.5 else np.array([1.0])
    batches = (2.0 ** (draw.integers(1, 5) + np.arange(count))[:, None] * between).ravel()[:count]
    space = Space.product(
        Knob("power_limit", tuple(limits.tolist()), Role.POWER_LIMIT),
        Knob("batch_size", tuple(batches.tolist()), Role.WORK_SIZE),
    )
    batch = batches[draw.integers(count // 2, count)]
    return space, {"power_limit": float(limits[-1]), "batch_size": float(batch)}


def clocks(seed: int) -> tuple[Space, Setting]:
    """Space of 8 to 16 core clocks and 2 or 3 memory clocks; the default is the largest of both."""
    draw = np.random.default_rng([seed, 2])
    core = np.round(np.linspace(draw.uniform(0.4, 0.6), 1.0, draw.integers(8, 17)) * 1500.0)
    memory = [(810.0, 3500.0), (2500.0, 5000.0), (800.0, 5000.0, 7000.0)][draw.integers(3)]
    space = Space.product(
        Knob("core", tuple(core.tolist()), Role.CORE_CLOCK), Knob("memory", memory, Role.MEMORY_CLOCK)
    )
    return space, {"core": float(core[-1]), "memory": memory[-1]}


def workload(space: Space, default: Setting, seed: int, device: int | None = None) -> Workload:
    """Random workload.

    Args:
        device: Number of the device; workloads with equal numbers share one. Default: a device for each.
    """
    draw = np.random.default_rng([seed, 3])
    board = _Board(np.random.default_rng([seed if device is None else device, 4]))
    ones = np.ones(len(space))
    core, memory, batch = (space.column(role) for role in (Role.CORE_CLOCK, Role.MEMORY_CLOCK, Role.WORK_SIZE))
    limit = space.column(Role.POWER_LIMIT)
    core = ones if core is None else core / core.max()
    memory = ones if memory is None else memory / memory.max()
    batch = ones if batch is None else batch / batch[space.index(default)]
    kernels = _Kernels(draw, np.unique(batch))
    most_w = 250.0 if limit is None else float(limit.max())
    rows = [
        kernels.step(board, most_w, f, m, b, most_w * 9.0 if limit is None else float(limit[place]))
        for place, (f, m, b) in enumerate(zip(core, memory, batch, strict=True))
    ]
    return Workload(space, default, np.log(np.array(rows)).T + 0.005 * draw.standard_normal((2, len(space))))


class _Board:
    """Values that all workloads of a device share: its voltage, and its power relative to the largest limit."""

    def __init__(self, draw: np.random.Generator) -> None:
        self._least, self._knee, self._bend = draw.uniform(0.6, 0.85), draw.uniform(0.3, 0.7), draw.uniform(1.0, 2.0)
        self.idle, self.clock = draw.uniform(0.06, 0.2), draw.uniform(0.05, 0.3)
        self.arithmetic, self.memory = draw.uniform(0.4, 1.1), draw.uniform(0.15, 0.5)

    def square_voltage(self, f: Array) -> Array:
        above = np.clip((f - self._knee) / (1.0 - self._knee), 0.0, None) ** self._bend
        square: Array = (self._least + (1.0 - self._least) * above) ** 2
        return square


class _Kernels:
    def __init__(self, draw: np.random.Generator, batches: Array) -> None:
        count = int(draw.integers(4, 30))
        size = np.exp(draw.normal(0.0, 1.2, count))
        balance = draw.normal(draw.normal(0.0, 1.0), 0.8, count)
        self._arithmetic = size * np.minimum(1.0, np.exp(balance)) / size.sum()
        self._traffic = size * np.minimum(1.0, np.exp(-balance)) / size.sum()
        self._weights = self._traffic * np.exp(draw.normal(-3.0, 1.0, count))
        self._blocks = np.exp(draw.normal(np.log(6.0), 1.5, count))
        self._launch = np.exp(draw.normal(np.log(0.06), 1.3)) / count
        self._sample, self._start = np.exp(draw.normal(np.log(0.3), 1.2)), np.exp(draw.normal(np.log(0.03), 1.2))
        self._phase = np.sort(draw.integers(0, draw.integers(1, 4), count))
        self._draws = np.exp(draw.normal(0.0, 0.25, count))
        rough = np.exp(draw.normal(0.0, draw.uniform(0.0, 0.15), (len(batches), 1)))
        efficiency = rough * np.exp(draw.normal(0.0, 0.1, (len(batches), count)))
        self._efficiency = {float(batch): row for batch, row in zip(batches, efficiency, strict=True)}

    def step(self, board: _Board, most_w: float, f: float, m: float, b: float, limit_w: float) -> tuple[float, float]:
        """Power (W), and time of the work of one step at b = 1."""
        busy, joules = 0.0, 0.0
        for phase in np.unique(self._phase):
            took, watts = self._run(board, most_w, m, b, self._phase == phase)
            allowed = f + 1e-9 >= _STEPS
            fits = np.flatnonzero(allowed & (watts <= limit_w))
            place = int(fits[-1]) if len(fits) else 0
            exact = (
                _STEPS[place] if len(fits) and place < np.flatnonzero(allowed)[-1] else f if len(fits) else _STEPS[0]
            )
            seconds, drawn = (float(np.interp(exact, _STEPS, curve)) for curve in (took, watts))
            busy += seconds
            joules += seconds * drawn
        whole = max(busy, self._start + self._sample * b)
        idle_w = (board.idle + 0.5 * board.clock * float(board.square_voltage(np.array(f))) * f) * most_w
        return (joules + (whole - busy) * idle_w) / whole, whole / b

    def _run(self, board: _Board, most_w: float, m: float, b: float, chosen: NDArray[np.bool_]) -> tuple[Array, Array]:
        """(n_steps,) time and power (W) of a phase at every clock."""
        f = _STEPS[:, None]
        waves = np.ceil(b * self._blocks) / self._blocks
        arithmetic = waves * self._arithmetic * self._efficiency[b]
        traffic = b * self._traffic * self._efficiency[b] + self._weights
        each = np.maximum(np.maximum(arithmetic / f, traffic / m), self._launch)[:, chosen]
        took = each.sum(axis=1)
        square = board.square_voltage(_STEPS)
        active = ((b * self._arithmetic / f)[:, chosen] * self._draws[chosen]).sum(axis=1) / took
        moved = (traffic / m)[chosen].sum() / took * m
        watts = board.idle + board.clock * square * _STEPS + board.arithmetic * active * square * _STEPS
        return took, (watts + board.memory * moved) * most_w
