"""Drivers that never return: each costs its own device, and neither another device nor the end of the process."""

from __future__ import annotations

import asyncio
import importlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ecoshare.base.class_profile import POWER_LIMIT
from ecoshare.cli.restore import restore
from ecoshare.devices import registry
from ecoshare.devices.control import restore as restoring
from ecoshare.devices.control.device_control import DeviceControl
from ecoshare.devices.control.restore import KnobOutcome, NoAnswer, in_time, mend
from ecoshare.devices.control.state_folder import StateFolder, in_use
from ecoshare.errors import NotRestored, UnfitEnvironment
from ecoshare.runtime.measuring.device_claim import AppliedSettings, claim, leftovers, not_restored
from ecoshare.runtime.measuring.run_claims import NodeClaims
from ecoshare.runtime.nodes import guard
from tests.devices.claims import FOUND_W, limited
from tests.driver import FakeDriver, Fault

LIMIT_S = 0.4
LOW_W = {0: 280.0, 1: 110.0}
"""Power limit (W) of each GPU that a test sets."""

FOUND = {0: FOUND_W, 1: 130.0}


@pytest.fixture
def found(driver: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """Driver with limits that an administrator has set. Calls that hang go on at the end."""
    monkeypatch.setenv("ECOSHARE_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(restoring, "SETS_WITHIN_S", LIMIT_S)
    monkeypatch.setattr(restoring, "_PAUSE_S", 0.001)
    for name in registry.vendor("nvidia").modules:  # else the first claim takes longer than the limit
        importlib.import_module(name)
    for index, watts in FOUND.items():
        limited(driver, watts, index)
    yield driver
    goes_on(driver)


def goes_on(driver: FakeDriver) -> None:
    """Let the driver answer, and wait until the calls of this process have ended."""
    driver.mend()
    for thread in threading.enumerate():
        if thread.name == "driver call":
            thread.join(5.0)


def limits_w(driver: FakeDriver) -> dict[int, float]:
    return {index: driver.gpu(index).settings().power_limit_w for index in FOUND}


def journals() -> list[Path]:
    return list(StateFolder.of_this_user().all_journals())


def claimed() -> list[AppliedSettings]:
    """Both GPUs with low limits."""
    settings = [claim(device, exact=True, assume_unlocked=True) for device in registry.visible_gpus()]
    for index, each in enumerate(settings):
        assert not each.control.apply({POWER_LIMIT: LOW_W[index]}).refused
    return settings


def left_by_a_dead_run() -> None:
    """Low limits of both GPUs, with the journals, and without a process that holds the locks."""
    for each in claimed():
        assert isinstance(each.control, DeviceControl)
        each.control._release()


@pytest.mark.slow
def test_the_end_of_a_run_goes_on_with_the_other_device_and_tells_of_the_first(found: FakeDriver) -> None:
    first, second = claimed()
    found.gpu(0).fault(Fault.HANGS)
    claims = NodeClaims({"cuda:0": first, "cuda:1": second})
    began_s = time.monotonic()
    claims.restore()
    assert time.monotonic() - began_s < 2.0
    assert limits_w(found) == {0: LOW_W[0], 1: FOUND[1]}
    (left,) = claims.unrestored
    error = not_restored(claims.unrestored)
    assert str(error) == "the driver of cuda:0 does not answer: power_limit may still be as ecoshare has set it"
    assert error.hint.endswith("`ecoshare restore`") and left.outcome is KnobOutcome.FAILED
    assert [found.gpu(0).uuid in path.name for path in journals()] == [True], "for `ecoshare restore`"
    claims.restore()
    assert claims.unrestored == (left,), "a second time nothing is waited for"
    goes_on(found)
    assert limits_w(found) == FOUND and not journals(), "a driver that is merely slow ends what was begun"


@pytest.mark.slow
def test_a_setting_that_hangs_is_refused_and_its_restore_ends_in_time(found: FakeDriver) -> None:
    first, second = claimed()
    found.gpu(0).fault(Fault.HANGS, functions="nvmlDeviceSetPowerManagementLimit")

    async def run() -> str:
        assert await first.clocks() is not None
        refused = await first.apply(((POWER_LIMIT, 300.0),))
        assert await first.clocks() is None and await first.readings() == {}
        await first.look()
        return refused

    began_s = time.monotonic()
    assert asyncio.run(run()) == "the driver of cuda:0 does not answer" == first.notes[-1]
    first.restore()
    second.restore()
    assert time.monotonic() - began_s < 2.0
    assert [each.knob for each in first.unrestored] == [POWER_LIMIT] and not second.unrestored
    goes_on(found)
    assert limits_w(found) == FOUND


def test_a_claim_that_hangs_is_refused_and_given_back_when_the_driver_answers(found: FakeDriver) -> None:
    device = registry.visible_gpus()[0]
    found.gpu(0).fault(Fault.HANGS, functions="nvmlDeviceGetSupportedMemoryClocks")
    with pytest.raises(UnfitEnvironment, match="the driver of cuda:0 does not answer"):
        claim(device, exact=True)
    goes_on(found)
    assert in_use(StateFolder.of_this_user().lock(found.gpu(0).uuid)) is None


@pytest.mark.slow
def test_ecoshare_restore_ends_in_time_and_a_later_one_finds_the_journal(
    found: FakeDriver, capsys: pytest.CaptureFixture[str]
) -> None:
    left_by_a_dead_run()
    found.gpu(0).fault(Fault.HANGS)
    with pytest.raises(NotRestored, match=r"the driver of .* does not answer: power_limit may still be"):
        restore()
    assert "power_limit is 130 W again" in capsys.readouterr().out
    assert limits_w(found) == {0: LOW_W[0], 1: FOUND[1]} and len(journals()) == 1
    with pytest.raises(NotRestored, match="is still at work"):  # the thread has the lock, as long as the process lives
        restore()
    goes_on(found)
    restore()
    assert limits_w(found) == FOUND and not journals()


def test_the_guard_goes_on_with_the_next_device(found: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_LOCK_S", 0.0)
    left_by_a_dead_run()
    found.gpu(0).fault(Fault.HANGS)
    for index in FOUND:
        guard._put_back(found.gpu(index).uuid)
    assert limits_w(found) == {0: LOW_W[0], 1: FOUND[1]} and len(journals()) == 1


@pytest.mark.slow
def test_what_a_dead_run_left_on_a_driver_that_hangs_is_told(found: FakeDriver) -> None:
    device = registry.visible_gpus()[0]
    left_by_a_dead_run()
    found.gpu(0).fault(Fault.HANGS)
    (words,), as_found = leftovers(device, may_set=True)
    assert "does not answer" in words and not as_found


@pytest.mark.slow
def test_a_journal_stays_for_another_process(found: FakeDriver, tmp_path: Path) -> None:
    """The process ends although its call hangs, and its lock ends with it."""
    left_by_a_dead_run()
    found.gpu(0).fault(Fault.HANGS)
    state, (path,) = StateFolder.of_this_user(), [each for each in journals() if found.gpu(0).uuid in each.name]
    program = (
        "import sys\nfrom pathlib import Path\nfrom ecoshare.devices.control import restore\n"
        "from ecoshare.devices.control.restore import mend_in_time\n"
        "from ecoshare.devices.control.state_folder import StateFolder\n"
        "restore.SETS_WITHIN_S = 0.5\n"
        "print(mend_in_time(Path(sys.argv[1]), StateFolder.of_this_user())[0].outcome.value, flush=True)\n"
    )
    command = [sys.executable, "-c", program, str(path)]
    environment = {**os.environ, **found.environment}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "not put back\n"
    found.mend()
    assert [each.outcome for each in mend(path, state)] == [KnobOutcome.RESTORED]
    assert limits_w(found)[0] == FOUND_W


def test_the_result_or_the_error_of_a_call_in_time_is_the_callers() -> None:
    assert in_time(lambda: 7, 5.0) == 7
    with pytest.raises(ZeroDivisionError):
        in_time(lambda: 1 / 0, 5.0)


def test_a_late_result_is_undone_in_its_thread() -> None:
    blocked, undone = threading.Event(), threading.Event()
    with pytest.raises(NoAnswer):
        in_time(blocked.wait, 0.01, late=lambda _result: undone.set())
    assert not undone.is_set()
    blocked.set()
    assert undone.wait(5.0)
