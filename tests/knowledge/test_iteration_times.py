"""Statistics of iteration times."""

from __future__ import annotations

import random
from statistics import fmean

import pytest

from ecoshare.base.batch_means import relative_error
from ecoshare.knowledge.profile import times


def test_the_middle_and_the_tail() -> None:
    result = times([0.01] * 95 + [0.05] * 5)
    assert result is not None
    assert result.count == 100 and result.median_s == 0.01
    assert result.mean_s == pytest.approx(0.012)
    assert 0.01 <= result.p95_s <= 0.05


def test_nothing_is_known_of_nothing_and_the_error_of_few_is_wide() -> None:
    assert times([]) is None
    few = times([0.01, 0.02, 0.03])
    assert few is not None and few.mean_s == pytest.approx(0.02)
    assert few.standard_error_s == pytest.approx(1.32 * 0.01 / 3**0.5), "their spread, and Student's t"
    one = times([0.01])
    assert one is not None and one.standard_error_s is None


def test_the_standard_error_covers_the_truth_about_as_often_as_it_claims() -> None:
    """Neighbouring iterations are alike: the machine is slow, or fast, for 20 iterations at a time."""
    random.seed(1)
    within = 0
    for _ in range(400):
        durations, level = [], 0.0
        for place in range(800):
            if place % 20 == 0:
                level = random.gauss(0.0, 0.1)
            durations.append(1.0 + level + random.gauss(0.0, 0.05))
        error = relative_error(durations)
        assert error is not None
        mean = fmean(durations)
        within += abs(mean - 1.0) <= error * mean
    assert 0.55 <= within / 400 <= 0.75  # one standard error with 7 degrees of freedom: 65 %
