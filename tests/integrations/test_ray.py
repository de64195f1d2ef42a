"""Ray Tune's trials in turns, with Ray itself: on the processors, one lane for all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import tune
from ray.tune.schedulers import ResourceChangingScheduler

from ecoshare.integrations.ray import share, water_filling
from tests.integrations import trials

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:Tip. In future versions of Ray:FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # of files and sockets that Ray leaves to the collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # the same
]

SMALL = "1 MiB"
"""Said of each trial, so that all are let in at once."""


def processes_of(folder: Path) -> list[int]:
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                line = (each / "cmdline").read_bytes() + (each / "environ").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in line and int(each.name) != os.getpid():
                found.append(int(each.name))
    return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[Path]:
    """Ray on this machine, with four processors to give away; nothing of it stays."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as name:
        before = {key: os.environ.get(key) for key in ("RAY_USAGE_STATS_ENABLED", "ECOSHARE_STATE", "HOME")}
        state = Path(name, "state")
        state.mkdir()
        os.environ.update(RAY_USAGE_STATS_ENABLED="0", ECOSHARE_STATE=str(state), HOME=name)
        try:
            ray.init(
                num_cpus=4,
                include_dashboard=False,
                log_to_driver=False,
                _temp_dir=name,
                _node_ip_address="127.0.0.1",
                object_store_memory=100 << 20,
            )
            yield state
        finally:
            ray.shutdown()
            for key, value in before.items():
                if value is None:
                    os.environ.pop(key, None)
                else:
                    os.environ[key] = value
        end_s = time.monotonic() + 30.0
        while left := processes_of(Path(name)):
            assert time.monotonic() < end_s, f"processes of Ray are left: {left}"
            time.sleep(0.1)


def run(trainable: Any, space: list[dict[str, Any]], folder: Path, **options: Any) -> dict[Any, Any]:
    """Results by seed, of one trial for each of `space`."""
    tuner = tune.Tuner(
        trainable,
        param_space={"each": tune.grid_search(space)} if not callable(space) else space,
        run_config=tune.RunConfig(storage_path=str(folder / "results"), verbose=0),
        **options,
    )
    return {result.config["each"]["seed"]: result for result in tuner.fit()}


def of(trainable: Any) -> Any:
    """A function of `config["each"]`."""

    def call(config: dict[str, Any]) -> Any:
        return trainable(config["each"])

    return call


def test_losses_are_those_without_sharing_and_turns_are_told(cluster: Path, tmp_path: Path) -> None:
    space = [{"seed": seed} for seed in range(3)]
    alone = run(of(trials.reports), space, tmp_path / "alone")
    shared = run(share(of(trials.reports)), space, tmp_path / "shared")
    for seed, result in shared.items():
        assert result.error is None
        assert result.metrics["loss"] == alone[seed].metrics["loss"]
        assert result.metrics["training_iteration"] == 3
        assert result.metrics["ecoshare/iterations"] == 60
        assert result.metrics["ecoshare/held_s"] > 0.0
        assert "ecoshare/held_s" not in alone[seed].metrics
    queued_s = sorted(result.metrics["ecoshare/queued_s"] for result in shared.values())
    assert queued_s[0] < queued_s[-1], "the first alone, and the others once it has been measured"
    book = json.loads((next(cluster.glob("ecoshare-ledger-*")) / "book").read_text())
    assert book["devices"]["cpu"]["members"] == {}
    assert not book["waiting"]
    (needs,) = book["kinds"].values()
    assert needs["persistent_bytes"] > 50 << 20, "a process that has loaded torch"
    assert needs["ephemeral_bytes"] > 0


def test_no_two_have_the_turn_at_once(cluster: Path, tmp_path: Path) -> None:
    space = [{"seed": seed, "logs": str(tmp_path), "each_s": 0.004, "iterations": 300} for seed in range(3)]
    results = run(share(of(trials.reports), memory=SMALL), space, tmp_path)
    assert all(result.metrics["ecoshare/iterations"] == 300 for result in results.values())
    spans = sorted(
        (began_s, ended_s, seed)
        for seed in range(3)
        for began_s, ended_s in json.loads((tmp_path / f"{seed}.json").read_text())
    )
    assert len(spans) == 900
    for (_, ended_s, one), (began_s, _, other) in pairwise(spans):
        assert one == other or began_s >= ended_s, f"{one} and {other} used the device at the same time"
    changes = sum(one[2] != other[2] for one, other in pairwise(spans))
    assert changes > 2, "they have taken turns, not gone one after the other"
    assert sum(result.metrics["ecoshare/waited_s"] for result in results.values()) > 0.5


@pytest.mark.parametrize("ends", ["raises", "killed"])
def test_a_trial_that_fails_keeps_nobody_from_the_turn(cluster: Path, tmp_path: Path, ends: str) -> None:
    """It ends inside an iteration, with the turn."""
    space = [{"seed": seed, "each_s": 0.01, "ends": ends if seed == 1 else ""} for seed in range(3)]
    results = run(share(of(trials.reports), memory=SMALL), space, tmp_path)
    assert results[1].error is not None
    if ends == "raises":
        assert "the trial has failed" in str(results[1].error)
    for seed in (0, 2):
        assert results[seed].error is None
        assert results[seed].metrics["training_iteration"] == 3


def test_trials_for_which_there_is_no_memory_wait(cluster: Path, tmp_path: Path) -> None:
    """The ledger, not Ray, says how many are in: here one at a time, though Ray starts all."""
    space = [{"seed": seed, "logs": str(tmp_path), "each_s": 0.004} for seed in range(3)]
    results = run(share(of(trials.reports), memory="3 GiB", budget="5 GiB"), space, tmp_path)
    spans = [json.loads((tmp_path / f"{seed}.json").read_text()) for seed in range(3)]
    spans.sort()
    for one, other in pairwise(spans):
        assert one[-1][1] <= other[0][0], "two of 3 GiB were inside 5 GiB at once"
    assert sum(result.metrics["ecoshare/queued_s"] > 0.2 for result in results.values()) == 2


def test_a_trial_that_needs_more_than_there_is_fails_with_the_reason(cluster: Path, tmp_path: Path) -> None:
    (result,) = run(share(of(trials.reports), memory="900 TiB"), [{"seed": 0}], tmp_path).values()
    assert "a trial needs 900 TiB of memory" in str(result.error)


@pytest.mark.parametrize("reuse", [False, True])
def test_functions_that_return_or_yield_and_classes_share_too(cluster: Path, tmp_path: Path, reuse: bool) -> None:
    options = {"tune_config": tune.TuneConfig(reuse_actors=reuse, max_concurrent_trials=2)}
    space = [{"seed": seed} for seed in range(4)]

    def generates(config: dict[str, Any]) -> Iterator[Any]:
        yield from trials.yields(config["each"])

    for name, trainable, iterations in (("return", of(trials.returns), 20), ("yield", generates, 40)):
        alone = run(trainable, space[:1], tmp_path / name / "alone")
        shared = run(share(trainable, memory=SMALL), space, tmp_path / name / "shared", **options)
        assert shared[0].metrics["loss"] == alone[0].metrics["loss"]
        assert [result.metrics["ecoshare/iterations"] for result in shared.values()] == [iterations] * 4


def test_a_class_has_the_turn_in_its_steps(cluster: Path, tmp_path: Path) -> None:
    found = {}
    for name, trainable in (("alone", trials.Stepwise), ("shared", share(trials.Stepwise, memory=SMALL))):
        found[name] = tune.Tuner(
            trainable,
            param_space={"seed": tune.grid_search([0, 1, 2])},
            run_config=tune.RunConfig(storage_path=str(tmp_path / name), verbose=0),
        ).fit()
        assert not found[name].errors
    losses = {name: {each.config["seed"]: each.metrics["loss"] for each in results} for name, results in found.items()}
    assert losses["alone"] == losses["shared"]
    assert {each.metrics["ecoshare/iterations"] for each in found["shared"]} == {40}
    book = json.loads((next(cluster.glob("ecoshare-ledger-*")) / "book").read_text())
    assert book["devices"]["cpu"]["members"] == {}, "the place was given back at the end"


@pytest.mark.slow
def test_devices_go_to_those_who_need_them_still(cluster: Path, tmp_path: Path) -> None:
    """Four processors, a long trial and two short ones: the long one gets all of them once it is alone."""
    space = [
        {"seed": seed, "each_s": each_s, "results": results}
        for seed, each_s, results in ((0, 0.4, 14), (1, 0.1, 6), (2, 0.1, 6))
    ]
    scheduler = ResourceChangingScheduler(
        resources_allocation_function=water_filling(14, most=4, per_device=2, resource="CPU")
    )
    results = run(
        tune.with_resources(of(trials.resumes), {"cpu": 1}),
        space,
        tmp_path,
        tune_config=tune.TuneConfig(scheduler=scheduler, reuse_actors=False),
    )
    widths = {seed: list(result.metrics_dataframe["width"]) for seed, result in results.items()}
    assert widths[0][0] == 1.0
    assert widths[0][-1] == 4.0, "nobody else is left"
    assert 0.5 in widths[1] + widths[2], "a short one shares a processor while the long one is there"
    assert all(
        list(result.metrics_dataframe["done_so_far"])[-1] == len(widths[seed]) for seed, result in results.items()
    )


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
def test_water_filling_wants_positive_numbers(arguments: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="expected at least 1"):
        water_filling(**arguments)
    with pytest.raises(TypeError, match="expected a whole number"):
        water_filling(2.5)  # type: ignore[arg-type]


def test_without_ray_the_remedy_is_named() -> None:
    code = "import sys; sys.modules['ray'] = None; import ecoshare.integrations.ray"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr
    assert said.splitlines()[-1].startswith("ModuleNotFoundError: Ray Tune is not installed")
    assert "pip install 'ecoshare[ray]'" in said.splitlines()[-1]


def test_ray_loads_beside_what_zeus_requires() -> None:
    """Ray 2.56 and later do not: they import amdsmi, and expect no KeyError from it."""
    code = "import zeus.device.gpu; from zeus.device.gpu.amd import amdsmi_is_available as is_amd; is_amd(); import ray"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True)
