"""The whole loop on the fake GPU: new jobs are measured, packed and tuned as they run, and settings are put back.

The fake GPU's work takes longer at lower clocks, and its counter counts less there; jobs, settings and the command line
are real.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from typing import Any

import pytest

from ecoshare.base.attempt import Outcome
from ecoshare.base.measurement import Setting
from ecoshare.core.commands import ApplySetting, AskSetting, StartJob
from ecoshare.core.events import Done, JobExited, Profiled, RunOpened, SettingAdvised, SettingMeasured
from ecoshare.knowledge.tuning_store import TuningResult, TuningStore
from tests.driver import Fault
from tests.driver.training import COMPUTES, WAITS
from tests.runtime.machine import BEFORE, MARKS, Machine
from tests.runtime.running import check
from tests.warm import wait_for

pytestmark = MARKS

ENERGY = ("run", "jobs.yaml", "--objective", "energy", "--no-report")


def some(entries: Sequence[Any], kind: type[Any]) -> list[Any]:
    return [each for each in entries if isinstance(each, kind)]


def applied(entries: Sequence[Any]) -> list[Setting]:
    """Settings in force, in order."""
    done = {each.command for each in some(entries, Done)}
    return [each.setting for each in some(entries, ApplySetting) if each.id in done]


def kept(machine: Machine) -> dict[Any, TuningResult]:
    store = TuningStore(machine.folder / "profiles")
    return {each.packing: each for each in store.on("NVIDIA H200")}


def found_is_used(machine: Machine) -> bool:
    """Whether the search of the run is over, and the setting that it found is in force."""
    if not (machine.folder / "ecoshare-runs/latest/events.jsonl").exists():
        return False
    entries = machine.entries()
    over = [each for each in some(entries, SettingAdvised) if each.over and each.setting]
    return bool(over) and applied(entries)[-1] == over[0].setting


def test_jobs_never_seen_are_measured_packed_and_tuned_and_the_next_run_knows(machine: Machine) -> None:
    machine.jobs(COMPUTES, WAITS, until=(until := machine.folder / "until"))
    process = machine.start(*ENERGY, "--json")
    wait_for(lambda: found_is_used(machine) or process.poll() is not None, 200)
    until.touch()
    done = process.done()
    assert done.returncode == 0, done.stderr
    check(machine.folder / "ecoshare-runs/latest")
    entries = machine.entries()
    assert [bool(each.error) for each in some(entries, Profiled)] == [False, False]
    beside = [each.measurement for each in some(entries, SettingMeasured) if len(each.measurement.times_s) == 2]
    assert not beside[0].setting and all(each.setting for each in beside[1:]), "the default first, once"
    over = [each for each in some(entries, SettingAdvised) if each.over]
    assert over and over[0].setting and 1.0 < over[0].slower <= 1.1
    at = entries.index(over[0])
    next_exit = next(place for place, each in enumerate(entries) if place > at and isinstance(each, JobExited))
    assert applied(entries[:next_exit])[-1] == over[0].setting, "what was found is used"
    assert machine.driver.gpu(0).settings() == BEFORE
    found = kept(machine)
    pair = next(each for packing, each in found.items() if len(packing) == 2)
    assert pair.best is not None and pair.saved_against_default is not None and pair.saved_against_default > 0.02
    assert [each.joules for each in pair.trials] == [each.joules for each in beside]
    summary = json.loads(done.stdout)
    assert summary["settings"] and summary["search_energy_j"] > 0.0

    machine.jobs(COMPUTES, WAITS, steps=200)
    again = machine.run(*ENERGY)
    assert again.returncode == 0, again.stderr
    later = machine.entries()
    assert not some(later, Profiled) and pair.packing not in {each.packing for each in some(later, AskSetting)}
    assert dict(applied(later)[0]).items() <= pair.best.items(), "known from the first moment on"


@pytest.mark.nightly
def test_kill_9_in_a_search_puts_everything_back_and_resume_goes_on(machine: Machine) -> None:
    machine.jobs(COMPUTES, WAITS, until=(until := machine.folder / "until"))
    process = machine.start(*ENERGY)
    wait_for(lambda: machine.trial_begins(1), 120)
    os.kill(process.pid, signal.SIGKILL)
    wait_for(lambda: machine.driver.gpu(0).settings() == BEFORE)
    process.communicate()
    assert not some(machine.entries(), JobExited)
    resumed = machine.start("run", "--resume", "ecoshare-runs/latest", "--no-report", "--json")
    wait_for(lambda: len(some(machine.entries(), StartJob)) == 4 or resumed.poll() is not None)
    until.touch()
    done = resumed.done()
    assert done.returncode == 0, done.stderr
    check(machine.folder / "ecoshare-runs/latest")
    entries = machine.entries()
    assert [each.config.search for each in some(entries, RunOpened)] == [True, True]
    assert [each.attempt for each in some(entries, StartJob)] == [1, 1, 2, 2]
    assert [each.outcome for each in some(entries, JobExited)] == [Outcome.COMPLETED, Outcome.COMPLETED]


@pytest.mark.nightly
def test_without_permission_it_is_said_once_and_jobs_share_all_the_same(machine: Machine) -> None:
    machine.jobs(COMPUTES, WAITS, steps=450)
    machine.driver.fault(Fault.NO_PERMISSION, functions="nvmlDeviceSet*")
    done = machine.run(*ENERGY)
    machine.driver.mend()
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert done.stderr.count("NO_PERMISSION") + done.stderr.lower().count("permission") <= 2, done.stderr
    assert not any(each.setting for each in some(machine.entries(), ApplySetting)) or not applied(machine.entries())


@pytest.mark.nightly
def test_known_settings_are_used_and_none_is_searched(machine: Machine) -> None:
    machine.jobs(COMPUTES, steps=500)
    done = machine.run(*ENERGY, "--control", "known")
    assert done.returncode == 0, done.stderr
    assert not some(machine.entries(), AskSetting) and machine.set_since() == []
