"""Trials of Ray Tune on fake GPUs, through all their steps except CUDA."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray import tune

from ecoshare.integrations.ray import share
from tests.driver import COMPILER, FakeDriver, presets
from tests.driver.training import CONTEXT_BYTES, MIB
from tests.integrations.cluster import WARNINGS, book, cluster, run

pytestmark = [
    *WARNINGS,
    pytest.mark.timeout(300),
    pytest.mark.slow,
    pytest.mark.nightly,
    pytest.mark.skipif(COMPILER is None, reason="the fake driver is compiled, and there is no C compiler"),
]

KEPT_BYTES, WORK_BYTES = 1024 * MIB, 512 * MIB


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FakeDriver, Path]]:
    """Driver with three GPUs, of which Ray may use the last two."""
    driver = FakeDriver(tmp_path_factory.mktemp("driver"), [presets.A4000, presets.H200, presets.H200])
    with cluster(4, 2, {**driver.environment, "CUDA_VISIBLE_DEVICES": "1,2"}) as state:
        yield driver, state


def trains(config: dict[str, Any]) -> None:
    """Train like a script on a GPU: some memory is kept, some is used inside an iteration only."""
    import torch

    from tests.driver.cuda_standin import StandIn

    gpu = StandIn(0.8, 0.3, CONTEXT_BYTES)
    gpu.allocate(KEPT_BYTES)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(config["each"]["iterations"]):
        optimizer.zero_grad()
        loss = model(torch.ones(1, 4)).sum()
        gpu.allocate(WORK_BYTES)
        gpu.work(0.02)
        gpu.free(WORK_BYTES)
        loss.backward()
        optimizer.step()
    tune.report({"device": os.environ["CUDA_VISIBLE_DEVICES"]})


def test_trials_spread_over_the_gpus_that_ray_may_use(node: tuple[FakeDriver, Path], tmp_path: Path) -> None:
    driver, state = node
    space = [{"seed": seed, "iterations": 60} for seed in range(4)]
    results = run(share(trains), space, tmp_path)
    assert not any(result.error for result in results.values())
    used = Counter(result.metrics["device"] for result in results.values())
    assert set(used) == {driver.gpu(1).uuid, driver.gpu(2).uuid}
    for result in results.values():
        assert result.metrics["ecoshare/iterations"] == 60
        assert result.metrics["ecoshare/held_s"] > 60 * 0.02
    (needs,) = book(state)["kinds"].values()
    assert needs["persistent_bytes"] == KEPT_BYTES + CONTEXT_BYTES
    assert needs["ephemeral_bytes"] == WORK_BYTES
    budgets = {name: lane["budget_bytes"] for name, lane in book(state)["devices"].items()}
    assert set(budgets) == set(used)
    assert all(100 << 30 < each < 141 << 30 for each in budgets.values())


def test_a_trial_that_ray_has_given_a_gpu_shares_that_one(node: tuple[FakeDriver, Path], tmp_path: Path) -> None:
    driver, _ = node
    space = [{"seed": seed, "iterations": 10} for seed in range(2)]
    trainable = tune.with_resources(share(trains, memory="2 GiB"), {"cpu": 1, "gpu": 0.5})
    results = run(trainable, space, tmp_path)
    assert not any(result.error for result in results.values())
    assert {result.metrics["device"] for result in results.values()} < {driver.gpu(1).uuid, driver.gpu(2).uuid}


def test_a_trial_that_takes_more_than_it_said_fails_alone(node: tuple[FakeDriver, Path], tmp_path: Path) -> None:
    """Cap of the trial's allocator: a quarter more than the memory that it stated."""
    results = run(share(trains, memory="1 GiB"), [{"seed": 0, "iterations": 10}], tmp_path)
    assert "OutOfMemoryError" in str(results[0].error)


def test_a_trial_of_several_gpus_has_them_to_itself(node: tuple[FakeDriver, Path], tmp_path: Path) -> None:
    def wide(config: dict[str, Any]) -> dict[str, str]:
        return {"device": os.environ["CUDA_VISIBLE_DEVICES"]}

    (result,) = run(tune.with_resources(share(wide), {"gpu": 2}), [{"seed": 0}], tmp_path).values()
    assert len(result.metrics["device"].split(",")) == 2
    assert "ecoshare/held_s" not in result.metrics
