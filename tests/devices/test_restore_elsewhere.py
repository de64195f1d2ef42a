"""Journals of other machines that share the home folder of a user, as machines of a cluster do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ecoshare.base.class_profile import POWER_LIMIT
from ecoshare.cli.restore import restore
from ecoshare.devices.control.journal import Journal
from ecoshare.devices.control.restore import Foreign, KnobOutcome, mend
from ecoshare.devices.control.state_folder import StateFolder, key
from ecoshare.devices.cpu_knobs import CPU_FREQUENCY
from ecoshare.devices.registry import processors
from ecoshare.errors import NotRestored
from tests.driver import FakeDriver

OTHER_BOOT = "a start of another machine"


def left(state: StateFolder, device: str, vendor: str, knob: str, boot: str | None = OTHER_BOOT) -> Path:
    """Journal that a killed run has left; the boot is that of another machine, or of this one."""
    made = Journal.new(device, vendor, "a device").noting(knob, (300.0,), ((300.0,), (200.0,)))
    (made if boot is None else replace(made, boot=boot)).write(path := state.journal(device))
    return path


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateFolder:
    monkeypatch.setenv("ECOSHARE_STATE", str(tmp_path))
    return StateFolder.of_this_user()


def test_devices_of_another_machine_are_left_alone(
    state: StateFolder, driver: FakeDriver, capsys: pytest.CaptureFixture[str]
) -> None:
    """If it failed, `ecoshare restore` on one machine could set its processors to the values of another one."""
    paths = [
        left(state, "processors-other", "cpu", CPU_FREQUENCY),
        left(state, "GPU-of-another-machine", "nvidia", POWER_LIMIT),
    ]
    restore()
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count("is not on this machine, but on one that shares") == 2
    assert all(path.exists() for path in paths)
    for path in paths:
        (done,) = mend(path, state, foreign=Foreign.OVERWRITE, of_any_machine=True)
        assert done.outcome is KnobOutcome.ELSEWHERE


@pytest.mark.parametrize(
    ("device", "vendor", "knob", "boot"),
    [
        ("GPU-that-fell-off", "nvidia", POWER_LIMIT, None),
        ("processors-of-a-container", "cpu", CPU_FREQUENCY, None),
        ("", "cpu", CPU_FREQUENCY, OTHER_BOOT),
    ],
)
def test_devices_of_this_machine_are_not(
    state: StateFolder, driver: FakeDriver, device: str, vendor: str, knob: str, boot: str | None
) -> None:
    """A machine is known by its start, so containers of it are this one; processors also by their key."""
    path = left(state, device or key(processors()), vendor, knob, boot)
    (done,) = mend(path, state, of_any_machine=True)
    assert done.outcome is not KnobOutcome.ELSEWHERE
    if device.startswith("GPU"):
        with pytest.raises(NotRestored):
            restore()


def test_a_gpu_that_is_here_is_restored_after_a_restart(state: StateFolder, driver: FakeDriver) -> None:
    path = left(state, driver.gpu(0).uuid, "nvidia", POWER_LIMIT)
    (done,) = mend(path, state, foreign=Foreign.OVERWRITE, of_any_machine=True)
    assert done.outcome is KnobOutcome.RESTORED and not path.exists()
