"""`ecoshare devices`: what is refused, and calibrations of two partitions of the processors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest

from ecoshare.devices.choice import find_all
from ecoshare.devices.occupancy import DeviceAdmission, occupied
from ecoshare.knowledge.calibration_store import CalibrationStore, IterationTime
from ecoshare.simulation.cluster import GPUS, Cluster, read
from tests.warm import COLD, ecoshare, wait_for

needs_two = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two partitions take two processors")
CALIBRATE = ("devices", "--calibrate", "--device", "cpu/2", "--seconds", "0.3")


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "ECOSHARE_STATE": str(folder / "state"), "ECOSHARE_PROFILES": str(folder / "profiles")}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--seconds", "3"), 2, "--seconds is the time of a load, and goes with --calibrate"),
        (("--device", "cpu/2"), 2, "--device names the devices of --calibrate or --calibration"),
        (("--calibrate", "--device", "cpu"), 4, "cpu is one device, and there is nothing to compare it with"),
        (("--calibrate", "--device", "cpu/2", "--seconds", "0"), 2, "--seconds"),
        (("--calibration", "x.csv", "--device", "cpu/2"), 4, "no speed of cpu:0 is known"),
    ],
)
@needs_two
def test_a_wrong_request_is_one_line(tmp_path: Path, words: tuple[str, ...], code: int, said: str) -> None:
    done = ecoshare("devices", *words, cwd=tmp_path, environment=environment(tmp_path))
    assert done.returncode == code and said in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "x.csv").exists() and not (tmp_path / "profiles").exists()


@needs_two
def test_devices_in_use_are_not_calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = environment(tmp_path)
    monkeypatch.setenv("ECOSHARE_STATE", own["ECOSHARE_STATE"])
    with occupied(partial(find_all, "cpu/2"), DeviceAdmission.REFUSE, print) as occupancy:
        occupancy.tell(Path("/somewhere/runs/first"))
        done = ecoshare(*CALIBRATE, "--no-wait", cwd=tmp_path, environment=own)
    assert done.returncode == 4 and "cpu is used by the run /somewhere/runs/first" in done.stderr


@needs_two
def test_a_load_that_fails_names_the_device_and_the_reason(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise RuntimeError('no kernel image is available')")
    own = {**environment(tmp_path), "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = ecoshare(*CALIBRATE, cwd=tmp_path, environment=own)
    assert done.returncode == 4
    assert "cpu:0: the load failed: RuntimeError: no kernel image is available" in done.stderr


@needs_two
def test_times_that_cannot_be_kept_are_not_measured(tmp_path: Path) -> None:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles/calibration").touch()
    done = ecoshare(*CALIBRATE[:-1], "3000", cwd=tmp_path, environment=environment(tmp_path))
    assert done.returncode == 4 and f"error: cannot write to {tmp_path}/profiles/calibration" in done.stderr
    assert "--profiles" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
@needs_two
def test_known_speeds_are_shown_and_written_for_the_simulator(tmp_path: Path) -> None:
    store = CalibrationStore(tmp_path / "profiles")
    for place, device in enumerate(find_all("cpu/2")):
        time = IterationTime(seconds=1.0 + 0.2 * place, iterations=100, run="r")
        store.add(device, {"train-000000000000": time, "(compute)": time})
    own = environment(tmp_path)
    shown = ecoshare("devices", cwd=tmp_path, environment=own).stdout
    assert "cpu:0: speed 1.06" in shown and "from 2 classes" in shown
    found = json.loads(ecoshare("devices", "--json", cwd=tmp_path, environment=own).stdout)[-1]["speeds"]
    assert [each["name"] for each in found] == ["cpu:0", "cpu:1"] and found[0]["speed"] > 1.0 > found[1]["speed"]
    done = ecoshare("devices", "--calibration", "x.csv", "--device", "cpu/2", cwd=tmp_path, environment=own)
    assert done.returncode == 0, done.stderr
    read_again = read(tmp_path / "x.csv", Cluster(1, 2, GPUS["v100"]))
    assert read_again["n0g0"] == {"": found[0]["speed"], "train-000000000000": found[0]["speed"]}
    done = ecoshare("devices", "--calibration", "no/x.csv", "--device", "cpu/2", cwd=tmp_path, environment=own)
    assert (done.returncode, done.stderr) == (2, "error: cannot write no/x.csv: No such file or directory\n")


@pytest.mark.nightly
@needs_two
def test_two_partitions_are_measured_and_compared(tmp_path: Path) -> None:
    own = environment(tmp_path)
    done = ecoshare(*CALIBRATE, "--json", cwd=tmp_path, environment=own)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert [each["device"] for each in result["devices"]] == ["cpu:0", "cpu:1"]
    processors = [number for each in result["devices"] for number in each["processors"]]
    assert sorted(processors) == sorted(os.sched_getaffinity(0))
    for each in result["devices"]:
        assert all(time["iterations"] >= 3 and time["seconds"] > 0.0 for time in each["times"].values())
        assert each["times"].keys() == each["speeds"].keys() == {"(compute)", "(memory)"}
    (first, second) = CalibrationStore(tmp_path / "profiles").all()
    assert (first.name, second.name) == ("cpu:0", "cpu:1") and len(first.classes) == 2


@needs_two
@pytest.mark.slow
def test_an_interrupted_calibration_leaves_no_process_and_no_claim(tmp_path: Path) -> None:
    own = environment(tmp_path)
    process = subprocess.Popen(
        [*COLD, *CALIBRATE[:-1], "60"], cwd=tmp_path, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    wait_for(lambda: len(children.read_text().split()) == 2)
    loads = children.read_text().split()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130 and errors.splitlines()[-1] == "error: interrupted"
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in loads))
    assert list((tmp_path / "state").glob("*.run")) == []
