"""Rules of a live chain by their names, and the one that a back test chooses."""

from __future__ import annotations

from random import Random

import pytest

from ecoshare.contrib.chains.allocation_chain import Overlap
from ecoshare.contrib.chains.chain_rule import (
    PLANNED,
    PREDICTORS,
    REACTIVE,
    ChainRule,
    back_tested,
    predictor,
    why_not_tested,
)
from ecoshare.contrib.chains.gradient_boosting import GradientBoosting
from ecoshare.contrib.chains.logs.batch_job import BatchJob
from ecoshare.errors import UsageError

HOUR_S = 3600.0


def log(count: int = 300, step_s: float = 1800.0) -> list[BatchJob]:
    """Log of a busy partition of 4 GPUs: each job waits for hours."""
    random = Random(0)
    return [
        BatchJob(str(number), number * step_s, random.choice((1, 2, 4)), HOUR_S, 2 * HOUR_S, wait_s=3 * HOUR_S)
        for number in range(count)
    ]


@pytest.mark.slow
def test_each_name_is_a_rule() -> None:
    for name in PREDICTORS[:-2]:
        assert predictor(name, (), 4, 0.0)
    assert isinstance(predictor("boosted", log(), 4, 1e9), GradientBoosting)
    with pytest.raises(UsageError, match="no predictor 'fast'"):
        predictor("fast", (), 4, 0.0)
    with pytest.raises(UsageError, match="needs 50 jobs"):
        predictor("boosted", log(10), 4, 1e9)


def test_short_limits_have_short_looks() -> None:
    short, long = (ChainRule(REACTIVE).provisioner((), 4, limit_s, 0.0) for limit_s in (60.0, 48 * HOUR_S))
    assert (short.least_s, short.most_s) == (3.0, 15.0)
    assert (long.least_s, long.most_s) == (300.0, 7200.0)


def test_a_log_that_is_too_small_is_told() -> None:
    assert why_not_tested((), HOUR_S).startswith("`sacct` shows 0 waits")
    assert "shorter than 8 limits" in why_not_tested(log(), 24 * HOUR_S)
    assert why_not_tested(log(), 4 * HOUR_S) == ""


@pytest.mark.nightly
def test_the_back_test_submits_ahead_of_time_where_jobs_wait() -> None:
    jobs = log()
    rule = back_tested(jobs, 3, 2, 18 * HOUR_S, Overlap.TAKE_OVER, jobs[-1].submit_s + 1.0)
    assert rule.predictor in PREDICTORS and (rule.margin_s > 0.0 or rule.ahead > 1)
    chosen = rule.provisioner(jobs, 3, 18 * HOUR_S, jobs[-1].submit_s)
    assert (chosen.margin_s, chosen.ahead) == (rule.margin_s, rule.ahead)


def test_where_nothing_waits_the_least_bold_rule_is_taken() -> None:
    quiet = log(60, step_s=6 * HOUR_S)
    assert back_tested(quiet, 8, 2, 18 * HOUR_S, Overlap.IDLE, 1e9) == ChainRule(PLANNED)
