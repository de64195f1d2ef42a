"""Claims of the devices that a run may set, and the searches for settings on them.

A run sets all of its devices or none: the settings that it finds on one hold on the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ecoshare.devices.cpu_knobs import CPU_FREQUENCY
from ecoshare.devices.meter_check import check_meter
from ecoshare.devices.restore import Restored
from ecoshare.errors import UnfitEnvironment
from ecoshare.profiling.tuning_store import TuningStore
from ecoshare.runtime.device_claim import AppliedSettings, claim, leftovers, leftovers_beside
from ecoshare.runtime.plan import Plan
from ecoshare.runtime.planned_job import PlannedJob
from ecoshare.runtime.planned_power import device_limits_w, limits_of, with_limits
from ecoshare.runtime.profiler import Profiler
from ecoshare.runtime.setting_searches import Searching
from ecoshare.runtime.told_once import is_news
from ecoshare.values.power_response import POWER_LIMIT

if TYPE_CHECKING:
    from ecoshare.advisers.setting_adviser import TunerAdviser


@dataclass(frozen=True, slots=True)
class RunClaims:
    """Claimed devices of a run.

    Attributes:
        settings: Settings of each claimed device, by its name; empty if nothing may be set.
        searches: Searches on each device, by its name; empty without any.
    """

    settings: Mapping[str, AppliedSettings] = field(default_factory=dict)
    searches: Mapping[str, Searching] = field(default_factory=dict)

    @classmethod
    def of(cls, searching: Searching) -> RunClaims:
        """The claim of a run for one search."""
        name = searching.device.name
        return cls({name: searching.settings}, {name: searching})

    @property
    def keys(self) -> list[tuple[str, str]]:
        """Vendor and key of each claimed device, for the guard."""
        return [key for each in self.settings.values() for key in each.control.claimed]

    @property
    def unrestored(self) -> tuple[Restored, ...]:
        """Knobs that could not be restored."""
        return tuple(left for each in self.settings.values() for left in each.unrestored)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user about the devices and the searches, each once."""
        settings = [note for each in self.settings.values() for note in each.notes]
        searches = [note for each in self.searches.values() for note in each.notes]
        return tuple(dict.fromkeys((*settings, *searches)))

    def adviser(self, device: str, profiler: Profiler, jobs: Mapping[str, PlannedJob]) -> TunerAdviser | None:
        """Adviser that searches settings on a device; None without a search. See `Searching.adviser`."""
        searching = self.searches.get(device)
        return searching.adviser(profiler, jobs) if searching is not None else None

    def restore(self) -> None:
        """Restore all knobs of all devices."""
        for each in self.settings.values():
            each.restore()


def as_found(plan: Plan, notes: list[str]) -> Plan:
    """Plan for the devices as they are. Profiles are not stored if a device has settings of another run."""
    for device in plan.devices:
        for look in (leftovers, leftovers_beside):
            words, is_so = look(device, plan.control)
            notes += [line for line in words if line not in notes]
            plan = plan if is_so else replace(plan, profiles=None)
    return plan


def claimed(plan: Plan, notes: list[str]) -> tuple[Plan, RunClaims]:
    """Claim the devices if they may be set, and prepare searches if joules are measured. Notes say why not, once.

    Raises:
        UnfitEnvironment: The plan has a power budget that sets limits, and they cannot be set or exceed it.
    """
    if plan.budget.sets_limits:
        return _limited(plan)
    plan = _measurable(plan, notes)
    if plan.goal is None and not any(each.setting for each in plan.known_settings):
        return plan, RunClaims()
    settings: dict[str, AppliedSettings] = {}
    try:
        searches = plan.goal is not None and plan.profiles is not None
        known = any(CPU_FREQUENCY in dict(each.setting) for each in plan.known_settings)
        # The processors beside several GPUs serve all of them, so their frequency is the knob of none.
        beside = (searches or known) and len(plan.devices) == 1
        for device in plan.devices:
            settings[device.name] = claim(device, exact=plan.goal is not None, with_processors=beside)
    except UnfitEnvironment as error:
        RunClaims(settings).restore()
        notes.append(f"clocks and power stay as they are: {error}" + (f" ({error.hint})" if error.hint else ""))
        return replace(plan, known_settings=(), goal=None), RunClaims()
    except BaseException:
        RunClaims(settings).restore()
        raise
    notes += [f"{CPU_FREQUENCY} stays as it is: {each.apart}" for each in settings.values() if each.apart_for_a_run]
    if plan.goal is None or plan.profiles is None:
        return replace(plan, goal=None), RunClaims(settings)
    store = TuningStore(plan.profiles)
    return plan, RunClaims(
        settings,
        {
            device.name: Searching(settings[device.name], device, plan, plan.goal, store, keep=True)
            for device in plan.devices
        },
    )


def _limited(plan: Plan) -> tuple[Plan, RunClaims]:
    """Claim the power limit of each device, for a power budget. Limits that a dead run left are restored first."""
    settings: dict[str, AppliedSettings] = {}
    try:
        for device in plan.devices:
            settings[device.name] = claim(device, exact=True, only=(POWER_LIMIT,), keeps=True, or_fixed=True)
        # A device at its least limit has nothing to set.
        limits_w = {
            device.name: limits_of(settings[device.name].control.specs) or device_limits_w(device)
            for device in plan.devices
        }
        return replace(plan, budget=with_limits(plan.budget, limits_w)), RunClaims(settings)
    except BaseException:
        RunClaims(settings).restore()
        raise


def _measurable(plan: Plan, notes: list[str]) -> Plan:
    """The plan, without its search if the joules of a device are not measured."""
    for device in plan.devices if plan.goal is not None else ():
        try:
            check_meter(device)
        except UnfitEnvironment as error:
            reason = f"no setting is searched: {error}"
            if is_news(f"search on {device.uuid or device.name}", reason):
                hint = f"{error.hint}; " if error.hint and "doctor" not in error.hint else ""
                notes.append(f"{reason} ({hint}told once: `ecoshare doctor` tells it again)")
            return replace(plan, goal=None)
    return plan
