"""Runs on several devices: partitions of the processors, and fake GPUs."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ecoshare.core.commands import ProfileJob, StartJob
from ecoshare.core.events import Profiled
from ecoshare.devices.choice import find_all
from ecoshare.devices.occupancy import DeviceAdmission, occupied
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.lane.trace import Kind, read, trace_path
from ecoshare.record import event_log
from ecoshare.record.samples import Sample, Session, of_device
from ecoshare.record.samples import read as read_samples
from tests.driver import FakeDriver, presets
from tests.driver.training import COMPUTES, SCRIPT, STREAMS
from tests.runtime.running import Finished, job_file, resume, run, slow_steps, start, words
from tests.warm import ecoshare, wait_for

TRAINS = """
import os, sys
import torch
torch.manual_seed(int(sys.argv[1]))
model = torch.nn.Sequential(torch.nn.Linear(96, 384), torch.nn.Tanh(), torch.nn.Linear(384, 8))
optimizer = torch.optim.Adam(model.parameters())
for step in range(int(sys.argv[2])):
    loss = model(torch.randn(128, 96)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item().hex(), torch.get_num_threads(), sorted(os.sched_getaffinity(0)))
"""
PARTS = ("--device", "cpu/2")

needs_two = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two partitions take two processors")


def trains(folder: Path, name: str, seed: int, steps: int = 120, **keys: Any) -> dict[str, Any]:
    (folder / "trains.py").write_text(TRAINS)
    return {"name": name, "script": "trains.py", "args": [seed, steps], **keys}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Four jobs on two partitions of the processors, and one that uses both at once."""
    folder = tmp_path_factory.mktemp("both")
    jobs = [trains(folder, f"j{seed}", seed) for seed in range(4)]
    return run(folder, *jobs, trains(folder, "wide", 9, gpus=2), options=PARTS)


@pytest.mark.slow
@needs_two
def test_jobs_are_placed_on_both_devices(both: Finished) -> None:
    assert both.code == 0, both.stderr
    assert [device["name"] for device in both.summary["devices"]] == ["cpu:0", "cpu:1"]
    narrow = [both.job(f"j{seed}")["devices"] for seed in range(4)]
    assert sorted(narrow) == [["cpu:0"], ["cpu:0"], ["cpu:1"], ["cpu:1"]]
    wide = both.job("wide")
    assert (wide["devices"], wide["keeps_lane"]) == (["cpu:0", "cpu:1"], "one process uses 2 devices")


@pytest.mark.nightly
@needs_two
def test_a_job_has_the_processors_and_the_bits_of_its_partition(both: Finished, tmp_path: Path) -> None:
    processors = {device["name"]: device["processors"] for device in both.summary["devices"]}
    assert sorted(number for each in processors.values() for number in each) == sorted(os.sched_getaffinity(0))
    for name in ("j0", "j1", "wide"):
        own = sorted(number for device in both.job(name)["devices"] for number in processors[device])
        _, threads, affinity = both.log(name).decode().split(" ", 2)
        assert (int(threads), json.loads(affinity)) == (len(own), own)
    (tmp_path / "trains.py").write_text(TRAINS)
    own = processors[both.job("j1")["devices"][0]]
    alone = subprocess.run(
        [sys.executable, tmp_path / "trains.py", "1", "120"],
        capture_output=True,
        preexec_fn=partial(os.sched_setaffinity, 0, own),  # same as `taskset`
    )
    assert both.log("j1") == alone.stdout, alone.stderr


@pytest.mark.slow
@needs_two
def test_joules_are_counted_for_each_device_and_add_up(both: Finished) -> None:
    summary = both.summary
    devices = summary["devices"]
    assert math.isclose(sum(each["energy"]["value_j"] for each in devices), summary["energy"]["value_j"])
    assert math.isclose(sum(each["idle_energy_j"] for each in devices), summary["idle_energy_j"])
    assert math.isclose(sum(each["idle_power_w"] for each in devices), summary["idle_power_w"])
    assert summary["energy"]["source"] == "modelled"
    assert "count all partitions together" in devices[0]["energy"]["about"]
    lines = list(read_samples(both.folder / "samples.jsonl"))
    for device in devices:
        session, *samples = of_device(lines, device["name"])
        assert isinstance(session, Session) and len(samples) > 1
        seen = {key for sample in samples if isinstance(sample, Sample) for key in sample.jobs}
        assert seen == {f"{job['name']}#1" for job in summary["jobs"] if device["name"] in job["devices"]}


@pytest.mark.slow
@needs_two
def test_every_view_names_the_devices(both: Finished, tmp_path: Path) -> None:
    shown = ecoshare("explain", both.folder).stdout
    assert shown.index("cpu:0") < shown.index("cpu:1")
    for form in ("html", "perfetto", "csv"):
        done = ecoshare("export", both.folder, "--format", form, "--output", tmp_path / form)
        assert done.returncode == 0, done.stderr
    report = (tmp_path / "html").read_text()
    assert "Power of cpu:0 over time" in report and "Devices and versions" in report
    assert b"cpu:1" in (tmp_path / "perfetto").read_bytes()
    dry = ecoshare(*words(job_file(tmp_path, slow_steps("a", 1)), *PARTS, "--dry-run")).stdout
    assert [device["name"] for device in json.loads(dry)["devices"]] == ["cpu:0", "cpu:1"]


@pytest.mark.nightly
@needs_two
def test_a_window_on_one_device_pauses_no_job_of_the_other(tmp_path: Path) -> None:
    """Two new classes on each device: while one is measured, its neighbour in the lane waits."""
    jobs = [slow_steps(name, 500, 10 + number) for number, name in enumerate("abcd")]
    store = ProfileStore(tmp_path / "profiles")
    done = run(tmp_path, *jobs, options=(*PARTS, "--profiles", str(store.folder)))
    assert done.code == 0, done.stderr
    for path in store.folder.glob("slow_steps-*.json"):
        made = store.find(path.stem)
        assert made is not None and made.machine.intra_op_threads == made.machine.cores == 1
        assert made.origin.device_model.endswith("1 cores"), "profiles of all processors are others"
    entries = list(event_log.read(done.folder / "events.jsonl"))
    device_of = {job["name"]: job["devices"][0] for job in done.summary["jobs"]}
    windows = {entry.id: entry.job for entry in entries if isinstance(entry, ProfileJob)}
    ended_s = {entry.command: entry.at_s for entry in entries if isinstance(entry, Profiled)}
    began_s = {each["job"]: each["from_s"] for each in done.summary["windows"]}
    assert {device_of[job] for job in windows.values()} == {"cpu:0", "cpu:1"}
    for command, measured in windows.items():
        (window,) = [each for each in done.summary["windows"] if each["job"] == measured]
        assert window["device"] == device_of[measured]
        from_s, to_s = began_s[measured] + 0.1, min(ended_s[command], done.job(measured)["finish_s"]) - 0.1
        inside = {job: _marks_between(done.folder / "jobs" / job, from_s, to_s) for job in device_of}
        beside = [job for job in device_of if device_of[job] == device_of[measured] and job != measured]
        assert inside[measured] > 5 and all(inside[job] <= 1 for job in beside)
        jobs_there = [job for job, device in device_of.items() if device != device_of[measured]]
        goes_on = [job for job in jobs_there if _lasts(done.job(job), from_s, to_s)]
        assert not goes_on or sum(inside[job] for job in goes_on) > 5, "the other device works on"


def _marks_between(folder: Path, from_s: float, to_s: float) -> int:
    marks = [mark for mark in read(trace_path(folder, 1)) if mark.kind in (Kind.TRAIN, Kind.EVAL)]
    return sum(from_s < mark.at_s < to_s for mark in marks)


def _lasts(job: dict[str, Any], from_s: float, to_s: float) -> bool:
    return bool(job["start_s"] < from_s and job["finish_s"] > to_s)


@pytest.mark.slow
@needs_two
def test_jobs_of_several_devices_take_their_lanes_in_one_order(tmp_path: Path) -> None:
    """Before lanes had an order, two such jobs could each wait for a lane that the other held."""
    jobs = [trains(tmp_path, f"wide{seed}", seed, 40, gpus=2) for seed in range(3)]
    jobs += [trains(tmp_path, f"narrow{seed}", seed, 40) for seed in range(4)]
    done = run(tmp_path, *jobs, options=(*PARTS, "--lanes", "2", "--policy", "fifo"))
    assert done.code == 0, done.stderr
    assert {job["state"] for job in done.summary["jobs"]} == {"completed"}


@pytest.mark.nightly
@needs_two
def test_a_run_on_two_devices_is_resumed_there(tmp_path: Path) -> None:
    path = job_file(tmp_path, *(slow_steps(name, 40, 20) for name in "abcd"))
    process = start(path, *PARTS)
    folder = tmp_path / "ecoshare-runs" / "latest"
    wait_for(lambda: (folder / "samples.jsonl").exists() and _started(folder) == 4)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    done = resume(folder)
    assert done.code == 0, done.stderr
    assert [device["name"] for device in done.summary["devices"]] == ["cpu:0", "cpu:1"]
    assert {job["state"] for job in done.summary["jobs"]} == {"completed"}


def _started(folder: Path) -> int:
    return sum(isinstance(entry, StartJob) for entry in event_log.read(folder / "events.jsonl"))


@pytest.mark.slow
def test_two_gpus_are_measured_each_by_its_own_counter(tmp_path: Path) -> None:
    """One kind of job computes and the other streams: the two draw different watts, on different GPUs."""
    (tmp_path / "trains.py").write_text(SCRIPT)
    driver = FakeDriver(tmp_path, [presets.H200, presets.H200])
    path = job_file(tmp_path, COMPUTES.job(60), STREAMS.job(60))
    environment = {**os.environ, **driver.environment}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    line = [word for word in words(path, "--control", "off") if word not in ("--device", "cpu")]
    done = ecoshare(*line, environment=environment)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert [device["name"] for device in summary["devices"]] == ["cuda:0", "cuda:1"]
    assert {device["energy"]["source"] for device in summary["devices"]} == {"measured"}
    assert [job["devices"] for job in summary["jobs"]] == [["cuda:0"], ["cuda:1"]]
    active_j = [device["energy"]["value_j"] - device["idle_energy_j"] for device in summary["devices"]]
    for job, own_j in zip(summary["jobs"], active_j, strict=True):
        assert job["energy"]["value_j"] == pytest.approx(own_j)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("held", "wanted", "named"),
    [("cuda:0,cuda:1", "cuda:1", "cuda:1"), ("cuda:1", "cuda:0,cuda:1", "cuda:1"), ("cpu/2", "cpu/2", "cpu")],
)
def test_a_run_on_a_device_of_another_run_is_refused_with_its_name(
    tmp_path: Path, held: str, wanted: str, named: str
) -> None:
    if "cpu" in held and len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two partitions take two processors")
    (tmp_path / "trains.py").write_text(SCRIPT)
    driver = FakeDriver(tmp_path, [presets.H200, presets.H200])
    line = [word for word in words(job_file(tmp_path, COMPUTES.job(1))) if word not in ("--device", "cpu")]
    environment = {**os.environ, **driver.environment}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    with driver, occupied(partial(find_all, held), DeviceAdmission.REFUSE, print) as first:
        first.tell(tmp_path / "first")
        done = ecoshare(*line, "--device", wanted, "--no-wait", environment=environment)
    assert done.returncode == 4
    said, hint = done.stderr.splitlines()
    assert said.startswith(f"error: {named} is used by the run {tmp_path / 'first'} ("), said
    assert f"process {os.getpid()} " in said
    assert "--wait" in hint
    assert not (tmp_path / "ecoshare-runs").exists()


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--device", "cpu/64"), 4, "--device cpu/64: each takes a core or more"),
        (("--device", "cpu", "--devices", "2"), 4, "--devices 2: --device cpu names 1 device"),
        (("--device", "all"), 4, "--device all: this machine shows no GPU"),
        (("--device", "cpu"), 3, "jobs[0].gpus: the job needs 3 devices, and the run has 1"),
    ],
)
def test_what_cannot_be_starts_nothing(tmp_path: Path, options: tuple[str, ...], code: int, said: str) -> None:
    path = job_file(tmp_path, slow_steps("a", 1, gpus=3))
    done = ecoshare(*words(path, *options))
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert not (tmp_path / "ecoshare-runs").exists()
