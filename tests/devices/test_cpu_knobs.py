"""Frequency caps and power limits of processors, in real files with the layout of the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoshare.devices.control import journal
from ecoshare.devices.control.journal import Journal
from ecoshare.devices.control.restore import Foreign, KnobOutcome, put_back
from ecoshare.devices.cpu_knobs import CPU_FREQUENCY, CPU_POWER_LIMIT, CpuKnobs
from ecoshare.devices.knob import Cause
from tests.devices.claims import claim_processors, processors, state_in


def written(sysfs: Path, name: str) -> list[str]:
    return [path.read_text().strip() for path in sorted(sysfs.rglob(name))]


def test_every_policy_gets_the_cap_and_gets_back_its_own(tmp_path: Path) -> None:
    sysfs, state = processors(tmp_path / "sys"), state_in(tmp_path)
    (sysfs / "devices/system/cpu/cpufreq/policy1/scaling_max_freq").write_text("3500000\n")
    control = claim_processors(sysfs, state)
    specs = {spec.name: spec for spec in control.specs}
    assert specs[CPU_FREQUENCY].values[0] == 800.0 and specs[CPU_FREQUENCY].default == 3000.0
    assert specs[CPU_POWER_LIMIT].default == 200.0 and specs[CPU_POWER_LIMIT].values[0] == 80.0
    slower = specs[CPU_FREQUENCY].values[4]
    assert not control.apply({CPU_FREQUENCY: slower, CPU_POWER_LIMIT: 80.0}).refused
    assert written(sysfs, "scaling_max_freq") == [f"{slower * 1000:.0f}"] * 2
    assert written(sysfs, "constraint_0_power_limit_uw") == ["80000000"]
    assert not control.apply({CPU_FREQUENCY: 3000.0}).refused
    assert written(sysfs, "scaling_max_freq") == ["3000000", "3500000"], "its default is what each had"
    control.apply({CPU_FREQUENCY: slower})
    assert {each.outcome for each in control.restore()} == {KnobOutcome.RESTORED}
    assert written(sysfs, "scaling_max_freq") == ["3000000", "3500000"]
    assert written(sysfs, "constraint_0_power_limit_uw") == ["200000000"]
    assert not list(state.all_journals())


def test_a_death_between_two_policies_is_mended(tmp_path: Path) -> None:
    sysfs, state = processors(tmp_path / "sys"), state_in(tmp_path)
    path = state.journal("processors-test")
    Journal.new("processors-test", "cpu", "a processor").noting(
        CPU_FREQUENCY, (3000.0, 3000.0), ((3000.0, 3000.0), (1500.0, 1500.0))
    ).write(path)
    (sysfs / "devices/system/cpu/cpufreq/policy0/scaling_max_freq").write_text("1500000\n")
    left = journal.read(path)
    assert left is not None
    (done,) = put_back(left, path, lambda: CpuKnobs(sysfs))
    assert done.outcome is KnobOutcome.RESTORED and written(sysfs, "scaling_max_freq") == ["3000000"] * 2


def test_frequencies_that_a_driver_lists_are_the_ones_offered(tmp_path: Path) -> None:
    sysfs = processors(tmp_path, policies=1)
    listed = sysfs / "devices/system/cpu/cpufreq/policy0/scaling_available_frequencies"
    listed.write_text("3400000 3000000 2200000 1400000 \n")
    (knob,) = (knob for knob in CpuKnobs(sysfs).knobs if knob.spec.name == CPU_FREQUENCY)
    assert knob.spec.values == (1400.0, 2200.0, 3000.0), "none above the cap that was found"


def test_a_turbo_step_of_one_megahertz_is_put_back(tmp_path: Path) -> None:
    """The driver acpi-cpufreq lists 3601 for turbo and 3600 for the base clock."""
    sysfs, state = processors(tmp_path / "sys", policies=1, packages=0), state_in(tmp_path)
    policy = sysfs / "devices/system/cpu/cpufreq/policy0"
    (policy / "scaling_available_frequencies").write_text("3601000 3600000 2200000\n")
    (policy / "scaling_max_freq").write_text("3601000\n")
    control = claim_processors(sysfs, state)
    assert control.apply({CPU_FREQUENCY: 3600.0}).setting == {CPU_FREQUENCY: 3600.0}
    assert written(sysfs, "scaling_max_freq") == ["3600000"]
    (done,) = control.restore()
    assert done.outcome is KnobOutcome.RESTORED and written(sysfs, "scaling_max_freq") == ["3601000"]


def test_a_journal_of_other_policies_is_told(tmp_path: Path) -> None:
    sysfs, state = processors(tmp_path / "sys", policies=2, packages=0), state_in(tmp_path)
    path = state.journal("processors-test")
    left = Journal.new("processors-test", "cpu", "a processor").noting(CPU_FREQUENCY, (3000.0,), ((3000.0,), (1500.0,)))
    left.write(path)
    (done,) = put_back(left, path, lambda: CpuKnobs(sysfs), foreign=Foreign.OVERWRITE)
    assert done.outcome is KnobOutcome.FAILED and "2 places" in done.words and path.exists()


def test_a_machine_without_knobs_says_so(tmp_path: Path) -> None:
    knobs = CpuKnobs(tmp_path)
    assert knobs.knobs == () and set(knobs.missing) == {CPU_FREQUENCY, CPU_POWER_LIMIT}
    assert all("virtual machine" in why for why in knobs.missing.values())


def test_files_that_cannot_be_written_are_no_permission(tmp_path: Path) -> None:
    sysfs, state = processors(tmp_path / "sys", policies=0), state_in(tmp_path)
    control = claim_processors(sysfs, state)
    (limit,) = sysfs.rglob("constraint_0_power_limit_uw")
    limit.unlink()
    limit.mkdir()  # even root cannot write this
    refused = control.apply({CPU_POWER_LIMIT: 80.0}).refused[CPU_POWER_LIMIT]
    assert refused.cause is Cause.FAILED and str(limit) in str(refused)
    limit.rmdir()
    limit.write_text("200000000\n")
    control.restore()


def test_a_value_below_the_lowest_is_refused(tmp_path: Path) -> None:
    control = claim_processors(processors(tmp_path / "sys"), state_in(tmp_path))
    assert control.apply({CPU_FREQUENCY: 700.0}).refused[CPU_FREQUENCY].cause is Cause.REFUSED
    assert [spec.name for spec in control.specs] == [CPU_FREQUENCY, CPU_POWER_LIMIT], "the knob itself is fine"
    assert control.restore() == []


@pytest.mark.parametrize("text", ["", "lots\n"])
def test_a_file_that_holds_no_number_is_one_line(tmp_path: Path, text: str) -> None:
    sysfs = processors(tmp_path, packages=1, policies=0)
    (limit,) = sysfs.rglob("constraint_0_power_limit_uw")
    limit.write_text(text)
    assert "holds no number" in CpuKnobs(sysfs).missing[CPU_POWER_LIMIT]
