"""Transfer from earlier jobs to new ones, on invented workloads of one device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest
import torch

from tests.tuner import invented
from tuner import ConstrainedTuner, Evaluation, Limit, Prior, energy
from tuner.transfer import transferred

NOISE = 0.02
BUDGET = 15


def jobs(seed: int, count: int) -> list[invented.Workload]:
    """Unlike workloads of one device."""
    space, default = invented.limits_and_batches(seed)
    return [invented.workload(space, default, 100 * seed + each, device=seed) for each in range(count)]


def similar(seed: int, count: int) -> list[invented.Workload]:
    """Workloads of one device that have most of their response in common."""
    common, *others = jobs(seed, count + 1)
    return [replace(each, logs=0.75 * common.logs + 0.25 * each.logs) for each in others]


def observe(members: Sequence[invented.Workload], place: int, draw: np.random.Generator) -> dict[str, float]:
    """Measurement of a packing of jobs with equal turns: mean power, and the time of each job."""
    watts = fmean(math.exp(member.logs[0, place]) for member in members)
    seen = {"power_w": watts} | {
        f"job{each}": 3.0 * math.exp(member.logs[1, place]) for each, member in enumerate(members)
    }
    return {name: value * math.exp(NOISE * draw.standard_normal()) for name, value in seen.items()}


def tune(members: Sequence[invented.Workload], prior: Prior | None, trials: int = 0) -> tuple[int, list[Evaluation]]:
    """Number of measurements until one is within 5 % of the feasible optimum, at most the budget; and the settings."""
    names = [f"job{each}" for each in range(len(members))]
    space, default = members[0].space, members[0].default
    draw = np.random.default_rng(7)
    alone = {name: math.exp(member.logs[0, member.at]) for name, member in zip(names, members, strict=True)}
    tuned = ConstrainedTuner(space, energy(alone), [Limit(name, 1.1) for name in names], default, prior)
    watts = np.mean([np.exp(member.logs[0]) for member in members], axis=0)
    work = sum(
        alone[name] / np.exp(member.logs[1] - member.logs[1, member.at])
        for name, member in zip(names, members, strict=True)
    )
    cost = np.log(watts / work)
    feasible = np.all([member.feasible(1.1) for member in members], axis=0)
    good = feasible & (cost <= cost[feasible].min() + math.log(1.05))
    found = BUDGET + 1
    for count in range(1, (trials or BUDGET) + 1):
        setting = tuned.ask()
        place = space.index(setting)
        if good[place] and found > BUDGET:
            found = count
            if not trials:
                break
        tuned.tell(setting, observe(members, place, draw))
    return found, tuned.trials


@pytest.mark.slow
@pytest.mark.nightly
def test_a_job_is_tuned_in_fewer_trials_when_a_few_of_similar_ones_are_known() -> None:
    colds, warms = [], []
    for device in range(8):
        *others, new = similar(device, 5)
        earlier = [tune([each], None, trials=trials)[1] for trials, each in zip((3, 5, 6, 8), others, strict=True)]
        colds.append(tune([new], None)[0])
        warms.append(tune([new], transferred(new.space, ["job0"], new.default, earlier))[0])
    assert fmean(warms) <= fmean(colds) - 0.5


@pytest.mark.nightly
def test_a_packing_of_jobs_known_alone_is_tuned_in_fewer_trials() -> None:
    colds, warms = [], []
    for device in range(8):
        members = jobs(device, 2)
        earlier = [tune([each], None, trials=6)[1] for each in members]
        space, default = members[0].space, members[0].default
        prior = transferred(space, ["job0", "job1"], default, earlier, own={"job0": 0, "job1": 1})
        colds.append(tune(members, None)[0])
        warms.append(tune(members, prior)[0])
    assert fmean(warms) <= fmean(colds) - 0.5


@pytest.mark.nightly
def test_whole_responses_are_taken_as_they_are() -> None:
    """The power of a mix is the mean of its jobs' power, and times are each job's own."""
    members = jobs(1, 2)
    space, default, at = members[0].space, members[0].default, members[0].at
    first, second = (torch.from_numpy(each.logs)[None] for each in members)
    seen = transferred(space, ["a", "b"], default, [first, second], own={"a": 0, "b": 1}).parts[0].mean
    for job, mean in ((first, seen[1]), (second, seen[2])):
        assert torch.allclose(mean, job[0, 1] - job[0, 1, at])
    assert torch.allclose(seen[0].exp(), (first[0, 0].exp() + second[0, 0].exp()) / 2.0)


def test_what_cannot_be_transferred_is_refused() -> None:
    space, default = invented.clocks(0)
    two = Evaluation(default, {"power_w": 100.0, "a": 1.0, "b": 1.0})
    with pytest.raises(ValueError, match="one time, not a, b"):
        transferred(space, ["a"], default, [[two]])
    with pytest.raises(ValueError, match="nothing to transfer"):
        transferred(space, ["a"], default, [])
