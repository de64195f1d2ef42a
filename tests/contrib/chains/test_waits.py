"""Sights of a queue, the plan of waits, samples of the past, and the model that is fitted to them."""

from __future__ import annotations

import sys
from dataclasses import replace
from math import inf
from random import Random

import pytest
from hypothesis import given

from ecoshare.contrib.chains.gradient_boosting import LEAST_SAMPLES, GradientBoosting
from ecoshare.contrib.chains.logs.batch_job import BatchJob
from ecoshare.contrib.chains.queue_sight import QueueSight, RunningJob, StartedJob, WaitingJob
from ecoshare.contrib.chains.simulated_chain import BackfillQueue, QueueReplay, replayed
from ecoshare.contrib.chains.wait_predictor import (
    EXPECTED,
    LONGEST_S,
    NAMES,
    PLANNED,
    AverageWait,
    PlannedWait,
    Reactive,
    WaitSample,
    features,
    logged_samples,
    logged_sights,
    planned_wait_s,
)
from ecoshare.errors import UnfitEnvironment, UsageError
from tests.contrib.chains.made_jobs import GPUS, job, job_lists

HOUR_S = 3600.0
SIGHT = QueueSight(
    at_s=4 * 86400.0 + 6 * HOUR_S,  # a Monday, 6 o'clock
    gpus=4,
    running=(RunningJob(2, 10.0), RunningJob(1, 30.0)),
    waiting=(WaitingJob(2, 20.0, 5.0), WaitingJob(4, 40.0, 1.0)),
    started=(StartedJob(1, 3.0), StartedJob(4, 9.0)),
    used_share=0.5,
)


def test_the_plan_starts_jobs_in_order_as_gpus_become_free() -> None:
    """2 of 4 GPUs are free at 10, so the first job runs from 10 to 30; all are free at 30, so the second until 70."""
    assert planned_wait_s(SIGHT, 1, 1.0) == 70.0
    assert planned_wait_s(SIGHT, 1, 0.5) == 35.0
    assert planned_wait_s(replace(SIGHT, waiting=()), 1, 1.0) == 0.0
    assert planned_wait_s(replace(SIGHT, waiting=()), 2, 1.0) == 10.0


def test_the_plan_of_an_endless_queue_ends() -> None:
    assert planned_wait_s(SIGHT, 5, 1.0) == LONGEST_S
    assert planned_wait_s(replace(SIGHT, running=(RunningJob(4, inf),)), 1, 1.0) == LONGEST_S


def test_features_are_named_and_finite() -> None:
    found = dict(zip(NAMES, features(SIGHT, 2, HOUR_S), strict=True))
    assert found["free / all GPUs"] == 0.25
    assert found["waiting jobs"] == 2.0
    assert found["GPUs that waiting jobs ask for / all"] == 1.5
    assert found["GPU-seconds that waiting jobs may take / all GPUs (s)"] == 50.0
    assert found["GPU-seconds that running jobs may still take / all GPUs (s)"] == 12.5
    assert found["mean wait of the last starts (s)"] == 6.0
    assert found["mean wait of the last starts of jobs at least as large (s)"] == 9.0
    assert found["time that the first waiting job has waited (s)"] == 5.0
    assert found["weekday"] == 0.0
    assert found["sine of the hour"] == pytest.approx(1.0)
    assert (features(SIGHT, 2, HOUR_S)[PLANNED], features(SIGHT, 2, HOUR_S)[EXPECTED]) == (70.0, 35.0)
    endless = replace(SIGHT, running=(RunningJob(3, inf),), waiting=(WaitingJob(1, inf, 0.0),))
    assert max(features(endless, 2, inf)) < inf


def test_baselines() -> None:
    assert Reactive().wait_s(SIGHT, 1, HOUR_S) == 0.0
    assert AverageWait().wait_s(SIGHT, 1, HOUR_S) == 6.0
    assert AverageWait(1).wait_s(SIGHT, 1, HOUR_S) == 9.0
    assert AverageWait().wait_s(SIGHT, 5, HOUR_S) == 0.0
    assert PlannedWait().wait_s(SIGHT, 1, HOUR_S) == 70.0


@given(job_lists())
def test_the_log_shows_the_queue_that_the_simulator_had(jobs: list[BatchJob]) -> None:
    """If it failed, a model would be fitted to other queues than those that it is asked about."""
    # Ends and submissions at one moment come in the order of the simulator: ends first, then one submission at a time.
    jobs = [replace(each, submit_s=each.submit_s + number / 100.0) for number, each in enumerate(jobs)]
    replay = QueueReplay(BackfillQueue(GPUS), [])
    log = replayed(jobs, BackfillQueue(GPUS))
    for each, seen in logged_sights(log, GPUS, log):
        replay.advance(each.submit_s)
        sight = replay.queue.sight()
        assert seen.at_s == pytest.approx(sight.at_s)
        assert seen.waiting == sight.waiting
        assert sorted((job.gpus, round(job.left_s, 6)) for job in seen.running) == sorted(
            (job.gpus, round(job.left_s, 6)) for job in sight.running
        )
        assert sorted((job.gpus, round(job.wait_s, 6)) for job in seen.started) == sorted(
            (job.gpus, round(job.wait_s, 6)) for job in sight.started
        )
        assert seen.used_share == pytest.approx(sight.used_share)
        replay.queue.submit(replace(each, wait_s=None))


@given(job_lists())
def test_samples_hold_nothing_that_was_not_known(jobs: list[BatchJob]) -> None:
    """If it failed, the figures on held-back weeks would be of a model that had seen them."""
    log = replayed(jobs, BackfillQueue(GPUS))
    until_s = log[len(log) // 2].submit_s
    unknown = [
        replace(each, wait_s=None) if each.submit_s + (each.wait_s or 0.0) >= until_s else each
        for each in log
        if each.submit_s < until_s
    ]
    assert logged_samples(log, GPUS, until_s) == logged_samples(unknown, GPUS, until_s)
    assert all(sample.wait_s <= until_s for sample in logged_samples(log, GPUS, until_s))


def test_a_step_leaves_out_samples_and_no_jobs() -> None:
    jobs = replayed([job(f"j{number}", float(number), 1, 9.0) for number in range(6)], BackfillQueue(1))
    assert logged_samples(jobs, 1, 100.0)[::3] == logged_samples(jobs, 1, 100.0, step=3)


def samples(count: int, seed: int) -> list[WaitSample]:
    """Waits between 0 and twice the planned wait, each as likely."""
    random = Random(seed)
    found = []
    for _ in range(count):
        row = [0.0] * len(NAMES)
        row[PLANNED] = row[EXPECTED] = random.uniform(100.0, 10_000.0)
        found.append(WaitSample(tuple(row), random.uniform(0.0, 2.0) * row[PLANNED]))
    return found


@pytest.mark.nightly
def test_as_many_waits_as_the_quantile_says_are_at_most_the_predicted_one() -> None:
    model = GradientBoosting(samples(2000, 0), 0.8)
    kept = [each.wait_s <= model.wait_of(each.features) for each in samples(500, 1)]
    assert 0.7 <= sum(kept) / len(kept) <= 0.9


@pytest.mark.slow
def test_a_longer_queue_than_any_seen_has_a_longer_wait() -> None:
    """Trees alone would predict the largest wait that they have seen, and never more."""
    model = GradientBoosting(samples(500, 0), 0.8)
    row = [0.0] * len(NAMES)
    row[PLANNED] = row[EXPECTED] = 100_000.0
    assert model.wait_of(tuple(row)) > 100_000.0


def test_too_few_waits_and_wrong_quantiles_are_refused() -> None:
    with pytest.raises(UsageError, match=f"needs {LEAST_SAMPLES} jobs"):
        GradientBoosting(samples(LEAST_SAMPLES - 1, 0))
    with pytest.raises(UsageError, match="above 0 and below 1"):
        GradientBoosting(samples(100, 0), 1.0)


def test_without_scikit_learn_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    with pytest.raises(UnfitEnvironment) as caught:
        GradientBoosting(samples(100, 0))
    assert caught.value.hint == "pip install 'ecoshare[slurm]'"
