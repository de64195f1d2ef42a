"""`ecoshare.profile` and `ecoshare.tune` in a program: real scripts, on the processors and on the fake GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import ecoshare
from ecoshare.errors import JobFailed, NotRestored
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.knowledge.tuning_store import TuningStore
from ecoshare.runtime.nodes import run_host
from tests.driver.training import COMPUTES, WAITS
from tests.runtime.conftest import machine as machine
from tests.runtime.machine import MARKS, Machine
from tests.runtime.running import SCRIPTS
from tests.warm import Started, spawned
from tests.warm import ecoshare as command

TUNES = """
import json
import ecoshare

result = ecoshare.tune("jobs.yaml", budget=4, device="cuda:0", profiles="profiles", runs="runs")
result.check()
result.draw("f.svg")
print(json.dumps({"told": result.as_dict(), "jobs": [job.state for job in result.run.jobs]}))
"""


@pytest.mark.slow
def test_a_profile_is_measured_stored_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_host, "Spawned", spawned)
    args = ["--steps", "100000", "--ms", "5"]
    result = ecoshare.profile(SCRIPTS / "slow_steps.py", args=args, iterations=20, device="cpu", profiles="kept")
    assert result.file.parent == Path("kept") and result.file.exists()
    assert ProfileStore(Path("kept")).find(result.profile.job_class) == result.profile
    assert result.profile.train is not None and result.profile.train.count >= 15, "some end outside of the samples"
    assert [job.state for job in result.run.jobs] == ["cancelled"], "it was stopped when it was measured"
    assert result.draw().read_text().startswith("<?xml")
    shown = command("profile", result.file, "--json", cwd=tmp_path).stdout
    assert json.loads(shown) == result.profile.model_dump(mode="json")


@pytest.mark.slow
def test_a_script_that_ends_first_is_a_typed_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_host, "Spawned", spawned)
    with pytest.raises(JobFailed, match="no iteration was seen"):
        ecoshare.profile(SCRIPTS / "no_torch.py", device="cpu")


class TestTune:
    """Tune a packing on the fake GPU; its settings must be restored."""

    pytestmark = MARKS

    @pytest.mark.nightly
    def test_a_program_tunes_a_packing(self, machine: Machine) -> None:
        machine.jobs(COMPUTES, WAITS)
        (program := machine.folder / "tunes.py").write_text(TUNES)
        done = Started(cwd=machine.folder, environment=machine.environment, script=program).done()
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        found = json.loads(done.stdout)
        told = found["told"]
        assert found["jobs"] == ["cancelled", "cancelled"] and told.pop("run") and told.pop("ending")
        classes = {name for lane in told["packing"] for name in lane}
        (kept,) = TuningStore(machine.folder / "profiles").of(classes, "NVIDIA H200", "energy")
        assert json.loads(kept.model_dump_json()) == told
        assert 1 < len(kept.trials) <= 4 and (machine.folder / "f.svg").stat().st_size


def test_settings_that_were_not_put_back_come_before_all_else(tmp_path: Path) -> None:
    """If it failed, a failed job would hide that the device is not as it was."""
    from ecoshare.devices.control.restore import KnobOutcome, Restored
    from ecoshare.record.results.run_summary import RunSummary
    from ecoshare.record.run_data import RunData

    left = Restored("gpu0", "power_limit", KnobOutcome.FAILED, "the power limit stays at 300 W", "run as root")
    result = ecoshare.RunResult(
        tmp_path, RunData(RunSummary("r", "energy", "fair", (), 1, "interrupted")), unrestored=(left,)
    )
    with pytest.raises(NotRestored, match="300 W"):
        result.check()
