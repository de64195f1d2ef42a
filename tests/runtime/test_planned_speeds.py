"""A plan has the speeds of its devices where they differ, and the times of a typical device."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ecoshare.base.device import DeviceInfo
from ecoshare.jobs.load import load
from ecoshare.knowledge.calibration_store import CalibrationStore, IterationTime
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.runtime.planning import plan as planning
from ecoshare.runtime.planning.planned_knowledge import relative_to, speed_where_measured
from tests.knowledge.classes import profile
from tests.planning import planned

GPUS = tuple(
    DeviceInfo(f"cuda:{place}", "cuda", "nvidia", "NVIDIA H200", f"GPU-{place}", 80 << 30, 8) for place in range(3)
)
OTHER = "other-000000000000"


def calibrated(folder: Path, *seconds: float, job_class: str = OTHER) -> ProfileStore:
    """Store with the time of a class on each of the first devices."""
    store = CalibrationStore(folder / "profiles")
    for device, each in zip(GPUS, seconds, strict=False):
        for run in range(3):
            store.add(device, {job_class: IterationTime(seconds=each, iterations=100, run=f"r{run}")})
    return ProfileStore(folder / "profiles")


def made(folder: Path, devices: tuple[DeviceInfo, ...], store: ProfileStore | None) -> planning.Plan:
    (folder / "train.py").touch()
    path = folder / "jobs.yaml"
    path.write_text(json.dumps({"version": 1, "jobs": [{"name": "a", "script": "train.py", "iterations": 100}]}))
    return planned(load(path), devices, store=store)


def told(plan: planning.Plan) -> list[str]:
    return [note for note in plan.notes if "slower" in note]


def test_the_opening_has_the_speeds_and_one_note_says_so(tmp_path: Path) -> None:
    plan = made(tmp_path, GPUS, calibrated(tmp_path, 1.0, 1.1))
    speeds = [dict(device.speeds) for device in plan.opening()["devices"]]
    assert speeds[0][""] > 1.0 > speeds[1][""] and speeds[2] == {}
    assert all(each.keys() <= {""} for each in speeds), "classes of other runs are left out"
    assert told(plan) == [
        "cuda:1 is up to 9 % slower than cuda:0: jobs go to the fastest free device; 1 device not calibrated"
    ]
    assert plan.as_dict()["speeds"].keys() == {"cuda:0", "cuda:1"}
    assert plan.without_profiles().opening()["devices"][0].speeds == ()


@pytest.mark.parametrize(
    ("seconds", "devices"), [((1.0, 1.1), GPUS[:1]), ((1.0, 1.001), GPUS), ((1.0,), GPUS), ((), GPUS)]
)
def test_nothing_changes_for_one_device_or_for_those_that_are_alike(
    tmp_path: Path, seconds: tuple[float, ...], devices: tuple[DeviceInfo, ...]
) -> None:
    plan, without = made(tmp_path, devices, calibrated(tmp_path, *seconds)), made(tmp_path, devices, None)
    assert plan.opening()["devices"] == without.opening()["devices"] and told(plan) == []


def test_times_of_a_profile_become_those_of_a_typical_device(tmp_path: Path) -> None:
    job_class = made(tmp_path, GPUS, None).jobs[0].job_class
    store = calibrated(tmp_path, 1.0, 1.2, job_class=job_class.name)
    machine = profile("a").machine.model_copy(update={"device": "cuda:7", "uuid": "GPU-1", "kind": "cuda"})
    changes = {"job_class": job_class.name, "origin": job_class.origin, "machine": machine}
    store.save(profile("a").model_copy(update=changes))
    plan = made(tmp_path, GPUS, store)
    (known,) = plan.known.values()
    assert known.train is not None and plan.jobs[0].spec.solo is not None
    slow = dict(plan.speeds["cuda:1"])[job_class.name]
    assert 0.9 < slow < 0.95 and speed_where_measured(known, GPUS, plan.speeds) == slow
    assert plan.jobs[0].spec.solo.iteration_s == pytest.approx(known.train.mean_s * slow)
    assert plan.jobs[0].spec.service_s == pytest.approx(100 * known.train.mean_s * slow)
    elsewhere = known.model_copy(update={"machine": machine.model_copy(update={"uuid": "GPU-9"})})
    assert speed_where_measured(elsewhere, GPUS, plan.speeds) == 1.0


def test_a_time_of_a_neighbour_is_expected_to_change_by_the_ratio_of_speeds(tmp_path: Path) -> None:
    store = CalibrationStore(calibrated(tmp_path, 1.0, 1.1).folder)
    on_fast = relative_to(GPUS[0], store)
    assert 1.1 * on_fast("GPU-1", OTHER) == pytest.approx(1.0, abs=0.01)
    assert on_fast("GPU-1", "unknown") == on_fast("GPU-1", OTHER), "the class for all others stands in"
    assert on_fast("GPU-0", OTHER) == relative_to(replace(GPUS[0], uuid="GPU-9"), store)("GPU-8", OTHER) == 1.0
