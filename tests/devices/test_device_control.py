"""GPU settings through the real pynvml and zeus on the fake driver: journalled, read back, put back, never forced."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from ecoshare.base.class_profile import POWER_LIMIT
from ecoshare.devices.control import journal
from ecoshare.devices.control.device_control import DeviceControl
from ecoshare.devices.control.restore import Foreign, KnobOutcome, mend
from ecoshare.devices.control.state_folder import StateFolder
from ecoshare.devices.knob import GPU_CLOCK, MEMORY_CLOCK, UNLOCKED, Cause, DeviceKnobs, KnobFault, Reading
from ecoshare.devices.nvidia import nvidia_knobs
from ecoshare.devices.nvidia.nvidia_knobs import GpuKnobs
from ecoshare.devices.nvidia.nvml import NvmlDevice
from ecoshare.errors import UnfitEnvironment
from tests.devices.claims import FOUND_W, claim, die_after_setting, limited, state_in
from tests.driver import FakeDriver, Fault
from tests.driver.presets import RELIABILITY, RTX_5090, SILENT_GEFORCE, Preset

LIMIT_CALL, LOCK_CALL = "nvmlDeviceSetPowerManagementLimit", "nvmlDeviceSetGpuLockedClocks"


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    return state_in(tmp_path)


@pytest.fixture
def found(driver: FakeDriver) -> FakeDriver:
    """Driver with a limit that an administrator has set."""
    limited(driver, FOUND_W)
    return driver


def some_limit_w(control: DeviceControl) -> float:
    """Driver that allows settings."""
    return next(spec for spec in control.specs if spec.name == POWER_LIMIT).values[3]


def calls(driver: FakeDriver) -> list[str]:
    return [call.function for call in driver.setter_calls()]


def test_the_limit_before_is_put_back_and_not_the_boards_maximum(found: FakeDriver, state: StateFolder) -> None:
    control = claim(found, state)
    assert control.default == {GPU_CLOCK: UNLOCKED, POWER_LIMIT: FOUND_W}, "one memory clock is no knob"
    limit_w = some_limit_w(control)
    applied = control.apply({GPU_CLOCK: 1200.0, POWER_LIMIT: limit_w})
    assert not applied.refused
    settings = found.gpu(0).settings()
    assert (settings.power_limit_w, settings.gpu_clocks_mhz) == (limit_w, (345, 1200))
    assert {each.outcome for each in control.restore()} == {KnobOutcome.RESTORED}
    settings = found.gpu(0).settings()
    assert (settings.power_limit_w, settings.gpu_clocks_mhz, settings.memory_clocks_mhz) == (FOUND_W, None, None)
    assert not list(state.all_journals()), "nothing is left to put back"
    assert control.restore() == [], "again does nothing"
    claim(found, state).restore()  # the lock is free again


def test_no_value_is_above_what_was_found(found: FakeDriver, state: StateFolder) -> None:
    control = claim(found, state)
    for spec in control.specs:
        if spec.name == POWER_LIMIT:
            assert max(spec.values) == FOUND_W and min(spec.values) == 200.0 and len(spec.values) > 10
    with_more = control.apply({POWER_LIMIT: 700.0})
    assert with_more.refused[POWER_LIMIT].cause is Cause.REFUSED
    assert calls(found) == [LIMIT_CALL], "the administrator's alone"
    control.restore()


def test_a_claim_alone_sets_nothing(found: FakeDriver, state: StateFolder) -> None:
    before = calls(found)
    control = claim(found, state)
    control.apply(control.default)
    assert control.restore() == []
    assert calls(found) == before


def test_a_setting_is_on_the_disk_before_it_is_set(found: FakeDriver, state: StateFolder) -> None:
    uuid = found.gpu(0).uuid
    control = claim(found, state)
    noted: list[tuple[str, Reading | None, bool]] = []
    for held in control._held.values():
        knob, name = held.knob, held.knob.spec.name
        write = knob.write

        def look(values: Reading | None, write: Callable[[Reading | None], None] = write, name: str = name) -> None:
            left = journal.read(state.journal(uuid))
            known = left is not None and name in left.knobs and (values is None or values in left.knobs[name].ours)
            noted.append((name, values, known))
            write(values)

        knob.write = look  # type: ignore[method-assign]
    for value in (1500.0, 900.0, UNLOCKED):
        assert not control.apply({GPU_CLOCK: value, POWER_LIMIT: some_limit_w(control)}).refused
    assert len(noted) == 4 and all(known for *_, known in noted)
    control.restore()


def test_nothing_is_set_where_the_journal_cannot_be_written(found: FakeDriver, tmp_path: Path) -> None:
    blocked = tmp_path / "state"
    state = StateFolder(blocked / "journals", tmp_path)
    control = claim(found, state)
    blocked.write_text("in the way")
    before = calls(found)
    refused = control.apply({POWER_LIMIT: some_limit_w(control), GPU_CLOCK: 1200.0}).refused
    assert all("nothing is set without it" in str(fault) for fault in refused.values()) and len(refused) == 2
    assert control.restore() == [], "a refusal costs a knob, not the run, and nothing is to be put back"
    assert calls(found) == before


def test_a_knob_without_permission_is_dropped_and_the_others_go_on(found: FakeDriver, state: StateFolder) -> None:
    found.fault(Fault.NO_PERMISSION, functions=LIMIT_CALL)
    control = claim(found, state)
    applied = control.apply({GPU_CLOCK: 1200.0, POWER_LIMIT: some_limit_w(control)})
    left = journal.read(state.journal(found.gpu(0).uuid))
    assert left is not None and set(left.knobs) == {GPU_CLOCK}, "nothing of the limit is to be put back"
    fault = applied.refused[POWER_LIMIT]
    assert fault.cause is Cause.NO_PERMISSION and "ZEUSD_SOCK_PATH" in fault.remedy and "666" not in fault.remedy
    assert applied.setting == {GPU_CLOCK: 1200.0} and found.gpu(0).settings().gpu_clocks_mhz == (345, 1200)
    assert [spec.name for spec in control.specs] == [GPU_CLOCK]
    again = control.apply({POWER_LIMIT: FOUND_W})
    assert again.refused[POWER_LIMIT] is fault, "said once, not tried again"
    assert KnobOutcome.FAILED not in {each.outcome for each in control.restore()}, "the limit is as it was"
    assert found.gpu(0).settings().gpu_clocks_mhz is None


@pytest.mark.parametrize(
    ("fault", "functions", "cause"),
    [
        (Fault.INEFFECTIVE, LIMIT_CALL, Cause.IGNORED),
        (Fault.UNKNOWN, LIMIT_CALL, Cause.FAILED),
        (Fault.NOT_SUPPORTED, LIMIT_CALL, Cause.NOT_SUPPORTED),
        (Fault.TIMEOUT, LIMIT_CALL, Cause.FAILED),
    ],
)
def test_what_the_driver_says_becomes_one_line(
    found: FakeDriver, state: StateFolder, fault: Fault, functions: str, cause: Cause
) -> None:
    found.fault(fault, functions=functions)
    control = claim(found, state)
    refused = control.apply({POWER_LIMIT: some_limit_w(control)}).refused[POWER_LIMIT]
    assert refused.cause is cause and "\n" not in str(refused)
    found.mend()
    control.restore()
    assert found.gpu(0).settings().power_limit_w == FOUND_W


def test_a_limit_that_fails_under_a_power_budget_keeps_its_last_value_until_the_end(
    found: FakeDriver, state: StateFolder
) -> None:
    """The limit that was found may exceed the budget."""
    gpu = found.gpu(0)
    control = DeviceControl(gpu.uuid, "nvidia", "GPU 0", state, only=(POWER_LIMIT,), keeps=True)
    low_w, higher_w = next(spec for spec in control.specs if spec.name == POWER_LIMIT).values[:2]
    assert not control.apply({POWER_LIMIT: low_w}).refused
    gpu.fault(Fault.UNKNOWN, functions=f"{LIMIT_CALL}*", times=1)
    assert set(control.apply({POWER_LIMIT: higher_w}).refused) == {POWER_LIMIT}
    assert gpu.settings().power_limit_w == low_w
    assert [each.outcome for each in control.restore()] == [KnobOutcome.RESTORED]
    assert gpu.settings().power_limit_w == FOUND_W and not list(state.all_journals())


def test_a_lost_gpu_keeps_its_journal_until_it_is_back(found: FakeDriver, state: StateFolder) -> None:
    control = claim(found, state)
    control.apply({POWER_LIMIT: some_limit_w(control), GPU_CLOCK: 900.0})
    found.fault(Fault.GPU_LOST)
    assert control.apply({POWER_LIMIT: FOUND_W}).refused[POWER_LIMIT].cause is Cause.LOST
    assert {each.outcome for each in control.restore()} == {KnobOutcome.FAILED}
    (path,) = state.all_journals()
    found.mend()
    assert {each.outcome for each in mend(path, state)} == {KnobOutcome.RESTORED}
    assert found.gpu(0).settings().power_limit_w == FOUND_W and found.gpu(0).settings().gpu_clocks_mhz is None
    assert not path.exists()


def test_a_gpu_is_put_back_while_another_one_is_lost(found: FakeDriver, state: StateFolder) -> None:
    control = claim(found, state)
    control.apply({POWER_LIMIT: some_limit_w(control)})
    found.gpu(1).fault(Fault.GPU_LOST)
    assert [each.outcome for each in control.restore()] == [KnobOutcome.RESTORED]
    assert found.gpu(0).settings().power_limit_w == FOUND_W and not list(state.all_journals())
    claim(found, state).restore()


def test_a_change_by_another_program_is_reported_and_not_overwritten(found: FakeDriver, state: StateFolder) -> None:
    control = claim(found, state)
    control.apply({POWER_LIMIT: some_limit_w(control)})
    limited(found, 450.0)
    refused = control.apply({POWER_LIMIT: FOUND_W}).refused[POWER_LIMIT]
    assert refused.cause is Cause.CHANGED and "450 W" in str(refused)
    (restored,) = control.restore()
    assert restored.outcome is KnobOutcome.FOREIGN and "450 W" in restored.words and "600 W" in restored.words
    assert found.gpu(0).settings().power_limit_w == 450.0


def test_a_run_waits_for_the_guard_of_a_killed_one(found: FakeDriver, state: StateFolder) -> None:
    """The guard has the lock for a moment after it has put the GPU back. Before, the next run was refused then."""
    control = claim(found, state)
    ends = threading.Timer(0.2, control.restore)
    ends.start()
    claim(found, state).restore()
    ends.join()


@pytest.mark.slow
def test_the_second_run_is_refused_with_the_owners_name(found: FakeDriver, state: StateFolder) -> None:
    control = claim(found, state)
    with pytest.raises(UnfitEnvironment, match=rf"is being set by .*process {os.getpid()} \((.+)\)") as refusal:
        claim(found, state)
    command = Path("/proc/self/cmdline").read_text().split("\0")[1:-1]
    assert " ".join(command)[:20] in str(refusal.value)
    assert "--control off" in refusal.value.hint
    other = claim(found, state, index=1)
    other.restore()
    control.restore()


def test_what_a_dead_run_left_is_put_back_before_the_next_one_begins(found: FakeDriver, state: StateFolder) -> None:
    die_after_setting(found, state, {POWER_LIMIT: 280.0, GPU_CLOCK: 900.0})
    assert found.gpu(0).settings().power_limit_w != FOUND_W
    control = claim(found, state)
    assert found.gpu(0).settings().power_limit_w == FOUND_W and found.gpu(0).settings().gpu_clocks_mhz is None
    assert control.default[POWER_LIMIT] == FOUND_W, "not what the dead run had set"
    assert any("left by process" in note for note in control.notes)
    assert control.restore() == []


def test_after_a_restart_of_the_machine_locks_are_gone_and_not_reset(
    found: FakeDriver, state: StateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock after the restart belongs to another program."""
    die_after_setting(found, state, {POWER_LIMIT: 280.0, GPU_CLOCK: 900.0})
    monkeypatch.setattr(journal, "boot", lambda: "another boot")
    (path,) = state.all_journals()
    done = {each.knob: each.outcome for each in mend(path, state)}
    assert done == {POWER_LIMIT: KnobOutcome.RESTORED, GPU_CLOCK: KnobOutcome.GONE}
    assert found.gpu(0).settings().gpu_clocks_mhz == (345, 900)


def test_restore_asks_before_it_overwrites(found: FakeDriver, state: StateFolder) -> None:
    die_after_setting(found, state, {POWER_LIMIT: 280.0, GPU_CLOCK: 900.0})
    limited(found, 450.0)
    (path,) = state.all_journals()
    done = {each.knob: each.outcome for each in mend(path, state, foreign=Foreign.ASK)}
    assert done[POWER_LIMIT] is KnobOutcome.FOREIGN and path.exists()
    assert found.gpu(0).settings().power_limit_w == 450.0
    done = {each.knob: each.outcome for each in mend(path, state, foreign=Foreign.OVERWRITE)}
    assert done[POWER_LIMIT] is KnobOutcome.RESTORED and not path.exists()
    assert found.gpu(0).settings().power_limit_w == FOUND_W


def test_a_limit_left_at_its_lowest_is_put_back(found: FakeDriver, state: StateFolder) -> None:
    """The lowest limit leaves no choice, but the knob must still be known."""
    die_after_setting(found, state, {POWER_LIMIT: 200.0, GPU_CLOCK: 900.0})
    control = claim(found, state)
    assert control.default[POWER_LIMIT] == FOUND_W
    control.restore()
    limited(found, 200.0)
    control = claim(found, state)
    assert [spec.name for spec in control.specs] == [GPU_CLOCK]
    control.restore()


def test_a_limit_between_those_offered_can_be_set_and_a_clock_cannot(found: FakeDriver, state: StateFolder) -> None:
    """A setting that was found when another limit was in force keeps its meaning."""
    control = claim(found, state)
    applied = control.apply({POWER_LIMIT: 301.5, GPU_CLOCK: 1201.0})
    assert applied.setting == {POWER_LIMIT: 301.5} and applied.refused[GPU_CLOCK].cause is Cause.REFUSED
    control.restore()


def test_a_lock_that_waits_for_a_dying_process_is_taken(found: FakeDriver, state: StateFolder) -> None:
    control = claim(found, state)
    control.apply({POWER_LIMIT: some_limit_w(control)})
    (path,) = state.all_journals()
    began_s = time.monotonic()
    from ecoshare.devices.control.restore import Busy

    with pytest.raises(Busy, match=f"process {os.getpid()}"):
        mend(path, state, wait_s=0.2)
    assert time.monotonic() - began_s >= 0.2
    control.restore()


# Whether clocks look unlocked


def test_an_idle_gpu_tells_nothing_and_is_asked_again(driver: FakeDriver, state: StateFolder) -> None:
    control = claim(driver, state, assume_unlocked=False)
    refused = control.apply({GPU_CLOCK: 1200.0}).refused[GPU_CLOCK]
    assert refused.cause is Cause.UNTOLD and "--assume-unlocked" in refused.remedy
    assert calls(driver) == []
    driver.gpu(0).load(1, compute=0.9)
    assert control.apply({GPU_CLOCK: 1200.0}).setting == {GPU_CLOCK: 1200.0}
    assert control.apply({GPU_CLOCK: 900.0}).setting == {GPU_CLOCK: 900.0}, "what is locked now was locked by us"
    control.restore()


_PROFILES = "nvmlDeviceWorkloadPowerProfile*"
_BEFORE_535 = f"{_PROFILES}|nvmlDeviceGetTemperatureV|nvmlDeviceGetCurrentClocksEventReasons"
BRANCHES = {
    470: f"@({_BEFORE_535}|nvmlDeviceGetMemoryInfo_v2|nvmlDeviceGetComputeRunningProcesses_v3)",
    525: f"@({_BEFORE_535})",
    535: f"@({_PROFILES}|nvmlDeviceGetTemperatureV)",
    550: _PROFILES,
    570: "nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1",
}
"""Functions that the library of a branch of the driver lacks, of those that ecoshare calls."""


@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.slow
def test_an_older_driver_tells_clocks_and_their_reasons_by_other_names(
    branch: int, driver: FakeDriver, state: StateFolder
) -> None:
    """Without the reasons, an idle GPU would look locked. So no knob of it could be set."""
    driver.fault(Fault.NO_PROFILE_FUNCTIONS, functions=BRANCHES[branch])
    driver.gpu(0).temperature(66)
    driver.gpu(0).load(7, used_bytes=1 << 30)
    opened = NvmlDevice(driver.gpu(0).uuid)
    assert opened.state().temperature_c == 66.0 and opened.processes() == {7: 1 << 30}
    opened.close()
    driver.gpu(0).end(7)
    control = claim(driver, state, assume_unlocked=False)
    clocks = control.clocks()
    assert clocks is not None and clocks.temperature_c == 66.0
    assert control.apply({GPU_CLOCK: 1200.0}).refused[GPU_CLOCK].cause is Cause.UNTOLD
    driver.gpu(0).load(1, compute=0.9)
    assert control.apply({GPU_CLOCK: 1200.0}).setting == {GPU_CLOCK: 1200.0}
    control.restore()


@pytest.mark.slow
def test_clocks_locked_by_another_program_are_left(driver: FakeDriver, state: StateFolder) -> None:
    import pynvml

    pynvml.nvmlInit()
    pynvml.nvmlDeviceSetGpuLockedClocks(pynvml.nvmlDeviceGetHandleByIndex(0), 345, 1500)
    driver.gpu(0).load(1, compute=0.5)
    control = claim(driver, state, assume_unlocked=False)
    limit_w = some_limit_w(control)
    applied = control.apply({GPU_CLOCK: 1200.0, POWER_LIMIT: limit_w})
    assert applied.refused[GPU_CLOCK].cause is Cause.LOCKED and "1500 MHz" in str(applied.refused[GPU_CLOCK])
    assert applied.setting == {POWER_LIMIT: limit_w}, "the limit can be set all the same"
    control.restore()
    assert driver.gpu(0).settings().gpu_clocks_mhz == (345, 1500), "still theirs"


def test_a_gpu_that_something_throttles_may_be_locked(driver: FakeDriver, state: StateFolder) -> None:
    driver.gpu(0).load(1, compute=0.9)
    driver.gpu(0).ceiling(1400)
    control = claim(driver, state, assume_unlocked=False)
    assert not control.apply({GPU_CLOCK: 1200.0}).refused
    control.restore()


def test_a_board_at_its_full_boost_below_its_table_is_not_locked(driver: FakeDriver, state: StateFolder) -> None:
    """An RTX 4090 runs at 2,655 of 3,105 MHz: no search of clocks would begin there."""
    driver.gpu(0).load(1, compute=0.9)
    driver.gpu(0).ceiling(1800, RELIABILITY)
    control = claim(driver, state, assume_unlocked=False)
    assert not control.apply({GPU_CLOCK: 1200.0}).refused
    control.restore()


def test_a_clock_that_varies_is_not_locked(
    driver: FakeDriver, state: StateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.gpu(0).load(1, compute=0.9)
    driver.gpu(0).ceiling(1800, 0)
    control = claim(driver, state, assume_unlocked=False)
    assert control.apply({GPU_CLOCK: 1200.0}).refused[GPU_CLOCK].cause is Cause.LOCKED, "it stays, and nothing says why"
    control.restore()
    monkeypatch.setattr(nvidia_knobs, "time", SimpleNamespace(sleep=lambda _: driver.gpu(0).ceiling(1500, 0)))
    control = claim(driver, state, assume_unlocked=False)
    assert not control.apply({GPU_CLOCK: 1200.0}).refused
    control.restore()


@pytest.mark.parametrize("board", [SILENT_GEFORCE, RTX_5090], ids=lambda board: board.name)
@pytest.mark.slow
def test_a_geforce_board_without_reasons_is_searched_once_its_clock_has_moved(
    board: Preset, tmp_path: Path, state: StateFolder
) -> None:
    """A lock is the same clock for ever. Heat moves the clock of a board at its full boost, within minutes."""
    with FakeDriver(tmp_path, [board]) as driver:
        gpu = driver.gpu(0)
        gpu.load(1, compute=0.5)
        control = claim(driver, state, assume_unlocked=False)
        for ceiling_mhz in (board.boost_mhz, board.boost_mhz - 15):  # a locked clock may show one step less, too
            gpu.ceiling(ceiling_mhz, 0)
            refused = control.apply({GPU_CLOCK: 1500.0}).refused[GPU_CLOCK]
            assert refused.cause is Cause.UNTOLD and "looks locked" not in str(refused)
            assert "cannot be told before it moves" in str(refused) and "--assume-unlocked" in refused.remedy
        gpu.ceiling(board.boost_mhz - 30, 0)
        assert not control.apply({GPU_CLOCK: 1500.0}).refused
        control.restore()


@pytest.mark.slow
def test_a_lock_that_comes_between_two_checks_is_no_clock_that_moves(tmp_path: Path, state: StateFolder) -> None:
    import pynvml

    with FakeDriver(tmp_path, [SILENT_GEFORCE]) as driver:
        driver.gpu(0).load(1, compute=0.5)
        control = claim(driver, state, assume_unlocked=False)
        control.look()
        pynvml.nvmlInit()
        pynvml.nvmlDeviceSetGpuLockedClocks(pynvml.nvmlDeviceGetHandleByIndex(0), 735, 1500)
        for _ in range(2):
            assert control.apply({GPU_CLOCK: 1200.0}).refused[GPU_CLOCK].cause is Cause.UNTOLD
        control.restore()
        assert driver.gpu(0).settings().gpu_clocks_mhz == (735, 1500), "still theirs"


def test_a_locked_clock_that_shows_a_step_less_now_and_then_is_locked(
    driver: FakeDriver, state: StateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the lock is taken for a boost that varies, and the end of the run undoes it."""
    shown = itertools.cycle([1800, 1785])
    driver.gpu(0).load(1, compute=0.9)
    monkeypatch.setattr(nvidia_knobs, "time", SimpleNamespace(sleep=lambda _: driver.gpu(0).ceiling(next(shown), 0)))
    driver.gpu(0).ceiling(1800, 0)
    control = claim(driver, state, assume_unlocked=False)
    assert control.apply({GPU_CLOCK: 1200.0}).refused[GPU_CLOCK].cause is Cause.LOCKED
    control.restore()


def test_a_lock_at_the_highest_clock_of_an_idle_gpu_is_not_taken_for_none(
    driver: FakeDriver, state: StateFolder
) -> None:
    """An idle GPU at its maximum may be locked there: the maximum proves something only under load."""
    import pynvml

    pynvml.nvmlInit()
    pynvml.nvmlDeviceSetGpuLockedClocks(pynvml.nvmlDeviceGetHandleByIndex(0), 1980, 1980)
    control = claim(driver, state, assume_unlocked=False)
    assert control.apply({GPU_CLOCK: 1200.0}).refused[GPU_CLOCK].cause is Cause.UNTOLD
    control.restore()
    assert driver.gpu(0).settings().gpu_clocks_mhz == (1980, 1980)


def test_a_memory_lock_of_another_program_is_left(driver: FakeDriver, state: StateFolder) -> None:
    import pynvml

    pynvml.nvmlInit()
    pynvml.nvmlDeviceSetMemoryLockedClocks(pynvml.nvmlDeviceGetHandleByIndex(1), 5001, 5001)
    driver.gpu(1).load(1, compute=0.5)
    control = claim(driver, state, assume_unlocked=False, index=1)
    assert control.apply({MEMORY_CLOCK: 5001.0}).refused[MEMORY_CLOCK].cause is Cause.LOCKED
    control.restore()
    assert driver.gpu(1).settings().memory_clocks_mhz == (5001, 5001)


def test_a_lock_that_was_given_up_is_nobodys_of_ours(driver: FakeDriver, state: StateFolder) -> None:
    """A later lock of another program is neither overwritten nor reset."""
    import pynvml

    driver.gpu(0).load(1, compute=0.5)
    control = claim(driver, state, assume_unlocked=False)
    control.apply({GPU_CLOCK: 1200.0})
    control.apply({GPU_CLOCK: UNLOCKED})
    assert not list(state.all_journals()), "nothing is to be put back"
    pynvml.nvmlInit()
    pynvml.nvmlDeviceSetGpuLockedClocks(pynvml.nvmlDeviceGetHandleByIndex(0), 345, 1500)
    assert control.apply({GPU_CLOCK: 900.0}).refused[GPU_CLOCK].cause is Cause.LOCKED
    control.restore()
    assert driver.gpu(0).settings().gpu_clocks_mhz == (345, 1500)


@pytest.mark.slow
def test_under_our_own_limit_nothing_is_told_that_was_not_seen_before(driver: FakeDriver, state: StateFolder) -> None:
    driver.gpu(0).load(1, compute=1.0, memory=0.5)
    control = claim(driver, state, assume_unlocked=False)
    assert not control.apply({POWER_LIMIT: 300.0}).refused
    assert control.apply({GPU_CLOCK: 1200.0}).refused[GPU_CLOCK].cause is Cause.UNTOLD
    assert not control.apply({GPU_CLOCK: 1200.0, POWER_LIMIT: 700.0}).refused, "the limit is raised first"
    control.apply({GPU_CLOCK: UNLOCKED, POWER_LIMIT: 300.0})
    assert not control.apply({GPU_CLOCK: 1200.0}).refused, "it was seen unlocked"
    control.restore()
    assert driver.gpu(0).settings().gpu_clocks_mhz is None


def test_a_difference_of_one_watt_is_one(driver: FakeDriver, state: StateFolder) -> None:
    limited(driver, 205.0)
    control = claim(driver, state)
    assert not control.apply({POWER_LIMIT: 204.0}).refused
    control.restore()
    assert driver.gpu(0).settings().power_limit_w == 205.0
    control = claim(driver, state)
    control.apply({POWER_LIMIT: 203.0})
    limited(driver, 202.0)
    assert control.apply({POWER_LIMIT: 204.0}).refused[POWER_LIMIT].cause is Cause.CHANGED
    limited(driver, 205.0)
    control.restore()


# Two memory clocks


def test_gpu_clocks_belong_to_their_memory_clock(driver: FakeDriver, state: StateFolder) -> None:
    control = claim(driver, state, index=1)
    assert control.default[MEMORY_CLOCK] == UNLOCKED
    knobs = DeviceKnobs(control.specs, control.clocks_mhz)
    assert knobs.allows({GPU_CLOCK: 2055.0, MEMORY_CLOCK: UNLOCKED})
    assert not knobs.allows({GPU_CLOCK: 2055.0, MEMORY_CLOCK: 5001.0})
    assert knobs.allows({GPU_CLOCK: UNLOCKED, MEMORY_CLOCK: 5001.0})
    assert not control.apply({GPU_CLOCK: 1200.0, MEMORY_CLOCK: 5001.0}).refused
    settings = driver.gpu(1).settings()
    assert settings.memory_clocks_mhz == (5001, 5001) and settings.gpu_clocks_mhz == (210, 1200)
    control.restore()
    assert driver.gpu(1).settings().memory_clocks_mhz is None


def test_knobs_that_a_board_lacks_are_named(driver: FakeDriver) -> None:
    knobs = GpuKnobs(driver.gpu(0).uuid)
    assert "one clock, 3201 MHz" in knobs.missing[MEMORY_CLOCK]
    knobs.close()


def test_a_fault_is_an_exception_with_its_cause() -> None:
    fault = KnobFault(Cause.REFUSED, "no", "yes")
    assert (str(fault), fault.remedy) == ("no", "yes")
