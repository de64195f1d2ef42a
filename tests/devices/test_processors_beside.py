"""The processors beside a GPU: claimed, set and put back with it, or a line that says why not."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ecoshare.base.class_profile import POWER_LIMIT
from ecoshare.devices import knob_survey, registry
from ecoshare.devices.control.device_control import DeviceControl
from ecoshare.devices.control.joint_control import claim_processors, frequency_knob
from ecoshare.devices.control.restore import KnobOutcome, mend
from ecoshare.devices.control.state_folder import StateFolder, key
from ecoshare.devices.cpu_knobs import CPU_FREQUENCY
from ecoshare.devices.knob import GPU_CLOCK
from ecoshare.errors import UnfitEnvironment
from ecoshare.runtime.measuring.device_claim import AppliedSettings, claim, leftovers_beside
from tests.devices.claims import FOUND_W, limited
from tests.devices.fake_processors import FakeProcessors
from tests.driver import FakeDriver, Fault

GUARD_AND_DIE = """
import os, signal, sys
from pathlib import Path
from ecoshare.devices.registry import visible_gpus
from ecoshare.runtime.measuring.device_claim import claim
from ecoshare.runtime.nodes.guard_client import Guard
settings = claim(visible_gpus()[0], exact=True, assume_unlocked=True, with_processors=True)
guard = Guard("beside", Path(sys.argv[1]), settings.control.claimed)
applied = settings.control.apply({"cpu_frequency": 1500.0, "power_limit": 280.0, "gpu_clock": 900.0})
assert not applied.refused, applied
print(guard.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeProcessors:
    """Processors of this process, and its folder for journals and locks."""
    fake = FakeProcessors(tmp_path)
    monkeypatch.setenv("ECOSHARE_SYSFS", str(fake.sysfs))
    monkeypatch.setenv("ECOSHARE_STATE", str(tmp_path / "state"))
    return fake


@pytest.fixture
def found(driver: FakeDriver, fake: FakeProcessors) -> FakeDriver:
    """Driver with a limit that an administrator has set, beside the processors."""
    limited(driver, FOUND_W)
    return driver


@pytest.fixture
def joint(found: FakeDriver) -> Iterator[AppliedSettings]:
    """First GPU and the processors, claimed together."""
    settings = claim(registry.visible_gpus()[0], exact=True, assume_unlocked=True, with_processors=True)
    yield settings
    settings.restore()


def test_the_frequency_is_a_knob_of_the_gpu_and_all_is_put_back(
    found: FakeDriver, fake: FakeProcessors, joint: AppliedSettings
) -> None:
    control = joint.control
    assert [spec.name for spec in control.specs] == [GPU_CLOCK, POWER_LIMIT, CPU_FREQUENCY]
    assert joint.processors is not None and not joint.apart
    assert control.default[CPU_FREQUENCY] == 3000.0 and control.default[POWER_LIMIT] == FOUND_W
    applied = control.apply({**control.default, CPU_FREQUENCY: 1500.0, POWER_LIMIT: 280.0})
    assert not applied.refused and applied.setting[CPU_FREQUENCY] == 1500.0
    assert fake.caps_mhz == [1500.0, 1500.0] and found.gpu(0).settings().power_limit_w == 280.0
    assert control.readings()[CPU_FREQUENCY] == 1500.0
    assert not control.apply(control.default).refused and fake.caps_mhz == [3000.0, 3000.0]
    control.apply({CPU_FREQUENCY: 1500.0, GPU_CLOCK: 900.0})
    joint.restore()
    assert fake.caps_mhz == [3000.0, 3000.0] and not joint.unrestored
    assert found.gpu(0).settings().power_limit_w == FOUND_W and found.gpu(0).settings().gpu_clocks_mhz is None
    assert not list(StateFolder.of_this_user().all_journals())


def test_one_that_cannot_be_put_back_does_not_keep_the_other_from_it(
    found: FakeDriver, fake: FakeProcessors, joint: AppliedSettings
) -> None:
    assert not joint.control.apply({CPU_FREQUENCY: 1500.0, POWER_LIMIT: 280.0}).refused
    found.fault(Fault.UNKNOWN, functions="nvmlDeviceSetPowerManagementLimit")
    joint.restore()
    assert [each.knob for each in joint.unrestored] == [POWER_LIMIT] and fake.caps_mhz == [3000.0, 3000.0]
    found.mend()
    state = StateFolder.of_this_user()
    (path,) = state.all_journals()
    assert {each.outcome for each in mend(path, state)} == {KnobOutcome.RESTORED}


def test_a_frequency_that_fails_on_the_way_leaves_the_gpus_knobs(fake: FakeProcessors, joint: AppliedSettings) -> None:
    cap = sorted(fake.sysfs.rglob("scaling_max_freq"))[1]
    cap.unlink()
    cap.mkdir()  # even root cannot write this
    applied = joint.control.apply({CPU_FREQUENCY: 1500.0, POWER_LIMIT: 280.0})
    assert set(applied.refused) == {CPU_FREQUENCY} and applied.setting == {POWER_LIMIT: 280.0}
    assert CPU_FREQUENCY in joint.control.dropped
    assert set(joint.control.apply({CPU_FREQUENCY: 3000.0}).refused) == {CPU_FREQUENCY}, "said again, not tried again"
    cap.rmdir()
    cap.write_text("3000000\n")


@pytest.mark.slow
def test_one_run_of_a_machine_sets_the_processors(found: FakeDriver, joint: AppliedSettings) -> None:
    """Two runs would each measure the other's frequency."""
    second = claim(registry.visible_gpus()[1], exact=True, with_processors=True)
    assert CPU_FREQUENCY not in {spec.name for spec in second.control.specs} and second.processors is None
    assert "is being set by" in second.apart and f"process {os.getpid()}" in second.apart
    assert second.apart_for_a_run and second.control.claimed == (("nvidia", found.gpu(1).uuid),)
    second.restore()


def test_a_gpu_that_may_not_be_set_claims_no_processors(found: FakeDriver, fake: FakeProcessors) -> None:
    for index in (0, 1):
        found.fault(Fault.NOT_SUPPORTED, functions="nvmlDeviceGetPowerManagementLimitConstraints")
        found.fault(Fault.NOT_SUPPORTED, functions="nvmlDeviceGetSupported*Clocks")
        with pytest.raises(UnfitEnvironment, match="nothing can be set"):
            claim(registry.visible_gpus()[index], exact=True, with_processors=True)
        found.mend()
    claim_processors(StateFolder.of_this_user()).control.restore()


# Why not


def break_cpufreq(fake: FakeProcessors) -> None:
    for path in fake.sysfs.rglob("scaling_max_freq"):
        path.unlink()
    for path in fake.sysfs.rglob("policy?"):
        for each in path.iterdir():
            each.unlink()
        path.rmdir()


def break_rapl(fake: FakeProcessors) -> None:
    (fake.sysfs / "class/powercap/intel-rapl:0/name").write_text("psys\n")


def garble_rapl(fake: FakeProcessors) -> None:
    (fake.sysfs / "class/powercap/intel-rapl:0/energy_uj").write_text("")


@pytest.mark.parametrize(
    ("breaks", "said"),
    [
        (break_cpufreq, "the kernel offers no frequencies here"),
        (break_rapl, "no RAPL counters"),
        (garble_rapl, "RAPL cannot be read"),
    ],
)
def test_each_reason_against_it_is_one_line(found: FakeDriver, fake: FakeProcessors, breaks: object, said: str) -> None:
    assert callable(breaks)
    breaks(fake)
    with pytest.raises(UnfitEnvironment, match=said):
        frequency_knob()
    settings = claim(registry.visible_gpus()[0], exact=True, with_processors=True)
    assert said in settings.apart and "\n" not in settings.apart and not settings.apart_for_a_run
    settings.restore()
    shown = knob_survey.survey(StateFolder.of_this_user())[0]
    assert said in dict(shown.missing)[CPU_FREQUENCY] and shown.model == "NVIDIA H200"


def test_one_frequency_is_no_choice(found: FakeDriver, fake: FakeProcessors) -> None:
    for path in fake.sysfs.rglob("cpuinfo_min_freq"):
        path.write_text("3000000\n")
    settings = claim(registry.visible_gpus()[0], exact=True, with_processors=True)
    assert settings.apart == "the processors have one frequency"
    settings.restore()
    claim_again = DeviceControl(key(registry.processors()), "cpu", "a processor", StateFolder.of_this_user())
    claim_again.restore()  # the lock is free


@pytest.mark.slow
def test_the_lowest_frequency_of_another_run_is_not_taken_for_the_only_one(
    found: FakeDriver, fake: FakeProcessors
) -> None:
    state, gpu = StateFolder.of_this_user(), registry.visible_gpus()[1]
    other = claim_processors(state).control
    assert not other.apply({CPU_FREQUENCY: 800.0}).refused
    beside_alive = claim(gpu, exact=True, with_processors=True)
    assert "is being set by" in beside_alive.apart and fake.caps_mhz == [800.0, 800.0]
    beside_alive.restore()
    other._release()  # a death leaves its journal, too
    beside_dead = claim(gpu, exact=True, with_processors=True)
    assert not beside_dead.apart and beside_dead.control.default[CPU_FREQUENCY] == 3000.0
    beside_dead.restore()


@pytest.mark.skipif(os.geteuid() != 0, reason="another user needs root to become one")
@pytest.mark.parametrize(
    ("closed", "said"),
    [("scaling_max_freq", "it cannot be set"), ("energy_uj", "energy_uj cannot be read by this user")],
)
def test_files_of_root_are_the_reason_for_another_user(closed: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to other users
        fake = FakeProcessors(Path(name))
        for path in [Path(name), *Path(name).rglob("*")]:
            path.chmod(0o777 if path.is_dir() else 0o666)
        for path in fake.sysfs.rglob(closed):
            path.chmod(0o600 if closed == "energy_uj" else 0o644)
        monkeypatch.setenv("ECOSHARE_SYSFS", str(fake.sysfs))
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            words = "no reason"
            try:
                os.setresuid(65534, 65534, 65534)
                frequency_knob()
            except UnfitEnvironment as error:
                words = f"{error} → {error.hint}"
            finally:
                os.write(write, words.encode())
                os._exit(0)
        os.close(write)
        os.waitpid(child, 0)
        with os.fdopen(read) as told:
            words = told.read()
    assert said in words and not words.endswith("→ "), words


def test_devices_shows_the_frequency_with_the_gpu(found: FakeDriver, fake: FakeProcessors) -> None:
    (gpu, *_) = knob_survey.survey(StateFolder.of_this_user())
    (knob,) = [knob for knob in gpu.knobs if knob.spec.name == CPU_FREQUENCY]
    assert knob.present == (3000.0, 3000.0) and CPU_FREQUENCY not in dict(gpu.missing)


# Deaths


def start(found: FakeDriver, folder: Path) -> tuple[subprocess.Popen[str], int]:
    """Process that has set the GPU and the processors, and its guard."""
    environment = {**os.environ, **found.environment}
    process = subprocess.Popen(
        [sys.executable, "-c", GUARD_AND_DIE, str(folder / "shared")],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


@pytest.mark.nightly
def test_the_guard_puts_both_back_after_a_kill(found: FakeDriver, fake: FakeProcessors, tmp_path: Path) -> None:
    from tests.warm import wait_for

    process, _ = start(found, tmp_path)
    assert fake.caps_mhz == [1500.0, 1500.0] and found.gpu(0).settings().power_limit_w == 280.0
    process.kill()
    process.communicate()
    wait_for(lambda: fake.caps_mhz == [3000.0, 3000.0] and found.gpu(0).settings().gpu_clocks_mhz is None)
    wait_for(lambda: not list((tmp_path / "state").glob("*.json")))
    assert found.gpu(0).settings().power_limit_w == FOUND_W


@pytest.mark.nightly
@pytest.mark.parametrize("mended_by", ["the next claim", "a run that sets nothing", "ecoshare restore"])
def test_both_killed_leave_two_journals_that_are_mended(
    found: FakeDriver, fake: FakeProcessors, tmp_path: Path, mended_by: str
) -> None:
    process, guard = start(found, tmp_path)
    os.kill(guard, 9)
    process.kill()
    process.communicate()
    state, gpu = StateFolder.of_this_user(), registry.visible_gpus()[0]
    assert len(list(state.all_journals())) == 2 and fake.caps_mhz == [1500.0, 1500.0]
    if mended_by == "the next claim":
        settings = claim(gpu, exact=True, with_processors=True)
        assert settings.control.default[CPU_FREQUENCY] == 3000.0, "not what the dead run had set"
        assert sum("left by process" in note for note in settings.notes) == 3
        settings.restore()
    elif mended_by == "ecoshare restore":
        for path in state.all_journals():
            assert KnobOutcome.FAILED not in {each.outcome for each in mend(path, state)}
    else:
        words, is_so = leftovers_beside(gpu, may_set=False)
        assert not is_so and "`ecoshare restore`" in words[0] and fake.caps_mhz == [1500.0, 1500.0]
        words, is_so = leftovers_beside(gpu, may_set=True)
        assert is_so and "left by a run that died" in words[0]
        mend(state.journal(found.gpu(0).uuid), state)
    assert fake.caps_mhz == [3000.0, 3000.0] and not list(state.all_journals())
    assert found.gpu(0).settings().power_limit_w == FOUND_W


def test_a_dead_run_of_the_processors_alone_is_mended_too(found: FakeDriver, fake: FakeProcessors) -> None:
    """It may have set a knob that is none beside a GPU."""
    limit = fake.sysfs / "class/powercap/intel-rapl:0/constraint_0_power_limit_uw"
    limit.write_text("200000000\n")
    device, state = registry.processors(), StateFolder.of_this_user()
    dead = DeviceControl(key(device), "cpu", device.model, state)
    assert not dead.apply({CPU_FREQUENCY: 1500.0, "cpu_power_limit": 90.0}).refused
    dead._release()
    settings = claim(registry.visible_gpus()[0], exact=True, with_processors=True)
    assert not settings.apart and fake.caps_mhz == [3000.0, 3000.0] and limit.read_text() == "200000000\n"
    assert {spec.name for spec in settings.control.specs} == {GPU_CLOCK, POWER_LIMIT, CPU_FREQUENCY}
    settings.restore()
