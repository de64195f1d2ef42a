"""`ecoshare tune` on a fake GPU that is slower at lower clocks: real jobs, real settings, all put back."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
import yaml

from ecoshare.core.commands import ApplySetting, MeasureSetting
from ecoshare.core.events import SettingMeasured
from ecoshare.knowledge.tuning_store import TuningResult, TuningStore
from tests.devices.claims import FOUND_W
from tests.driver import Fault
from tests.driver.training import COMPUTES, STREAMS, WAITS
from tests.runtime.machine import BEFORE, MARKS, Machine
from tests.warm import wait_for

pytestmark = MARKS


@pytest.mark.nightly
def test_a_packing_is_tuned_and_the_next_run_uses_it(machine: Machine) -> None:
    machine.jobs(COMPUTES, WAITS)
    done = machine.run("tune", "jobs.yaml", "--budget", "5", "--json")
    assert done.returncode == 0, done.stderr
    tuned = json.loads(done.stdout)
    assert tuned.pop("run") and tuned.pop("ending")
    (kept,) = TuningStore(machine.folder / "profiles").of(
        {name for lane in tuned["packing"] for name in lane}, "NVIDIA H200", "energy"
    )
    assert kept == TuningResult.model_validate(tuned)
    first, *others = kept.trials
    assert first.requested == kept.default == {"gpu_clock": "unlocked", "power_limit": FOUND_W}
    assert first.interference == {"computes": 1.0, "waits": 1.0} and first.feasible and first.energy is not None
    assert others and kept.search_energy_j is not None and kept.search_energy_j > 0.0
    for trial in others:
        if trial.requested["gpu_clock"] != "unlocked":
            assert isinstance(trial.requested["gpu_clock"], float)
            assert isinstance(trial.achieved["gpu_clock"], float)
            assert trial.achieved["gpu_clock"] <= trial.requested["gpu_clock"]
        assert trial.achieved["power_limit"] == trial.requested["power_limit"]
    entries = machine.entries()
    measured = [each for each in entries if isinstance(each, SettingMeasured)]
    assert [each.measurement.joules for each in measured] == [each.joules for each in kept.trials]
    assert {job for each in entries if isinstance(each, MeasureSetting) for job in each.jobs} == {"computes", "waits"}
    assert machine.driver.gpu(0).settings() == BEFORE

    if kept.best == kept.default:
        pytest.skip("the search has found nothing better than the default")
    machine.jobs(COMPUTES, WAITS, steps=150)
    machine.set_before = len(machine.driver.setter_calls())
    off = machine.run("run", "jobs.yaml", "--control", "off", "--no-report")
    assert off.returncode == 0 and machine.set_since() == []
    used = machine.run("run", "jobs.yaml", "--policy", "fair", "--lanes", "2", "--no-report", "--json")
    assert used.returncode == 0 and "clocks and power are set" in used.stderr
    assert machine.set_since(), "and is put back: the fixture looks"
    (setting, *_) = [each.setting for each in machine.entries() if isinstance(each, ApplySetting)]
    assert dict(setting).items() <= (kept.best or {}).items()
    locks = [
        call.values[1] for call in machine.driver.setter_calls() if call.function == "nvmlDeviceSetGpuLockedClocks"
    ]
    if (clock := (kept.best or {}).get("gpu_clock", "unlocked")) != "unlocked":
        assert locks[-1] == clock, "as soon as the jobs keep the GPU busy, and it is seen that no program has locked it"
    assert json.loads(used.stdout)["settings"][0]["setting"] == dict(setting)


def test_control_off_calls_no_setter_whatever_is_run(machine: Machine) -> None:
    machine.jobs(STREAMS, steps=60)
    done = machine.run("run", "jobs.yaml", "--control", "off", "--no-report")
    assert done.returncode == 0, done.stderr
    known = machine.run("run", "jobs.yaml", "--control", "known", "--no-report")
    assert known.returncode == 0 and machine.set_since() == [], "nor does a run for which nothing was tuned"


def test_the_second_is_refused_with_the_name_of_the_first(machine: Machine) -> None:
    process = machine.start("tune", "trains.py", "--", *STREAMS.args(100_000), "--responds", cold=True)
    wait_for(lambda: (machine.folder / "ecoshare-runs/latest/events.jsonl").exists())
    second = machine.run("tune", "trains.py", "--no-wait", "--runs", "others", "--", *STREAMS.args(100), "--responds")
    assert second.returncode == 4 and f"process {process.pid} (" in second.stderr and "tune" in second.stderr
    assert len(second.stderr.strip().splitlines()) == 2, "one line and its remedy"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)


@pytest.mark.nightly
def test_without_permission_it_is_said_once_with_the_remedy(machine: Machine) -> None:
    machine.driver.fault(Fault.NO_PERMISSION)
    done = machine.run("tune", "trains.py", "--", *WAITS.args(100_000), "--responds")
    machine.driver.mend()
    assert done.returncode == 4, done.stdout
    assert done.stderr.count("ZEUSD_SOCK_PATH") <= 2 and "Traceback" not in done.stderr
    assert "nothing can be set" in done.stderr


@pytest.mark.nightly
def test_a_knob_that_fails_on_the_way_leaves_the_others(machine: Machine) -> None:
    machine.driver.fault(Fault.NO_LOCKED_CLOCKS, functions="nvmlDeviceSetGpuLockedClocks", first=2)
    done = machine.run("tune", "trains.py", "--budget", "4", "--json", "--", *STREAMS.args(100_000), "--responds")
    machine.driver.mend()
    assert done.returncode == 0, done.stderr
    tuned = json.loads(done.stdout)
    assert (tuned["best"] is not None and "gpu_clock" not in json.dumps(tuned["best"])) or (
        tuned["best"]["gpu_clock"] == "unlocked"
    )


@pytest.mark.nightly
def test_a_job_that_ends_in_the_search_ends_it(machine: Machine) -> None:
    done = machine.run("tune", "trains.py", "--", *WAITS.args(520), "--responds")
    assert done.returncode == 1 and "ended before" in done.stderr and "Traceback" not in done.stderr


def leave_settings(machine: Machine) -> None:
    """Leave settings like a controller and a guard that are killed together."""
    code = f"""
import os, signal
from ecoshare.devices.control.device_control import DeviceControl
from ecoshare.devices.control.state_folder import StateFolder
control = DeviceControl({machine.driver.gpu(0).uuid!r}, "nvidia", "NVIDIA H200", StateFolder.of_this_user(), True)
assert not control.apply({{"power_limit": 280.0, "gpu_clock": 900.0}}).refused
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=machine.environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.nightly
def test_any_run_puts_back_what_a_dead_one_has_left_and_off_says_so(machine: Machine) -> None:
    """A measurement at another program's settings must not count as the class alone at the default."""
    leave_settings(machine)
    machine.jobs(STREAMS, steps=100)
    off = machine.run("run", "jobs.yaml", "--control", "off", "--no-report", "--json")
    assert off.returncode == 0 and "`ecoshare restore` puts them back" in off.stderr
    assert machine.driver.gpu(0).settings() != BEFORE and not list((machine.folder / "profiles").glob("*.json"))
    assert json.loads(off.stdout)["windows"] == []
    machine.jobs(STREAMS, steps=400)
    auto = machine.run("run", "jobs.yaml", "--no-report")
    assert auto.returncode == 0 and "left by a run that died" in auto.stderr
    assert machine.driver.gpu(0).settings() == BEFORE
    (profile,) = (machine.folder / "profiles").glob("*.json")
    assert json.loads(profile.read_text())["setting"]["power_limit_w"] == FOUND_W


def test_a_job_file_with_services_is_refused(machine: Machine) -> None:
    """A service never settles, so the search would never begin."""
    path = machine.jobs(STREAMS)
    jobs = yaml.safe_load(path.read_text())
    jobs["jobs"].append({"name": "serves", "script": "trains.py", "service": {"p99": "50 ms"}})
    path.write_text(yaml.safe_dump(jobs))
    done = machine.run("tune", "jobs.yaml")
    assert (done.returncode, done.stdout) == (2, "") and "services are tuned while they serve (serves)" in done.stderr
