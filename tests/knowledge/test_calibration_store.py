"""Times of classes on devices are kept from run to run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from ecoshare.base.device import DeviceInfo
from ecoshare.knowledge.calibration_store import (
    MOST_CLASSES,
    MOST_TIMES,
    CalibrationStore,
    IterationTime,
    as_csv,
    identity,
    known_speeds,
)
from ecoshare.knowledge.profiles_folder import CALIBRATION

ONE = DeviceInfo("cuda:0", "cuda", "nvidia", "NVIDIA H200", "GPU-1", 1 << 30, 8)
TWO = replace(ONE, name="cuda:1", uuid="GPU-2")
A, B = "a-000000000000", "b-000000000000"


def time(seconds: float, run: str = "r1") -> IterationTime:
    return IterationTime(seconds=seconds, iterations=100, relative_error=0.001, run=run)


def files(folder: Path) -> list[Path]:
    return sorted((folder / CALIBRATION).glob("*.json"))


def test_the_last_times_of_each_class_are_kept_and_compared(tmp_path: Path) -> None:
    store = CalibrationStore(tmp_path)
    for run in range(12):
        store.add(ONE, {A: time(1.0, f"r{run}")})
    (kept,) = CalibrationStore(tmp_path).all()
    assert [each.run for each in kept.classes[0].times] == [f"r{run}" for run in range(12 - MOST_TIMES, 12)]
    assert (kept.device, kept.model, kept.name) == ("GPU-1", "NVIDIA H200", "cuda:0")
    assert store.speeds("NVIDIA H200") == {}, "one device has nothing to be compared with"
    store.add(ONE, {B: time(0.9)})
    store.add(TWO, {B: time(1.1)})
    speeds = store.speeds("NVIDIA H200")
    assert speeds["GPU-1"][B].speed > 1.0 > speeds["GPU-2"][B].speed
    assert A not in speeds["GPU-1"] and store.speeds("NVIDIA H100") == {}


def test_a_run_that_goes_on_replaces_its_own_times(tmp_path: Path) -> None:
    store = CalibrationStore(tmp_path)
    store.add(ONE, {A: time(1.0, "r1")})
    store.add(ONE, {A: time(2.0, "r2")})
    store.add(ONE, {A: time(3.0, "r1")})
    assert [each.seconds for each in store.all()[0].classes[0].times] == [2.0, 3.0]


def test_the_classes_that_were_not_measured_for_longest_are_dropped(tmp_path: Path) -> None:
    store = CalibrationStore(tmp_path)
    store.add(ONE, {f"c{number}": time(1.0) for number in range(MOST_CLASSES)})
    store.add(ONE, {"c0": time(2.0, "r2"), "new": time(1.0)})
    names = [each.job_class for each in store.all()[0].classes]
    assert (len(names), names[-2:]) == (MOST_CLASSES, ["c0", "new"]) and "c1" not in names


def test_a_device_is_known_by_its_uuid_or_by_its_processors(tmp_path: Path) -> None:
    parts = [
        DeviceInfo(f"cpu:{place}", "cpu", "cpu", "A processor", None, 1 << 30, 1, processors=(place,))
        for place in range(2)
    ]
    assert len({identity(each) for each in (*parts, ONE, TWO)}) == 4
    whole = replace(parts[0], name="cpu", processors=())
    assert identity(whole) is identity(replace(ONE, uuid=None)) is None
    there = [replace(each, node=node) for node in ("n0", "n1") for each in (whole, *parts)]
    assert len({identity(each) for each in (*parts, *there)}) == len(parts) + len(there), "of each machine its own"
    store = CalibrationStore(tmp_path)
    store.add(whole, {A: time(1.0)})
    assert files(tmp_path) == []
    for place, each in enumerate(parts):
        store.add(each, {A: time(1.0 + place)})
    machine = (identity(parts[0]) or "").partition(":")[0]
    assert [(each.name, each.speed > 1.0, each.classes) for each in known_speeds(machine, store)] == [
        ("cpu:0", True, 1),
        ("cpu:1", False, 1),
    ]
    assert known_speeds("GPU-1", store) == []


def test_a_device_of_another_model_begins_anew(tmp_path: Path) -> None:
    """Times of two models cannot be compared, even if the driver gives both one UUID."""
    store = CalibrationStore(tmp_path)
    store.add(ONE, {A: time(1.0)})
    store.add(replace(ONE, model="NVIDIA H100"), {B: time(1.0)})
    (kept,) = store.all()
    assert (kept.model, [each.job_class for each in kept.classes]) == ("NVIDIA H100", [B])


def test_a_damaged_file_is_set_aside_and_a_newer_one_is_left_alone(tmp_path: Path) -> None:
    store = CalibrationStore(tmp_path)
    store.add(ONE, {A: time(1.0)})
    (path,) = files(tmp_path)
    content = json.loads(path.read_text())
    for change in ({"device": "GPU-2"}, {"classes": [{"job_class": A, "times": []}]}, {"more": 1}):
        path.write_text(json.dumps({**content, **change}))
        damaged = CalibrationStore(tmp_path)
        assert damaged.all() == [] and "is no calibration of its device" in damaged.notes[0]
    assert path.with_name(path.name + ".corrupt-3").exists()
    path.write_text(json.dumps({**content, "schema_version": 2, "more": 1}))
    newer = CalibrationStore(tmp_path)
    newer.add(ONE, {A: time(2.0)})
    assert newer.all() == [] and "newer version" in newer.notes[0]
    assert json.loads(path.read_text())["more"] == 1


def test_the_times_of_a_class_are_forgotten_on_all_devices(tmp_path: Path) -> None:
    store = CalibrationStore(tmp_path)
    for device in (ONE, TWO):
        store.add(device, {A: time(1.0), B: time(1.0)})
    assert (store.forget(A), store.forget(A)) == (2, 0)
    assert [[of.job_class for of in each.classes] for each in store.all()] == [[B], [B]]


def test_what_is_known_is_a_file_for_the_simulator(tmp_path: Path) -> None:
    store = CalibrationStore(tmp_path)
    store.add(ONE, {A: time(1.0), "(compute)": time(1.0)})
    store.add(TWO, {A: time(1.1), "(compute)": time(1.1)})
    lines = as_csv((TWO, ONE), store).splitlines()
    assert lines[0] == "device,class,speed"
    assert [line.rpartition(",")[0] for line in lines[1:]] == ["n0g0,", f"n0g0,{A}", "n0g1,", f"n0g1,{A}"]
    assert [float(line.rpartition(",")[2]) < 1.0 for line in lines[1:]] == [True, True, False, False]


def test_one_noisy_measurement_of_a_partition_does_not_make_it_a_slow_one(tmp_path: Path) -> None:
    """Partitions share caches and memory: the last job of a run has them to itself, and is 5 % faster."""
    parts = [
        DeviceInfo(f"cpu:{place}", "cpu", "cpu", "A processor", None, 1 << 30, 1, processors=(place,))
        for place in range(2)
    ]
    store, model = CalibrationStore(tmp_path), parts[0].described
    for part, seconds in zip(parts, (1.0, 1.05), strict=True):
        store.add(part, {A: time(seconds)})
    assert {each[A].speed for each in store.speeds(model).values()} == {1.0}
    store.add(parts[1], {A: time(1.4)})  # such as a core of another kind
    assert store.speeds(model)[identity(parts[1]) or ""][A].speed < 0.95
