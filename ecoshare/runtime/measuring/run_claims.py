"""Claims of the devices that a run may set: asked of each node, and settled for all devices together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ecoshare.base.class_profile import POWER_LIMIT
from ecoshare.base.device import DeviceInfo
from ecoshare.devices.control.restore import Restored
from ecoshare.devices.cpu_knobs import CPU_FREQUENCY
from ecoshare.devices.knob import DeviceKnobs
from ecoshare.devices.occupancy import why_not_allocated
from ecoshare.devices.registry import check_meter, processors
from ecoshare.errors import UnfitEnvironment
from ecoshare.knowledge.tuning_store import TuningStore
from ecoshare.runtime.measuring.device_claim import AppliedSettings, claim, leftovers, leftovers_beside
from ecoshare.runtime.measuring.setting_searches import RunSearches, Searching
from ecoshare.runtime.planning.plan import Plan
from ecoshare.runtime.planning.planned_limits import device_limits_w, limits_of, with_limits
from ecoshare.runtime.told_once import is_news


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """Request of a run to set the devices of a node.

    Attributes:
        may_set: Whether anything may be set. Then the settings that a dead run left are restored, too.
        searches: Whether settings are searched, for which joules must be measured.
        sets_known: Whether settings that an earlier search has found are applied.
        with_processors: Whether the frequency of the processors beside a GPU shall be a knob, too, where it can be.
        limits_power: Whether power limits are set to keep a budget, and no other knob is.
    """

    may_set: bool
    searches: bool
    sets_known: bool
    with_processors: bool
    limits_power: bool


@dataclass(frozen=True, slots=True)
class ClaimReport:
    """Report of a node about such a request.

    Attributes:
        is_as_found: Whether no device has settings of another run.
        is_measured: Whether the joules of all devices are measured, if settings shall be searched.
        refusal: Reason why nothing can be set, one line; empty if there is none.
        knobs: Knobs of each claimed device, by its name.
        limits_w: Power limits (W) that each device takes, ascending, by its name; empty without a budget.
        notes: Notes for the user, one line each.
    """

    is_as_found: bool = True
    is_measured: bool = True
    refusal: str = ""
    knobs: Mapping[str, DeviceKnobs] = field(default_factory=dict)
    limits_w: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeClaims:
    """Claimed devices of a node.

    ::

        run                          node
        ClaimRequest ──────────────► claim_devices ──► NodeClaims     knobs, under a journal
                     ◄── ClaimReport ──┘

    Attributes:
        settings: Settings of each claimed device, by its name; empty if nothing may be set.
    """

    settings: Mapping[str, AppliedSettings] = field(default_factory=dict)

    @property
    def keys(self) -> list[tuple[str, str]]:
        """Vendor and key of each claimed device, for the guard."""
        return [key for each in self.settings.values() for key in each.control.claimed]

    @property
    def knobs(self) -> dict[str, DeviceKnobs]:
        """Knobs of each claimed device that can still be set, by its name."""
        return {name: each.knobs for name, each in self.settings.items()}

    @property
    def unrestored(self) -> tuple[Restored, ...]:
        """Knobs that could not be restored."""
        return tuple(left for each in self.settings.values() for left in each.unrestored)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user about the devices, each once."""
        return tuple(dict.fromkeys(note for each in self.settings.values() for note in each.notes))

    def restore(self) -> None:
        """Restore all knobs of all devices."""
        for each in self.settings.values():
            each.restore()


def claim_devices(
    devices: Sequence[DeviceInfo],
    request: ClaimRequest,
    why_not: Callable[[Sequence[DeviceInfo]], str] = why_not_allocated,
) -> tuple[NodeClaims, ClaimReport]:
    """Claim the devices of this machine for a run, all of them or none.

    Args:
        devices: The devices.
        request: The request of the run.
        why_not: Returns the reason why other work may use devices, or sets them, one line; empty if there is none.

    Raises:
        UnfitEnvironment: The run limits power, and the limits of a device cannot be set.
    """
    reason = why_not(devices) if request.may_set else ""  # it may open each device
    if reason and request.limits_power:
        raise UnfitEnvironment(f"power limits cannot be set: {reason}")
    if reason:
        claims, report = _claimed(devices, replace(request, may_set=False, searches=False, sets_known=False))
        return claims, replace(report, refusal=reason if request.searches or request.sets_known else "")
    beside = request.with_processors and not why_not([processors()])
    return _claimed(devices, replace(request, with_processors=beside))


def _claimed(devices: Sequence[DeviceInfo], request: ClaimRequest) -> tuple[NodeClaims, ClaimReport]:
    """See `claim_devices`; the run has the devices alone, or sets nothing."""
    notes, is_as_found = _as_found(devices, request.may_set)
    if request.limits_power:
        claims, limits_w = _limited(devices)
        return claims, ClaimReport(is_as_found, knobs=claims.knobs, limits_w=limits_w, notes=tuple(notes))
    is_measured = not request.searches or _is_measured(devices, notes)
    searches = request.searches and is_as_found and is_measured
    if not (searches or request.sets_known):
        return NodeClaims(), ClaimReport(is_as_found, is_measured, notes=tuple(notes))
    settings: dict[str, AppliedSettings] = {}
    try:
        for device in devices:
            settings[device.name] = claim(device, exact=searches, with_processors=request.with_processors)
    except UnfitEnvironment as error:
        NodeClaims(settings).restore()
        refusal = f"{error}" + (f" ({error.hint})" if error.hint else "")
        return NodeClaims(), ClaimReport(is_as_found, is_measured, refusal, notes=tuple(notes))
    except BaseException:
        NodeClaims(settings).restore()
        raise
    notes += [f"{CPU_FREQUENCY} stays as it is: {each.apart}" for each in settings.values() if each.apart_for_a_run]
    claims = NodeClaims(settings)
    return claims, ClaimReport(is_as_found, is_measured, knobs=claims.knobs, notes=tuple(notes))


def _as_found(devices: Sequence[DeviceInfo], may_set: bool) -> tuple[list[str], bool]:
    """Notes about settings of other runs, and whether no device has any."""
    notes: list[str] = []
    is_so = True
    for device in devices:
        for look in (leftovers, leftovers_beside):
            words, is_own = look(device, may_set)
            notes += [line for line in words if line not in notes]
            is_so = is_so and is_own
    return notes, is_so


def _is_measured(devices: Sequence[DeviceInfo], notes: list[str]) -> bool:
    """Whether the joules of all devices are measured. A note says why not, once."""
    for device in devices:
        try:
            check_meter(device)
        except UnfitEnvironment as error:
            reason = f"no setting is searched: {error}"
            if is_news(f"search on {device.uuid or device.name}", reason):
                hint = f"{error.hint}; " if error.hint and "doctor" not in error.hint else ""
                notes.append(f"{reason} ({hint}told once: `ecoshare doctor` tells it again)")
            return False
    return True


def _limited(devices: Sequence[DeviceInfo]) -> tuple[NodeClaims, dict[str, tuple[float, ...]]]:
    """Claim the power limit of each device, for a power budget. Limits that a dead run left are restored first."""
    settings: dict[str, AppliedSettings] = {}
    try:
        for device in devices:
            settings[device.name] = claim(device, exact=True, only=(POWER_LIMIT,), keeps=True, or_fixed=True)
        # A device at its least limit has nothing to set.
        return NodeClaims(settings), {
            device.name: limits_of(settings[device.name].control.specs) or device_limits_w(device) for device in devices
        }
    except BaseException:
        NodeClaims(settings).restore()
        raise


@dataclass(frozen=True, slots=True)
class OneSearch:
    """A run for one search on one device, which is claimed already.

    A run sets all of its devices or none: the settings that it finds on one hold on the others.

    Attributes:
        claims: Claim of the device.
        searches: The search.
    """

    claims: NodeClaims
    searches: RunSearches


def claim_request(plan: Plan) -> ClaimRequest:
    """Request of a plan to its nodes."""
    searches = plan.goal is not None and plan.profiles is not None
    knows_frequency = any(CPU_FREQUENCY in dict(each.setting) for each in plan.known_settings)
    return ClaimRequest(
        may_set=plan.control,
        searches=searches,
        sets_known=any(each.setting for each in plan.known_settings),
        # The processors beside several GPUs serve all of them, so their frequency is the knob of none.
        with_processors=(searches or knows_frequency) and len(plan.devices) == 1,
        limits_power=plan.budget.sets_limits,
    )


def settled(
    plan: Plan,
    reports: Sequence[ClaimReport],
    knobs: Callable[[str], DeviceKnobs],
    notes: list[str],
) -> tuple[Plan, RunSearches]:
    """Plan and searches that the reports of the nodes allow.

    Args:
        plan: The plan.
        reports: Report of each node.
        knobs: Returns the knobs of a claimed device that can still be set, by its name.
        notes: Gets notes for the user, each once.

    Raises:
        UnfitEnvironment: The least power limits exceed the budget.
    """
    for report in reports:
        notes += [note for note in report.notes if note not in notes]
    if not all(report.is_as_found for report in reports):
        plan = replace(plan, profiles=None)  # times at the settings of another run are not kept
    if plan.budget.sets_limits:
        limits_w: Mapping[str, tuple[float, ...]] = {
            name: each for report in reports for name, each in report.limits_w.items()
        }
        return replace(plan, budget=with_limits(plan.budget, limits_w)), RunSearches()
    refusals = [report.refusal for report in reports if report.refusal]
    if refusals:
        notes.append(f"clocks and power stay as they are: {refusals[0]}")
        plan = replace(plan, known_settings=())
    if plan.goal is None or plan.profiles is None or refusals or not all(report.is_measured for report in reports):
        return replace(plan, goal=None), RunSearches()
    goal, store = plan.goal, TuningStore(plan.profiles)

    def searching(device: DeviceInfo) -> Searching:
        return Searching(lambda: knobs(device.name), device, plan, goal, store, keep=True)

    return plan, RunSearches({each.name: searching(each) for each in plan.devices}, searching)
