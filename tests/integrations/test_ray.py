"""Trials of Ray Tune take turns, with Ray itself: on the processors in one lane."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from ray import tune
from ray.tune.schedulers import ResourceChangingScheduler

from ecoshare.integrations.ray import share, water_filling
from tests.integrations import trials
from tests.integrations.cluster import WARNINGS, book, cluster, of, run

pytestmark = [*WARNINGS, pytest.mark.timeout(300)]

SMALL = "1 MiB"
"""Memory that each trial states, so that all are admitted at once."""


@pytest.fixture(scope="module")
def ledger() -> Iterator[Path]:
    """Ray with four processors, and the folder of its trials' ledger."""
    with cluster(4) as state:
        yield state


def members(state: Path) -> Any:
    """Trials with a place in the processors' lane, by the ledger's book."""
    return book(state)["devices"]["cpu"]["members"]


@pytest.mark.nightly
def test_losses_are_those_without_sharing_and_turns_are_told(ledger: Path, tmp_path: Path) -> None:
    space = [{"seed": seed} for seed in range(2)]
    shared = run(share(of(trials.reports)), space, tmp_path / "shared")
    for seed, result in shared.items():
        assert result.error is None
        assert result.metrics["loss"] == trials.loss(seed, 60)
        assert result.metrics["training_iteration"] == 3
        assert result.metrics["ecoshare/iterations"] == 60
        assert result.metrics["ecoshare/held_s"] > 0.0
    queued_s = sorted(result.metrics["ecoshare/queued_s"] for result in shared.values())
    assert queued_s[0] < queued_s[-1], "the first alone, and the others once it has been measured"
    assert members(ledger) == {}
    (needs,) = book(ledger)["kinds"].values()
    assert needs["persistent_bytes"] > 50 << 20, "a process that has loaded torch"
    assert needs["ephemeral_bytes"] > 0


class Slow(tune.Callback):  # type: ignore[misc]
    """Callback that makes Tune take long to process a result."""

    def on_trial_result(self, *_args: Any, **_options: Any) -> None:
        time.sleep(0.5)


@pytest.mark.nightly
def test_no_two_have_the_turn_at_once_nor_one_whose_result_tune_processes(ledger: Path, tmp_path: Path) -> None:
    space = [{"seed": seed, "logs": str(tmp_path), "each_s": 0.004, "iterations": 300} for seed in range(2)]
    results = run(share(of(trials.reports), memory=SMALL), space, tmp_path, callbacks=[Slow()])
    assert all(result.metrics["ecoshare/iterations"] == 300 for result in results.values())
    each = [json.loads((tmp_path / f"{seed}.json").read_text()) for seed in range(2)]
    spans = sorted((began_s, ended_s, seed) for seed in range(2) for began_s, ended_s in each[seed])
    assert len(spans) == 600
    for (_, ended_s, one), (began_s, _, other) in pairwise(spans):
        assert one == other or began_s >= ended_s, f"{one} and {other} used the device at the same time"
    changes = sum(one[2] != other[2] for one, other in pairwise(spans))
    assert changes > 2, "they have taken turns, not gone one after the other"
    assert sum(result.metrics["ecoshare/waited_s"] for result in results.values()) > 0.5
    inside = 0
    for one, other in (each, each[::-1]):
        for done in range(20, 300, 20):
            left_s, back_s = one[done - 1][1], one[done][0]
            inside += sum(left_s < began_s and ended_s < left_s + 0.5 < back_s for began_s, ended_s in other)
    assert inside, "no trial has trained during a report of the other"


@pytest.mark.nightly
def test_failed_trials_keep_no_other_from_the_turn(ledger: Path, tmp_path: Path) -> None:
    """Both trials end inside an iteration, with the turn: one by an exception, one by SIGKILL."""
    ends = ("", "raises", "killed")
    space = [{"seed": seed, "each_s": 0.01, "ends": each} for seed, each in enumerate(ends)]
    results = run(share(of(trials.reports), memory=SMALL), space, tmp_path)
    assert "the trial has failed" in str(results[1].error)
    assert results[2].error is not None
    assert results[0].error is None
    assert results[0].metrics["training_iteration"] == 3


@pytest.mark.nightly
def test_trials_for_which_there_is_no_memory_wait(ledger: Path, tmp_path: Path) -> None:
    """The ledger, not Ray, bounds the number of trials: here one at a time, though Ray starts all."""
    space = [{"seed": seed, "logs": str(tmp_path), "each_s": 0.03} for seed in range(2)]
    results = run(share(of(trials.reports), memory="3 GiB", budget="5 GiB"), space, tmp_path)
    spans = {seed: json.loads((tmp_path / f"{seed}.json").read_text()) for seed in range(2)}
    first, then = sorted(spans, key=lambda seed: spans[seed][0])
    assert spans[first][-1][1] <= spans[then][0][0], "two of 3 GiB were inside 5 GiB at once"
    queued_s = {seed: result.metrics["ecoshare/queued_s"] for seed, result in results.items()}
    assert queued_s[then] > queued_s[first], "the other one has waited for its memory"


@pytest.mark.nightly
def test_a_trial_that_needs_more_than_there_is_fails_with_the_reason(ledger: Path, tmp_path: Path) -> None:
    (result,) = run(share(of(trials.reports), memory="900 TiB"), [{"seed": 0}], tmp_path).values()
    assert "a trial needs 900 TiB of memory" in str(result.error)


def generates(config: dict[str, Any]) -> Iterator[Any]:
    """Trainable like that of `of`, but a generator function, as Ray tells them apart."""
    yield from trials.yields(config["each"])


@pytest.mark.nightly
def test_sharing_twice_is_a_mistake_and_no_wait_for_itself(ledger: Path, tmp_path: Path) -> None:
    (result,) = run(share(share(of(trials.returns), memory=SMALL), memory=SMALL), [{"seed": 0}], tmp_path).values()
    assert "share() was applied to it twice" in str(result.error)


@pytest.mark.nightly
@pytest.mark.parametrize(("trainable", "iterations", "reuse"), [(of(trials.returns), 20, False), (generates, 40, True)])
def test_functions_may_return_or_yield_their_results(
    ledger: Path, tmp_path: Path, trainable: Any, iterations: int, reuse: bool
) -> None:
    options = {"tune_config": tune.TuneConfig(reuse_actors=reuse, max_concurrent_trials=2)}
    results = run(share(trainable, memory=SMALL), [{"seed": seed} for seed in range(2)], tmp_path, **options)
    assert not any(result.error for result in results.values())
    assert [result.metrics["ecoshare/iterations"] for result in results.values()] == [iterations] * 2


@pytest.mark.nightly
def test_a_class_has_the_turn_in_its_steps(ledger: Path, tmp_path: Path) -> None:
    """The same holds if Ray runs several trials in one process."""
    found = tune.Tuner(
        share(trials.Stepwise, memory=SMALL),
        param_space={"seed": tune.grid_search([0, 1, 2])},
        tune_config=tune.TuneConfig(reuse_actors=True, max_concurrent_trials=2),
        run_config=tune.RunConfig(storage_path=str(tmp_path), verbose=0),
    ).fit()
    assert not found.errors
    assert {each.config["seed"]: each.metrics["loss"] for each in found} == {
        seed: trials.loss(seed, 40) for seed in range(3)
    }
    assert {each.metrics["ecoshare/iterations"] for each in found} == {40}
    assert len({each.metrics["pid"] for each in found}) < 3
    assert members(ledger) == {}, "the places were given back"


@pytest.mark.nightly
def test_devices_go_to_the_trials_that_still_need_them(ledger: Path, tmp_path: Path) -> None:
    """A long trial beside two short ones gets all four processors once it is alone.

    Widths change at the results that follow a trial's end, so the second short trial goes on well past the first one.
    """
    (meets := tmp_path / "meets").mkdir()
    space: list[dict[str, Any]] = [
        {"seed": 0, "each_s": 0.3, "results": 24, "outlasts": {"1": 4, "2": 12}},
        {"seed": 1, "each_s": 0.1, "results": 4, "outlasts": {}},
        {"seed": 2, "each_s": 0.1, "results": 12, "outlasts": {"1": 4}},
    ]
    for trial in space:
        trial |= {"together": len(space), "meets": str(meets)}
    scheduler = ResourceChangingScheduler(
        resources_allocation_function=water_filling(24, most=4, per_device=2, resource="CPU")
    )
    results = run(
        tune.with_resources(of(trials.resumes), {"cpu": 1}),
        space,
        tmp_path,
        tune_config=tune.TuneConfig(scheduler=scheduler, reuse_actors=False),
    )
    widths = {seed: [float(line) for line in (meets / str(seed)).read_text().split()] for seed in results}
    assert widths[0][0] == 1.0
    assert widths[0][-1] == 4.0, "no other trial is left"
    assert 0.5 in widths[1] + widths[2], "a short one shares a processor while the long one is there"
    assert not any("ecoshare/held_s" in result.metrics for result in results.values()), "these do not share"
    done = {seed: result.metrics["done_so_far"] for seed, result in results.items()}
    assert done == {each["seed"]: each["results"] for each in space}, "paused trials continued from their checkpoints"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"memory": "2"}, ValueError, "memory: expected a size with its unit"),
        ({"memory": 0}, ValueError, "memory=0: expected more than nothing"),
        ({"memory": 1.5}, TypeError, "memory=1.5: expected a size such as '2 GiB'"),
        ({"memory": ("1 GiB",)}, TypeError, "expected a size, or a pair"),
        ({"budget": "lots"}, ValueError, "budget: expected a size"),
        ({"memory": ("1 GiB", "2 GiB"), "budget": "2 GiB"}, ValueError, "no trial would ever run"),
        ({"device": "tpu"}, ValueError, "device='tpu': expected 'cpu'"),
    ],
)
def test_what_cannot_be_is_said_before_ray_starts(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as raised:
        share(trials.reports, **arguments)
    assert "\n" not in str(raised.value)


def test_only_trainables_can_be_shared() -> None:
    for wrong in (5, "train", dict):
        with pytest.raises(TypeError, match=r"expects a function or a subclass of ray\.tune\.Trainable"):
            share(wrong)


@pytest.mark.parametrize("arguments", [{"results": 0}, {"results": 3, "most": 0}, {"results": 3, "devices": 0}])
def test_water_filling_wants_positive_numbers(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected at least 1"):
        water_filling(**arguments)
    with pytest.raises(TypeError, match="expected a whole number"):
        water_filling(2.5)  # type: ignore[arg-type]


def test_without_ray_the_remedy_is_named() -> None:
    code = "import sys; sys.modules['ray'] = None; import ecoshare.integrations.ray"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr
    assert said.splitlines()[-1].startswith("ModuleNotFoundError: Ray Tune is not installed")
    assert "pip install 'ecoshare[ray]'" in said.splitlines()[-1]


@pytest.mark.nightly
def test_ray_loads_beside_what_zeus_requires() -> None:
    """Else Ray 2.56 or later, which import amdsmi and do not catch its KeyError, would be allowed."""
    code = "import zeus.device.gpu; from zeus.device.gpu.amd import amdsmi_is_available as is_amd; is_amd(); import ray"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True)
