"""GPU settings through zeus' daemon, for users without root: real requests to a real socket."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from ecoshare.base.class_profile import POWER_LIMIT
from ecoshare.devices.control.restore import KnobOutcome, mend
from ecoshare.devices.knob import GPU_CLOCK, Cause
from ecoshare.devices.nvidia.nvidia_knobs import GpuKnobs
from tests.devices.claims import FOUND_W, claim, limited, state_in
from tests.driver import FakeDriver, Fault
from tests.driver.zeusd import Zeusd


@pytest.fixture
def socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "zeusd.sock"
    monkeypatch.setenv("ZEUSD_SOCK_PATH", str(path))
    yield path
    gc.collect()  # here, where sockets that httpcore leaves open may be found


def test_a_setting_goes_through_the_daemon_and_back(driver: FakeDriver, socket: Path, tmp_path: Path) -> None:
    limited(driver, FOUND_W)
    with Zeusd(socket):
        control = claim(driver, state_in(tmp_path))
        assert not control.apply({GPU_CLOCK: 1200.0, POWER_LIMIT: 280.0}).refused
        settings = driver.gpu(0).settings()
        assert (settings.power_limit_w, settings.gpu_clocks_mhz) == (280.0, (345, 1200))
        assert {each.outcome for each in control.restore()} == {KnobOutcome.RESTORED}
    settings = driver.gpu(0).settings()
    assert (settings.power_limit_w, settings.gpu_clocks_mhz) == (FOUND_W, None)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # from httpcore, if no server answers
def test_a_daemon_that_is_gone_costs_its_knobs_and_leaves_the_journal(
    driver: FakeDriver, socket: Path, tmp_path: Path
) -> None:
    limited(driver, FOUND_W)
    state = state_in(tmp_path)
    with Zeusd(socket):
        control = claim(driver, state)
        assert not control.apply({POWER_LIMIT: 280.0}).refused
    refused = control.apply({GPU_CLOCK: 1200.0}).refused[GPU_CLOCK]
    assert refused.cause is Cause.UNREACHABLE and "zeusd" in str(refused) and "ecoshare restore" in refused.remedy
    driver.fault(Fault.NO_PERMISSION)  # for this process, which is not the daemon
    done = control.restore()
    assert {each.outcome for each in done} == {KnobOutcome.FAILED} and all("\n" not in each.words for each in done)
    driver.mend()
    with Zeusd(socket):
        (path,) = state.all_journals()
        assert KnobOutcome.FAILED not in {each.outcome for each in mend(path, state)}
    assert driver.gpu(0).settings().power_limit_w == FOUND_W


def test_what_the_daemon_may_not_is_one_line(driver: FakeDriver, socket: Path, tmp_path: Path) -> None:
    with Zeusd(socket):
        control = claim(driver, state_in(tmp_path))
        driver.fault(Fault.NO_PERMISSION)
        refused = control.apply({POWER_LIMIT: 300.0}).refused[POWER_LIMIT]
        assert "zeusd" in str(refused) and "\n" not in str(refused)
        driver.mend()
        control.restore()


@pytest.mark.parametrize(
    ("daemon", "words"),
    [
        (None, "zeusd"),
        (("gpu-read",), "gpu-control"),
    ],
)
def test_a_daemon_that_cannot_help_is_no_access(
    driver: FakeDriver, socket: Path, daemon: tuple[str, ...] | None, words: str
) -> None:
    if daemon is None:
        knobs = GpuKnobs(driver.gpu(0).uuid)
    else:
        with Zeusd(socket, groups=daemon):
            knobs = GpuKnobs(driver.gpu(0).uuid)
    assert not knobs.access.allowed and words in knobs.access.how and knobs.access.remedy
    knobs.close()


def test_a_daemon_that_counts_other_gpus_is_never_asked(driver: FakeDriver, socket: Path) -> None:
    """The daemon knows GPUs by number alone, so its number 0 could be another GPU."""
    with Zeusd(socket, gpus=1):
        knobs = GpuKnobs(driver.gpu(0).uuid)
        assert not knobs.access.allowed and "other GPUs" in knobs.access.how
        knobs.close()


def test_a_gpu_is_set_and_put_back_through_the_daemon_while_another_one_is_lost(
    driver: FakeDriver, socket: Path, tmp_path: Path
) -> None:
    limited(driver, FOUND_W)
    with Zeusd(socket):
        control = claim(driver, state_in(tmp_path))
        assert not control.apply({POWER_LIMIT: 280.0}).refused
        driver.gpu(1).fault(Fault.GPU_LOST)
        assert {each.outcome for each in control.restore()} == {KnobOutcome.RESTORED}
    assert driver.gpu(0).settings().power_limit_w == FOUND_W
