"""`ecoshare tune` on a fake GPU beside fake processors: one search, joules of both, and both are put back."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ecoshare.base.joules import relative_energy
from ecoshare.core.commands import ApplySetting
from ecoshare.core.events import SettingMeasured
from ecoshare.knowledge.tuning_store import TuningResult
from tests.devices.fake_processors import FakeProcessors
from tests.driver import FakeDriver, presets
from tests.driver.training import COMPUTES, STREAMS, WAITS
from tests.runtime.machine import BEFORE, MARKS, Machine
from tests.warm import Started, wait_for

pytestmark = MARKS


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeProcessors]:
    with FakeProcessors(tmp_path) as fake:
        yield fake
        assert fake.caps_mhz == [3000.0, 3000.0], "whatever happened, the processors are as they were"


def result_of(text: str) -> TuningResult:
    tuned = json.loads(text)
    return TuningResult.model_validate({name: value for name, value in tuned.items() if name not in ("run", "ending")})


@pytest.mark.nightly
def test_the_joules_of_both_decide_and_are_kept_apart(fake: FakeProcessors, machine: Machine) -> None:
    machine.jobs(WAITS)
    done = machine.run("tune", "jobs.yaml", "--knobs", "cpu_frequency", "--budget", "5", "--json")
    assert done.returncode == 0, done.stderr
    tuned = result_of(done.stdout)
    assert [knob.name for knob in tuned.knobs] == ["cpu_frequency"] and tuned.with_processors
    default, *others = tuned.trials
    assert default.requested == {"cpu_frequency": 3000.0} and others
    assert default.power_w is not None and default.processors_w is not None
    assert default.processors_w == pytest.approx(fake.power_w(3000.0), rel=0.05)
    total_w = default.power_w + default.processors_w
    (job,) = default.times
    for trial in others:
        cap = trial.requested["cpu_frequency"]
        assert isinstance(cap, float) and trial.achieved["cpu_frequency"] == cap
        assert trial.processors_w == pytest.approx(fake.power_w(cap), rel=0.08), "while it was set"
        assert trial.power_w is not None and trial.processors_w is not None
        assert trial.power_w == pytest.approx(default.power_w, rel=0.1), "the GPU's alone"
        # The script does not feel its processors here, so the energy is the ratio of all watts.
        ratio = (trial.power_w + trial.processors_w) / total_w * trial.interference[job]
        assert trial.energy is not None and default.energy is not None
        assert trial.energy / default.energy == pytest.approx(ratio, rel=0.06)
    assert tuned.best is not None and tuned.best["cpu_frequency"] != 3000.0
    assert tuned.saved_against_default is not None and tuned.saved_against_default > 0.05
    joules = sum((each.joules or 0.0) + (each.processors_j or 0.0) for each in tuned.trials)
    assert tuned.search_energy_j == pytest.approx(joules)
    told = [each.measurement for each in machine.entries() if isinstance(each, SettingMeasured)]
    assert [each.processors_j for each in told] == [each.processors_j for each in tuned.trials], "the log has both, too"

    again = machine.run("tune", "jobs.yaml", "--knobs", "cpu_frequency,power_limit", "--budget", "2")
    assert again.returncode == 0, again.stderr
    assert "energy is that of the GPU and of the processors (RAPL): " in again.stdout

    machine.jobs(WAITS, steps=100)
    used = machine.run("run", "jobs.yaml", "--control", "known", "--no-report")
    assert used.returncode == 0 and "cpu_frequency" in used.stderr
    applied = [dict(each.setting) for each in machine.entries() if isinstance(each, ApplySetting) and each.setting]
    assert any("cpu_frequency" in setting for setting in applied)


@pytest.mark.nightly
def test_watts_alone_are_on_the_same_basis(fake: FakeProcessors, machine: Machine) -> None:
    """The profiles have the watts of the GPU alone, which would make every packing look dear."""
    machine.jobs(COMPUTES, WAITS)
    done = machine.run("tune", "jobs.yaml", "--knobs", "cpu_frequency", "--budget", "1", "--json")
    assert done.returncode == 0, done.stderr
    (default,) = result_of(done.stdout).trials
    profiles = [json.loads(path.read_text()) for path in (machine.folder / "profiles").glob("*.json")]
    alone_s = {each["name"] if "name" in each else each["job_class"]: each["train"]["mean_s"] for each in profiles}
    assert len(alone_s) == 2 and default.power_w and default.processors_w and default.energy
    total_w = default.power_w + default.processors_w
    (measured,) = [each.measurement for each in machine.entries() if isinstance(each, SettingMeasured)]
    work = [
        (total_w * next(s for name, s in alone_s.items() if name.startswith(job)), rate)
        for job, rate in measured.rates.items()
    ]
    assert default.energy == pytest.approx(relative_energy(total_w, work), rel=1e-6)


@pytest.mark.nightly
def test_without_the_knob_the_processors_are_no_part_of_it(fake: FakeProcessors, machine: Machine) -> None:
    machine.jobs(WAITS)
    done = machine.run("tune", "jobs.yaml", "--knobs", "power_limit", "--budget", "2", "--json")
    assert done.returncode == 0, done.stderr
    tuned = result_of(done.stdout)
    assert not tuned.with_processors and all(each.processors_j is None for each in tuned.trials)
    assert "cpu_frequency" not in done.stderr


@pytest.mark.nightly
def test_tune_says_why_the_processors_are_left_out(machine: Machine) -> None:
    machine.jobs(WAITS)
    done = machine.run("tune", "jobs.yaml", "--budget", "1")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("cpu_frequency is not searched: the kernel offers no frequencies here") == 1
    named = machine.run("tune", "jobs.yaml", "--knobs", "cpu_frequency", "--budget", "1")
    assert named.returncode == 2 and "--knobs cpu_frequency: the kernel offers no frequencies here" in named.stderr
    shown = Started("devices", cwd=machine.folder, environment=machine.environment).done()
    assert "cpu_frequency" in shown.stdout and "the kernel offers no frequencies here" in shown.stdout


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_ctrl_c_and_kill_9_in_a_trial_put_everything_back(
    fake: FakeProcessors, machine: Machine, number: signal.Signals
) -> None:
    process = machine.start("tune", "trains.py", "--", *STREAMS.args(100_000), "--responds")
    wait_for(lambda: machine.trial_begins(1) and fake.caps_mhz not in ([], [3000.0, 3000.0]), 200)
    os.kill(process.pid, number)
    wait_for(lambda: fake.caps_mhz == [3000.0, 3000.0] and machine.driver.gpu(0).settings() == BEFORE)
    stdout, stderr = process.communicate(timeout=60)
    if number == signal.SIGINT:
        assert process.returncode == 130, stderr
        assert "nothing is kept" in stderr and "cut off" in stdout and "Traceback" not in stderr
    assert not list((machine.folder / "profiles").glob("tuned/*.json"))
    wait_for(lambda: not list((machine.folder / "state").glob("*.json")))


@pytest.mark.nightly
def test_a_counter_that_stands_still_spoils_the_measurement(tmp_path: Path, machine: Machine) -> None:
    FakeProcessors(tmp_path)  # not entered: its joules do not advance
    machine.jobs(WAITS)
    done = machine.run("tune", "jobs.yaml", "--knobs", "cpu_frequency")
    assert done.returncode == 4 and "the energy counter of the processors stood still" in done.stderr


@pytest.mark.nightly
def test_of_two_runs_on_two_gpus_one_sets_the_processors(tmp_path: Path, fake: FakeProcessors) -> None:
    machine = Machine(tmp_path)
    machine.driver = FakeDriver(tmp_path, [presets.H200, presets.H200])
    words = ("--", *STREAMS.args(100_000), "--responds")
    first = machine.start("tune", "trains.py", *words)
    wait_for(lambda: machine.trial_begins(1), 200)
    line = (
        "tune",
        "--device",
        "cuda:1",
        "--profiles",
        "other",
        "--runs",
        "others",
        "--budget",
        "1",
        "trains.py",
        *words,
    )
    second = Started(*line, cwd=machine.folder, environment=machine.environment).done()
    assert second.returncode == 0, second.stderr
    assert "cpu_frequency is not searched: " in second.stderr and f"process {first.pid} (" in second.stderr
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=60)
