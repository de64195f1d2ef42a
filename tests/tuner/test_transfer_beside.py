"""Transfer from jobs alone to the same jobs beside each other, against the formula of an invented device."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from tuner import ConstrainedTuner, Knob, Limit, Prior, Role, Space, energy
from tuner.transfer import transferred

Array = NDArray[np.float64]

SPACE = Space.product(
    Knob("clock", (600.0, 750.0, 900.0, 1050.0, 1200.0, 1350.0, 1500.0), Role.CORE_CLOCK),
    Knob("limit", (125.0, 150.0, 175.0, 200.0, 225.0, 250.0), Role.POWER_LIMIT),
)
DEFAULT = {"clock": 1500.0, "limit": 250.0}
AT = SPACE.index(DEFAULT)
IDLE_W = 30.0
COMPUTES, WAITS = (0.8, 110.0), (0.1, 90.0)
"""Part of the time that the clock changes, and power (W) beyond idle at the default, of each job."""
SLOWDOWNS = {"a": 1.25, "b": 1.25}
BESIDE = {"a": 1.0, "b": 1.0}

Kind = tuple[float, float]


def together(kinds: Sequence[Kind], slowdowns: Sequence[float]) -> Array:
    """(1 + n_jobs, n_settings) logarithms of power and times over those alone at the default.

    The clock comes down until the power of all jobs keeps the limit.
    """
    rows = []
    for asked_mhz, limit_w in SPACE.numbers:
        part = asked_mhz / 1500.0
        while True:
            times = [share / part + 1.0 - share for share, _ in kinds]
            drawn = [watts * part**2.0 for _, watts in kinds]
            power_w = IDLE_W + sum(each / slower for each, slower in zip(drawn, slowdowns, strict=True))
            if power_w <= limit_w:
                break
            part -= 0.0005
        rows.append([power_w, *(each * slower for each, slower in zip(times, slowdowns, strict=True))])
    return np.log(np.array(rows)).T


def alone(kind: Kind) -> Tensor:
    """Known response of a job alone, at every setting."""
    return torch.from_numpy(together([kind], [1.0]))[None]


def prior_of(kinds: Sequence[Kind] = (COMPUTES, WAITS), slowdowns: dict[str, float] | None = SLOWDOWNS) -> Prior:
    known = [alone(kind) for kind in kinds]
    return transferred(SPACE, ["a", "b"], DEFAULT, known, {"a": 0, "b": 1}, shares=BESIDE, slowdowns=slowdowns)


def place(clock: float, limit: float) -> int:
    return SPACE.index({"clock": clock, "limit": limit})


def test_each_jobs_time_responds_as_it_does_alone() -> None:
    truth, mean = together([COMPUTES, WAITS], [1.25, 1.25]), prior_of().parts[0].mean
    for clock in (1350.0, 1200.0, 1050.0):
        at = place(clock, 250.0)
        for row in (1, 2):
            assert float(mean[row, at]) == pytest.approx(truth[row, at] - truth[row, AT], abs=0.02)


def test_watts_beyond_idle_add_up_as_far_as_each_job_gets_on() -> None:
    mean = prior_of().parts[0].mean[0].exp()
    for clock in (1500.0, 1200.0, 900.0):
        truth_w = math.exp(together([COMPUTES, WAITS], [1.25, 1.25])[0, place(clock, 250.0)])
        assert float(mean[place(clock, 250.0)]) == pytest.approx(truth_w, rel=0.08)
    much_slower = prior_of(slowdowns={"a": 2.5, "b": 2.5}).parts[0].mean[0].exp()
    assert float(much_slower[AT]) < 0.75 * float(mean[AT]), "a job that is held up more draws less"


def test_a_limit_that_none_feels_alone_is_felt_by_both_together() -> None:
    at, truth = place(1500.0, 150.0), together([COMPUTES, WAITS], [1.25, 1.25])
    assert all(float(alone(kind)[0, 1, at]) == 0.0 for kind in (COMPUTES, WAITS))
    mean = prior_of().parts[0].mean
    assert truth[1, at] - truth[1, AT] > 0.1
    assert float(mean[1, at]) == pytest.approx(truth[1, at] - truth[1, AT], abs=0.1)
    known, own = [alone(COMPUTES), alone(WAITS)], {"a": 0, "b": 1}
    in_turns = transferred(SPACE, ["a", "b"], DEFAULT, known, own).parts[0].mean
    assert float(in_turns[1, at]) == pytest.approx(0.0, abs=1e-9), "in turns no job shares the device"


@pytest.mark.nightly
def test_less_is_sure_where_the_slowdown_was_not_measured() -> None:
    def spread(prior: Prior) -> float:
        return float(prior.parts[0].root[:, 0, AT].square().sum().sqrt())

    assert spread(prior_of(slowdowns=None)) > 1.5 * spread(prior_of())
    assert spread(prior_of(slowdowns={"a": 1.25})) > spread(prior_of())


@pytest.mark.nightly
def test_what_a_slower_neighbour_costs_is_not_known() -> None:
    """If one job waits for the other, the clock affects both in an unknown way; alone all is known here."""

    def spread(slowdown: float) -> float:
        part = prior_of(slowdowns={"a": 1.25, "b": slowdown}).parts[0]
        return float(part.root[:, 2, place(750.0, 250.0)].square().sum().sqrt())

    assert spread(1.0) < 0.003
    assert 0.03 < spread(1.5) < spread(3.0) < 0.3


def first_tries(prior: Prior | None, truth: Array, count: int, kinds: Sequence[Kind]) -> list[int]:
    """Indices of the settings that are tried after the default, without noise."""
    alone_w = {name: IDLE_W + watts for name, (_, watts) in zip("ab", kinds, strict=True)}
    limits = [Limit("a", 1.1), Limit("b", 1.1)]
    tuned, tried = ConstrainedTuner(SPACE, energy(alone_w), limits, DEFAULT, prior), []
    for _ in range(1 + count):
        tried.append(SPACE.index(tuned.ask()))
        power_w, a_s, b_s = np.exp(truth[:, tried[-1]])
        tuned.tell(SPACE.settings[tried[-1]], {"power_w": power_w, "a": a_s, "b": b_s})
    return tried[1:]


def good(truth: Array, kinds: Sequence[Kind]) -> set[int]:
    """Indices within 5 % of the least energy under the limit."""
    ratios = truth[1:] - truth[1:, [AT]]
    work = np.array([[IDLE_W + watts] for _, watts in kinds]) / np.exp(ratios)
    cost, kept = np.exp(truth[0]) / work.sum(axis=0), (ratios <= math.log(1.1)).all(axis=0)
    return set(np.flatnonzero(kept & (cost <= 1.05 * cost[kept].min())).tolist())


@pytest.mark.parametrize("kinds", [(COMPUTES, WAITS), ((0.3, 110.0), (0.1, 90.0))])
def test_the_first_try_of_known_jobs_is_as_good_as_the_best(kinds: tuple[Kind, Kind]) -> None:
    truth = together(kinds, [1.25, 1.25])
    wanted = good(truth, kinds)
    assert AT not in wanted and len(wanted) < 10, "it could be missed"
    assert first_tries(prior_of(kinds), truth, 1, kinds)[0] in wanted


def test_without_what_is_known_the_first_try_is_more_careful() -> None:
    kinds = ((0.3, 110.0), (0.1, 90.0))
    truth = together(kinds, [1.25, 1.25])
    assert first_tries(None, truth, 1, kinds)[0] not in good(truth, kinds)


@pytest.mark.slow
def test_evidence_overrules_what_was_believed_of_the_jobs() -> None:
    """Jobs that compute, mistaken for jobs that no clock slows down."""
    kinds = (COMPUTES, (0.8, 90.0))
    truth, misled = together(kinds, [1.25, 1.25]), prior_of([(0.02, 110.0), (0.02, 90.0)])
    tried = first_tries(misled, truth, 5, kinds)
    assert tried[0] not in good(truth, kinds), "it misleads"
    assert good(truth, kinds) & set(tried)
