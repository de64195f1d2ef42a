"""The optimizer through its public interface."""

from __future__ import annotations

import doctest
import math
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import pytest
import torch

import tuner.tuner
from tuner import ConstrainedTuner, EvaluationStatus, Knob, Limit, Role, Setting, Space, energy
from tuner.physics import responses

CORE = Knob("core", tuple(float(mhz) for mhz in range(600, 1500, 60)), Role.CORE_CLOCK)
MEMORY = Knob("memory", (800.0, 3500.0), Role.MEMORY_CLOCK)
SPACE = Space.product(CORE, MEMORY)
DEFAULT = {"core": 1440.0, "memory": 3500.0}


def make(seed: int = 0, space: Space = SPACE, **options: Any) -> ConstrainedTuner:
    return ConstrainedTuner(space, energy({"time_s": 200.0}), [Limit("time_s", 1.1)], DEFAULT, seed=seed, **options)


class Device:
    """Invented workload: a response of the physical model, with noise."""

    def __init__(self, seed: int, noise: float = 0.02) -> None:
        self._logs = responses(SPACE, 1, DEFAULT, 1_000_000 + seed, 1)[0]
        self._draw, self._noise = np.random.default_rng(seed), noise
        joules, slow = self._logs.sum(axis=0), self._logs[1]
        self.feasible = slow <= math.log(1.1)
        self.good = self.feasible & (joules <= joules[self.feasible].min() + math.log(1.05))

    def measure(self, setting: Setting) -> dict[str, float]:
        power, time = self._logs[:, SPACE.index(setting)] + self._noise * self._draw.standard_normal(2)
        return {"power_w": 200.0 * math.exp(power), "time_s": 0.1 * math.exp(time)}


def search(device: Device, tuned: ConstrainedTuner, budget: int = 15) -> tuple[int, int]:
    """Number of evaluations until a setting is within 5 % of the feasible optimum, and of violations until then."""
    violations = 0
    for count in range(1, budget + 1):
        setting = tuned.ask()
        place = SPACE.index(setting)
        violations += not device.feasible[place]
        if device.good[place]:
            return count, violations
        tuned.tell(setting, device.measure(setting))
    return budget + 1, violations


def test_the_first_trial_is_the_default() -> None:
    tuned = make()
    assert tuned.ask() == DEFAULT
    tuned.tell(DEFAULT, {"power_w": 200.0, "time_s": 0.1}, EvaluationStatus.CONTAMINATED)
    assert tuned.ask() == DEFAULT, "everything is relative to it"
    tuned.tell(DEFAULT, {"power_w": 200.0, "time_s": 0.1})
    assert tuned.ask() != DEFAULT
    best = tuned.best()
    assert best is not None and best.setting == DEFAULT and best.objective == pytest.approx(1.0, rel=0.02)


@pytest.mark.slow
def test_equal_seeds_and_trials_give_equal_answers() -> None:
    asked = []
    for _ in range(2):
        device, tuned = Device(5), make(seed=3)
        settings = []
        for _ in range(6):
            settings.append(tuned.ask())
            tuned.tell(settings[-1], device.measure(settings[-1]))
        asked.append(settings)
    assert asked[0] == asked[1]


@pytest.mark.nightly
def test_made_up_workloads_are_tuned_in_a_few_trials() -> None:
    """Workloads have the physics of the prior, so this shows that the search works, not that the physics is right."""
    found = [search(Device(seed), make(seed)) for seed in range(40)]
    assert median(count for count, _ in found) <= 4
    assert fmean(violations for _, violations in found) <= 1.2
    plain = [search(Device(seed), make(seed, plain=True)) for seed in range(40)]
    assert fmean(count for count, _ in found) < fmean(count for count, _ in plain)


@pytest.mark.nightly
def test_the_best_keeps_the_limits() -> None:
    for seed in range(10):
        device, tuned = Device(seed), make(seed)
        for _ in range(8):
            setting = tuned.ask()
            tuned.tell(setting, device.measure(setting))
        best = tuned.best()
        assert best is not None
        slow = device._logs[1, SPACE.index(best.setting)]
        assert slow <= math.log(1.1) + 0.04, "more than the noise over the limit"


@pytest.mark.slow
def test_a_cautious_search_tries_the_setting_that_most_likely_keeps_the_limits() -> None:
    bold = sure = 0
    for seed in range(6):
        device, tuned = Device(seed), make(seed)
        tuned.tell(DEFAULT, device.measure(DEFAULT))
        bold += device.feasible[SPACE.index(tuned.ask())]
        sure += device.feasible[SPACE.index(tuned.ask(0.95))]
        tried = [tuned.ask(1.1)]  # nothing is as sure as that
        assert tried[0] != DEFAULT and device.feasible[SPACE.index(tried[0])]
    assert sure == 6 >= bold


def test_what_failed_is_not_asked_again_and_nothing_left_is_said() -> None:
    small = Space.product(Knob("core", (600.0, 1440.0), Role.CORE_CLOCK))
    tuned = ConstrainedTuner(small, energy({"time_s": 200.0}), [Limit("time_s", 1.1)], {"core": 1440.0})
    tuned.tell({"core": 1440.0}, {"power_w": 200.0, "time_s": 0.1})
    tuned.tell({"core": 600.0}, {}, EvaluationStatus.FAILED)
    assert tuned.ask() == {"core": 1440.0}
    tuned.tell({"core": 1440.0}, {}, EvaluationStatus.FAILED)
    with pytest.raises(RuntimeError, match="every setting has failed"):
        tuned.ask()


def test_nothing_feasible_is_an_answer() -> None:
    tuned = ConstrainedTuner(SPACE, energy({"time_s": 200.0}), [Limit("time_s", 0.5)], DEFAULT)
    tuned.tell(DEFAULT, {"power_w": 200.0, "time_s": 0.1})
    assert tuned.best() is None


@pytest.mark.slow
def test_trials_are_saved_and_loaded(tmp_path: Path) -> None:
    device, tuned = Device(1), make()
    for _ in range(4):
        setting = tuned.ask()
        tuned.tell(setting, device.measure(setting))
    tuned.save(tmp_path / "trials.json")
    other = make()
    other.load(tmp_path / "trials.json")
    assert other.trials == tuned.trials and other.ask() == tuned.ask() and other.best() == tuned.best()
    elsewhere = ConstrainedTuner(Space.product(CORE), energy({"time_s": 1.0}), [Limit("time_s", 1.1)], {"core": 1440.0})
    with pytest.raises(ValueError, match="no trials of this space"):
        elsewhere.load(tmp_path / "trials.json")


@pytest.mark.parametrize(
    ("setting", "observed", "why"),
    [
        ({"core": 1.0, "memory": 800.0}, {"power_w": 1.0}, "not in the space"),
        (DEFAULT, {"power_w": 0.0}, "positive numbers"),
        (DEFAULT, {"power_w": math.nan}, "positive numbers"),
    ],
)
def test_nonsense_is_refused(setting: Setting, observed: dict[str, float], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        make().tell(setting, observed)


def test_the_number_of_threads_is_as_it_was() -> None:
    before = torch.get_num_threads()
    make().tell(DEFAULT, {"power_w": 200.0, "time_s": 0.1})
    assert torch.get_num_threads() == before


def test_the_example_in_the_docstring_holds() -> None:
    assert doctest.testmod(tuner.tuner).failed == 0
