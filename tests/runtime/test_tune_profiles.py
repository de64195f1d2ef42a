"""`ecoshare tune` on a fake GPU with workload power profiles: tried, reported and put back, also after a kill."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ecoshare.knowledge.tuning_store import TuningResult
from tests.devices.claims import FOUND_W
from tests.driver import presets
from tests.driver.fake import Settings
from tests.driver.presets import COMPUTE, HIGH
from tests.driver.training import COMPUTES, STREAMS
from tests.runtime.machine import MARKS, Machine
from tests.warm import wait_for

pytestmark = MARKS

THEIRS = (COMPUTE, HIGH)
BEFORE = Settings(FOUND_W, None, None, False, THEIRS)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Machine with a GPU that has power profiles; another program has requested two of them."""
    machine = Machine(tmp_path, presets.B200)
    machine.driver.gpu(0).request_profiles(*THEIRS)
    yield machine
    assert machine.driver.gpu(0).settings() == BEFORE, "whatever happened, the GPU is as it was"
    assert not list((tmp_path / "state").glob("*.json"))


@pytest.mark.nightly
def test_profiles_are_searched_alone_and_with_the_other_knobs(machine: Machine) -> None:
    machine.jobs(COMPUTES)
    default = "compute+profile_40"
    alone = machine.run("tune", "jobs.yaml", "--knobs", "power_profile", "--budget", "4", "--json")
    assert alone.returncode == 0, alone.stderr
    tuned = json.loads(alone.stdout)
    (knob,) = tuned["knobs"]
    assert (knob["lowest"], knob["highest"], knob["count"], knob["unit"]) == (None, None, 7, "")
    kept = TuningResult.model_validate({name: value for name, value in tuned.items() if name not in ("run", "ending")})
    first, *others = kept.trials
    assert first.requested == kept.default == {"power_profile": default} and others
    for trial in others:
        assert trial.achieved["power_profile"] == trial.requested["power_profile"], "what the board enforces"
    assert kept.best is not None and kept.saved_against_default is not None and kept.saved_against_default >= 0.0
    assert default in alone.stderr, "the lines of the search show the profiles by name"

    every = machine.run("tune", "jobs.yaml", "--budget", "2")
    assert every.returncode == 0, every.stderr
    assert "power_profile" in every.stdout and "gpu_clock" in every.stdout and default in every.stdout


@pytest.mark.nightly
def test_profiles_that_another_program_requests_meanwhile_are_told_and_stay(machine: Machine) -> None:
    gpu = machine.driver.gpu(0)
    process = machine.start("tune", "trains.py", "--knobs", "power_profile", "--", *STREAMS.args(100_000), "--responds")
    wait_for(lambda: gpu.settings().power_profiles not in ((), THEIRS), 120)
    gpu.request_profiles(0, 1, HIGH)
    stdout, stderr = process.communicate(timeout=120)
    assert "max_p and max_q and profile_40, which another program has set" in stderr and "Traceback" not in stderr, (
        stdout,
        stderr,
    )
    assert gpu.settings().power_profiles == (0, 1, HIGH), "not overwritten"
    gpu.request_profiles(*THEIRS)


@pytest.mark.nightly
def test_kill_9_in_a_trial_puts_all_profiles_back(machine: Machine) -> None:
    process = machine.kill_in_a_trial()
    wait_for(lambda: machine.driver.gpu(0).settings() == BEFORE)
    process.communicate()
    wait_for(lambda: not list((machine.folder / "state").glob("*.json")))
