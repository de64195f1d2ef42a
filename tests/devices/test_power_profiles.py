"""Workload power profiles through the real pynvml on the fake driver: one or none is requested, and all come back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest
from rich.console import Console

from ecoshare.base.class_profile import POWER_LIMIT
from ecoshare.devices import knob_survey
from ecoshare.devices.control import journal
from ecoshare.devices.control.device_control import DeviceControl
from ecoshare.devices.control.restore import Foreign, KnobOutcome, Restored, mend
from ecoshare.devices.control.state_folder import StateFolder
from ecoshare.devices.knob import GPU_CLOCK, UNLOCKED, Cause, Reading
from ecoshare.devices.knob_survey import FoundDevice
from ecoshare.devices.nvidia.nvidia_knobs import _NAMES, POWER_PROFILE, GpuKnobs
from ecoshare.reporting.tables.device_table import print_devices
from tests.devices.claims import FOUND_W, claim, die_after_setting, limited, state_in
from tests.driver import COMPILER, FakeDriver, Fault, presets
from tests.driver.presets import COMPUTE, HIGH, MAX_Q, MEMORY_BOUND
from tests.driver.zeusd import Zeusd

PROFILE_CALL = "nvmlDeviceWorkloadPowerProfile"
THEIRS = (COMPUTE, MEMORY_BOUND, HIGH)
"""Profiles of other programs, two of which conflict: the board enforces fewer than are requested."""


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[FakeDriver]:
    """Driver with a board that has profiles, under a limit of its administrator, and with one that has none."""
    if COMPILER is None:
        pytest.skip("the fake driver is written in C, and there is no compiler")
    with FakeDriver(tmp_path, [presets.B200, presets.H200], virtual=True) as driver:
        limited(driver, FOUND_W)
        yield driver


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    return state_in(tmp_path)


@pytest.fixture(params=["one step", "two steps"])
def either_way(driver: FakeDriver, request: pytest.FixtureRequest) -> FakeDriver:
    """Driver that replaces the requests in one step, and an older one that takes two."""
    if request.param == "two steps":
        driver.fault(Fault.NO_PROFILE_UPDATE)
    return driver


def profile_calls(driver: FakeDriver) -> list[str]:
    names = [call.function for call in driver.setter_calls() if call.result == 0]
    return [name.removeprefix(PROFILE_CALL) for name in names if name.startswith(PROFILE_CALL)]


def restored(done: list[Restored]) -> dict[str, Restored]:
    """Results by knob. The limit beside a profile is noted, too, and is as it was."""
    return {each.knob: each for each in done}


def test_names_are_those_of_nvml() -> None:
    """A wrong name would have the user believe in another profile."""
    named = {
        name.removeprefix("NVML_POWER_PROFILE_").lower(): value
        for name, value in vars(pynvml).items()
        if name.startswith("NVML_POWER_PROFILE_") and "OPERATION" not in name
    }
    assert named.pop("max") == len(_NAMES), "nvidia-ml-py knows more profiles now"
    assert {name: place for place, name in enumerate(_NAMES)} == named


def test_one_profile_is_requested_and_the_requests_of_before_come_back(
    either_way: FakeDriver, state: StateFolder
) -> None:
    gpu = either_way.gpu(0)
    control = claim(either_way, state)
    spec = next(each for each in control.specs if each.name == POWER_PROFILE)
    assert list(spec.special) == ["none", "max_p", "max_q", "compute", "memory_bound", "profile_40"]
    assert control.default[POWER_PROFILE] == "none" and spec.choices == 6 and spec.highest is None
    for name, numbers in (("compute", (COMPUTE,)), ("profile_40", (HIGH,)), ("max_q", (MAX_Q,)), ("none", ())):
        assert not control.apply({POWER_PROFILE: name}).refused
        assert gpu.settings().power_profiles == numbers, "exactly one, or none"
        assert control.readings()[POWER_PROFILE] == name
    control.apply({POWER_PROFILE: "memory_bound"})
    assert {each.outcome for each in control.restore()} <= {KnobOutcome.RESTORED, KnobOutcome.UNTOUCHED}
    assert gpu.settings().power_profiles == () and gpu.settings().power_limit_w == FOUND_W
    assert not list(state.all_journals())


def test_profiles_of_other_programs_come_back_all_of_them(either_way: FakeDriver, state: StateFolder) -> None:
    """The enforced ones would not do: the loser of a conflict is requested, too."""
    gpu = either_way.gpu(0)
    gpu.request_profiles(*THEIRS)
    control = claim(either_way, state)
    assert control.default[POWER_PROFILE] == "compute+memory_bound+profile_40"
    clocks = control.clocks()
    assert clocks is not None and clocks.power_profiles == ("compute", "profile_40")
    assert not control.apply({POWER_PROFILE: "compute"}).refused and gpu.settings().power_profiles == (COMPUTE,)
    assert not control.apply({POWER_PROFILE: "none"}).refused and gpu.settings().power_profiles == ()
    assert not control.apply(control.default).refused and gpu.settings().power_profiles == THEIRS
    control.apply({POWER_PROFILE: "max_p"})
    assert restored(control.restore())[POWER_PROFILE].outcome is KnobOutcome.RESTORED
    assert gpu.settings().power_profiles == THEIRS and not list(state.all_journals())


def test_in_two_steps_the_new_profile_is_added_before_the_old_one_is_cleared(
    driver: FakeDriver, state: StateFolder
) -> None:
    """Cleared first, a refused one would leave the board with neither, and no note of it."""
    driver.fault(Fault.NO_PROFILE_UPDATE)
    driver.gpu(0).request_profiles(COMPUTE)
    control = claim(driver, state)
    control.apply({POWER_PROFILE: "memory_bound"})
    assert profile_calls(driver) == ["SetRequestedProfiles", "ClearRequestedProfiles"]
    control.restore()


def test_a_claim_and_the_default_call_no_setter(driver: FakeDriver, state: StateFolder) -> None:
    driver.gpu(0).request_profiles(*THEIRS)
    before = len(driver.setter_calls())
    control = claim(driver, state)
    control.apply(control.default)
    assert control.restore() == [] and len(driver.setter_calls()) == before


# Boards, drivers and users without it


@pytest.mark.parametrize(
    ("index", "fault", "said"),
    [
        (1, None, "this GPU has no power profiles"),
        (0, Fault.NO_PROFILE_FUNCTIONS, "too old"),
        (0, Fault.TIMEOUT, "the NVIDIA driver"),
    ],
)
def test_without_the_feature_there_is_no_knob_and_one_line(
    driver: FakeDriver, index: int, fault: Fault | None, said: str
) -> None:
    if fault is not None:
        driver.fault(fault, functions=f"{PROFILE_CALL}*")
    knobs = GpuKnobs(driver.gpu(index).uuid)
    names = [knob.spec.name for knob in knobs.knobs]
    assert POWER_PROFILE not in names and {GPU_CLOCK, POWER_LIMIT} <= set(names)
    assert said in knobs.missing[POWER_PROFILE] and "\n" not in knobs.missing[POWER_PROFILE]
    clocks = knobs.clocks()
    assert clocks.power_profiles is None and clocks.gpu_mhz
    knobs.close()


def test_an_older_nvidia_ml_py_has_no_such_knob(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 12.560, the oldest that ecoshare takes, has none of the names."""
    for name in list(vars(pynvml)):
        if "WorkloadPowerProfile" in name or "NVML_POWER_PROFILE" in name:
            monkeypatch.delattr(pynvml, name)
    knobs = GpuKnobs(driver.gpu(0).uuid)
    assert "nvidia-ml-py is too old" in knobs.missing[POWER_PROFILE]
    knobs.close()


def test_a_user_of_the_daemon_is_told_that_it_sets_no_profiles(
    driver: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZEUSD_SOCK_PATH", str(tmp_path / "zeusd.sock"))
    monkeypatch.setattr("zeus.device.common.has_sys_admin", lambda: False)
    with Zeusd(tmp_path / "zeusd.sock"):
        knobs = GpuKnobs(driver.gpu(0).uuid)
        assert "zeusd cannot set power profiles" in knobs.missing[POWER_PROFILE] and knobs.access.allowed
        knobs.close()


def test_devices_shows_the_knob_its_choices_and_what_is_requested(driver: FakeDriver) -> None:
    driver.gpu(0).request_profiles(COMPUTE, HIGH)
    knobs = GpuKnobs(driver.gpu(0).uuid)
    found = [knob_survey.FoundKnob(knob.spec, knob.read()) for knob in knobs.knobs]
    device = FoundDevice("cuda:0", "NVIDIA B200", "GPU-0", knobs.access, tuple(found), tuple(knobs.missing.items()))
    console = Console(width=160)
    with console.capture() as shown:
        print_devices([device], {}, console)
    (line,) = [line for line in shown.get().splitlines() if POWER_PROFILE in line]
    assert "max_q" in line and "compute and profile_40" in line
    told: dict[str, Any] = next(each for each in device.as_dict()["knobs"] if each["name"] == POWER_PROFILE)
    assert told["lowest"] is told["highest"] is None and told["present"] == [float(COMPUTE), float(HIGH)]
    knobs.close()


# Failures


def test_without_permission_the_knob_is_dropped_and_nothing_is_noted(
    either_way: FakeDriver, state: StateFolder
) -> None:
    either_way.fault(Fault.NO_PERMISSION, functions=f"{PROFILE_CALL}@(Set|Clear)*")
    either_way.fault(Fault.NO_PERMISSION, functions=f"{PROFILE_CALL}Update*")
    control = claim(either_way, state)
    applied = control.apply({POWER_PROFILE: "compute", GPU_CLOCK: 1200.0})
    assert applied.refused[POWER_PROFILE].cause is Cause.NO_PERMISSION and applied.setting == {GPU_CLOCK: 1200.0}
    left = journal.read(state.journal(either_way.gpu(0).uuid))
    assert left is not None and set(left.knobs) == {GPU_CLOCK}
    control.restore()
    assert either_way.gpu(0).settings().gpu_clocks_mhz is None


def test_a_success_without_effect_costs_the_knob(either_way: FakeDriver, state: StateFolder) -> None:
    either_way.gpu(0).request_profiles(HIGH)
    either_way.fault(Fault.INEFFECTIVE, functions=f"{PROFILE_CALL}@(Set|Clear|Update)*")
    control = claim(either_way, state)
    refused = control.apply({POWER_PROFILE: "compute"}).refused[POWER_PROFILE]
    assert refused.cause is Cause.IGNORED and "compute" in str(refused) and "profile_40" in str(refused)
    either_way.mend()
    assert KnobOutcome.FAILED not in {each.outcome for each in control.restore()}
    assert either_way.gpu(0).settings().power_profiles == (HIGH,)


@pytest.mark.parametrize("mended", [True, False])
def test_a_failure_between_the_two_steps_is_put_back(driver: FakeDriver, state: StateFolder, mended: bool) -> None:
    """The new profile is added, and the old ones cannot be cleared: neither as found nor as asked for."""
    gpu = driver.gpu(0)
    gpu.request_profiles(COMPUTE, HIGH)
    driver.fault(Fault.NO_PROFILE_UPDATE)
    driver.fault(Fault.NO_PERMISSION, functions=f"{PROFILE_CALL}Clear*", times=1 if mended else 0)
    control = claim(driver, state)
    applied = control.apply({POWER_PROFILE: "max_p", POWER_LIMIT: 400.0})
    assert applied.refused[POWER_PROFILE].cause is Cause.FAILED and applied.setting == {POWER_LIMIT: 400.0}
    if mended:
        assert gpu.settings().power_profiles == (COMPUTE, HIGH), "at once, since the knob is dropped"
        assert KnobOutcome.FAILED not in {each.outcome for each in control.restore()}
    else:
        outcomes = {each.knob: each.outcome for each in control.restore()}
        assert outcomes == {POWER_PROFILE: KnobOutcome.FAILED, POWER_LIMIT: KnobOutcome.RESTORED}
        (path,) = state.all_journals()
        driver.mend()
        assert KnobOutcome.RESTORED in {each.outcome for each in mend(path, state)}
    assert gpu.settings().power_profiles == (COMPUTE, HIGH) and gpu.settings().power_limit_w == FOUND_W
    assert not list(state.all_journals())


def test_two_knobs_that_fail_together_leave_the_journal_until_they_are_back(
    driver: FakeDriver, state: StateFolder
) -> None:
    control = claim(driver, state)
    assert not control.apply({POWER_PROFILE: "max_q", POWER_LIMIT: 400.0, GPU_CLOCK: 900.0}).refused
    driver.fault(Fault.UNKNOWN, functions=f"@({PROFILE_CALL}@(Set|Clear|Update)*|nvmlDeviceSetPowerManagementLimit)")
    outcomes = {each.knob: each.outcome for each in control.restore()}
    assert outcomes[POWER_PROFILE] is outcomes[POWER_LIMIT] is KnobOutcome.FAILED
    assert outcomes[GPU_CLOCK] is KnobOutcome.RESTORED, "the others are put back all the same"
    driver.mend()
    (path,) = state.all_journals()
    assert KnobOutcome.FAILED not in {each.outcome for each in mend(path, state)}
    settings = driver.gpu(0).settings()
    assert (settings.power_profiles, settings.power_limit_w, settings.gpu_clocks_mhz) == ((), FOUND_W, None)


def test_a_request_of_another_program_is_reported_and_not_overwritten(driver: FakeDriver, state: StateFolder) -> None:
    """Number 3 is nearer to 2 than a watt to a watt, and still another profile."""
    control = claim(driver, state)
    control.apply({POWER_PROFILE: "compute"})
    driver.gpu(0).request_profiles(MEMORY_BOUND)
    assert control.apply({POWER_PROFILE: "max_p"}).refused[POWER_PROFILE].cause is Cause.CHANGED
    done = restored(control.restore())[POWER_PROFILE]
    assert done.outcome is KnobOutcome.FOREIGN and "memory_bound" in done.words and "none" in done.words
    assert driver.gpu(0).settings().power_profiles == (MEMORY_BOUND,)


# Beside limits and clocks, which a profile may move


def test_the_limit_of_the_setting_holds_beside_a_profile_that_moves_it(
    either_way: FakeDriver, state: StateFolder
) -> None:
    """`max_q` sets 640 W while it is enforced, and afterwards the board's 1,000 W: neither is what was found."""
    gpu = either_way.gpu(0)
    control = claim(either_way, state)
    default = control.default
    settings: tuple[tuple[dict[str, float | str], float], ...] = (
        ({POWER_PROFILE: "max_q", POWER_LIMIT: 400.0}, 400.0),
        ({POWER_PROFILE: "max_q", POWER_LIMIT: FOUND_W}, FOUND_W),
        ({POWER_PROFILE: "compute", POWER_LIMIT: FOUND_W}, FOUND_W),
        ({POWER_PROFILE: "max_q"}, FOUND_W),
        ({POWER_LIMIT: 400.0}, 400.0),
        ({POWER_PROFILE: "max_q", GPU_CLOCK: 900.0}, FOUND_W),
        ({}, FOUND_W),
    )
    for setting, watts in settings:
        assert not control.apply({**default, **setting}).refused, setting
        assert gpu.settings().power_limit_w == watts, setting
    control.apply({POWER_PROFILE: "max_q"})
    assert gpu.settings().power_limit_w == 640.0, "a limit that the setting does not name is left to the profile"
    done = {each.knob: each.outcome for each in control.restore()}
    assert done == {POWER_PROFILE: KnobOutcome.RESTORED, POWER_LIMIT: KnobOutcome.RESTORED}
    assert gpu.settings().power_limit_w == FOUND_W and gpu.settings().power_profiles == ()


def test_a_profile_is_put_back_before_the_limit(driver: FakeDriver, state: StateFolder) -> None:
    """The other way round, its own limit would be the last word."""
    control = claim(driver, state)
    control.apply({POWER_PROFILE: "max_q", POWER_LIMIT: 400.0})
    made = len(driver.setter_calls())
    control.restore()
    names = [call.function for call in driver.setter_calls()[made:]]
    assert names[0].startswith(PROFILE_CALL) and names[-1] == "nvmlDeviceSetPowerManagementLimit"
    assert driver.gpu(0).settings().power_limit_w == FOUND_W


@pytest.mark.parametrize("found_w", [FOUND_W, 640.0])
@pytest.mark.parametrize("setting", [{POWER_PROFILE: "max_q"}, {POWER_PROFILE: "max_q", POWER_LIMIT: None}])
@pytest.mark.parametrize("killed", [False, True])
def test_a_limit_that_moves_when_the_profile_is_put_back_is_put_back_after_it(
    driver: FakeDriver, state: StateFolder, found_w: float, setting: dict[str, Any], killed: bool
) -> None:
    """It was as found until then, or was never touched: a found 640 W does not move when the profile is set."""
    limited(driver, found_w)
    setting = {name: found_w if value is None else value for name, value in setting.items()}
    if killed:
        die_after_setting(driver, state, setting)
        (path,) = state.all_journals()
        done = mend(path, state, foreign=Foreign.ASK)
    else:
        control = claim(driver, state)
        assert not control.apply(setting).refused
        done = control.restore()
    assert {each.outcome for each in done} == {KnobOutcome.RESTORED}
    assert driver.gpu(0).settings().power_limit_w == found_w and not list(state.all_journals())


def test_a_dropped_profile_that_moves_the_limit_on_its_way_back_costs_no_limit(
    driver: FakeDriver, state: StateFolder
) -> None:
    driver.fault(Fault.NO_PROFILE_UPDATE)
    driver.fault(Fault.UNKNOWN, functions=f"{PROFILE_CALL}Clear*", first=2, times=1)
    driver.gpu(0).request_profiles(HIGH)
    control = claim(driver, state)
    assert not control.apply({**control.default, POWER_PROFILE: "max_q"}).refused
    applied = control.apply({**control.default, POWER_PROFILE: "compute", POWER_LIMIT: 400.0})
    assert set(applied.refused) == {POWER_PROFILE} and driver.gpu(0).settings().power_limit_w == 400.0
    control.restore()
    settings = driver.gpu(0).settings()
    assert (settings.power_profiles, settings.power_limit_w) == ((HIGH,), FOUND_W)


def test_a_clock_under_a_profile_does_not_pass_for_locked(driver: FakeDriver, state: StateFolder) -> None:
    """`memory_bound` keeps the clock at 1,200 MHz, and no reason for the present clock says so."""
    driver.gpu(0).load(1, compute=0.5)
    control = claim(driver, state, assume_unlocked=False)
    assert not control.apply({POWER_PROFILE: "memory_bound", GPU_CLOCK: 900.0}).refused, "it is looked at before"
    assert not control.apply({POWER_PROFILE: "memory_bound", GPU_CLOCK: UNLOCKED}).refused
    assert not control.apply({POWER_PROFILE: "memory_bound", GPU_CLOCK: 600.0}).refused, "it was seen unlocked"
    control.restore()


def test_a_profile_that_is_set_already_makes_room_for_the_look(driver: FakeDriver, state: StateFolder) -> None:
    driver.gpu(0).load(1, compute=0.5)
    control = claim(driver, state, assume_unlocked=False)
    assert not control.apply({POWER_PROFILE: "memory_bound"}).refused
    assert not control.apply({POWER_PROFILE: "memory_bound", GPU_CLOCK: 900.0}).refused
    settings = driver.gpu(0).settings()
    assert settings.power_profiles == (MEMORY_BOUND,) and settings.gpu_clocks_mhz == (120, 900)
    control.restore()


@pytest.mark.nightly
def test_on_an_idle_gpu_the_profile_waits_for_the_clock(driver: FakeDriver, state: StateFolder) -> None:
    """Set now, it would hide for ever whether the clock is locked."""
    control = claim(driver, state, assume_unlocked=False)
    refused = control.apply({POWER_PROFILE: "memory_bound", GPU_CLOCK: 900.0}).refused
    assert {fault.cause for fault in refused.values()} == {Cause.UNTOLD} and len(refused) == 2
    driver.gpu(0).load(1, compute=0.5)
    assert not control.apply({POWER_PROFILE: "memory_bound", GPU_CLOCK: 900.0}).refused
    control.restore()


@pytest.mark.slow
def test_a_clock_that_another_program_has_locked_is_left_and_the_profile_is_set(
    driver: FakeDriver, state: StateFolder
) -> None:
    pynvml.nvmlInit()
    pynvml.nvmlDeviceSetGpuLockedClocks(pynvml.nvmlDeviceGetHandleByIndex(0), 120, 1500)
    driver.gpu(0).load(1, compute=0.5)
    control = claim(driver, state, assume_unlocked=False)
    applied = control.apply({POWER_PROFILE: "compute", GPU_CLOCK: 900.0})
    assert applied.refused[GPU_CLOCK].cause is Cause.LOCKED and applied.setting == {POWER_PROFILE: "compute"}
    control.restore()
    assert driver.gpu(0).settings().gpu_clocks_mhz == (120, 1500)


# Deaths


def test_after_a_kill_the_next_run_puts_all_profiles_back_before_it_begins(
    either_way: FakeDriver, state: StateFolder
) -> None:
    either_way.gpu(0).request_profiles(*THEIRS)
    die_after_setting(either_way, state, {POWER_PROFILE: "max_q", POWER_LIMIT: 400.0, GPU_CLOCK: 900.0})
    assert either_way.gpu(0).settings().power_profiles == (MAX_Q,)
    control: DeviceControl = claim(either_way, state)
    settings = either_way.gpu(0).settings()
    assert (settings.power_profiles, settings.power_limit_w, settings.gpu_clocks_mhz) == (THEIRS, FOUND_W, None)
    assert control.default[POWER_PROFILE] == "compute+memory_bound+profile_40", "not what the dead run had requested"
    control.restore()


def test_a_death_right_after_the_profile_has_moved_the_limit_is_mended(
    driver: FakeDriver, state: StateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal does not have the moved value yet, which must not pass for another program's."""
    control = claim(driver, state)
    assert not control.apply({POWER_LIMIT: 400.0}).refused
    profile = control._held[POWER_PROFILE].knob
    write = profile.write

    def dies(values: Reading | None) -> None:
        write(values)
        raise KeyboardInterrupt

    monkeypatch.setattr(profile, "write", dies)
    monkeypatch.setattr(control, "_reading", lambda _held: None)
    with pytest.raises(KeyboardInterrupt):
        control.apply({POWER_PROFILE: "max_q"})
    assert driver.gpu(0).settings().power_limit_w == 640.0
    control._release()
    (path,) = state.all_journals()
    assert {each.outcome for each in mend(path, state, foreign=Foreign.ASK)} == {KnobOutcome.RESTORED}
    assert driver.gpu(0).settings().power_limit_w == FOUND_W and not path.exists()


@pytest.mark.parametrize("profile", ["max_q", "compute"])
def test_a_limit_that_another_program_sets_beside_a_profile_stays(
    driver: FakeDriver, state: StateFolder, profile: str
) -> None:
    """Also if the profile moves it on its way back."""
    control = claim(driver, state)
    control.apply({**control.default, POWER_PROFILE: profile})
    limited(driver, 450.0)
    done = restored(control.restore())
    assert done[POWER_LIMIT].outcome is KnobOutcome.FOREIGN and "450 W" in done[POWER_LIMIT].words
    assert done[POWER_PROFILE].outcome is KnobOutcome.RESTORED
    assert driver.gpu(0).settings().power_limit_w == 450.0


def test_a_death_between_the_two_steps_is_mended(driver: FakeDriver, state: StateFolder) -> None:
    driver.gpu(0).request_profiles(COMPUTE, HIGH)
    die_after_setting(driver, state, {POWER_PROFILE: "max_p"})
    driver.gpu(0).request_profiles(0, COMPUTE, HIGH)
    (path,) = state.all_journals()
    done = restored(mend(path, state, foreign=Foreign.ASK))[POWER_PROFILE]
    assert done.outcome is KnobOutcome.RESTORED and "compute and profile_40" in done.words
    assert driver.gpu(0).settings().power_profiles == (COMPUTE, HIGH)


def test_requests_that_ended_with_a_restart_of_the_machine_are_not_made_again(
    driver: FakeDriver, state: StateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.gpu(0).request_profiles(COMPUTE)
    die_after_setting(driver, state, {POWER_PROFILE: "max_p"})
    driver.gpu(0).request_profiles()
    monkeypatch.setattr(journal, "boot", lambda: "another boot")
    (path,) = state.all_journals()
    done = restored(mend(path, state, foreign=Foreign.ASK))[POWER_PROFILE]
    assert done.outcome is KnobOutcome.GONE and not path.exists()
    assert driver.gpu(0).settings().power_profiles == ()
