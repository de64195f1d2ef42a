"""Requests of a run to set its devices, and the plan and the searches that the reports of its nodes allow.

A run sets all of its devices or none: the settings that it finds on one hold on the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ecoshare.devices.cpu_knobs import CPU_FREQUENCY
from ecoshare.devices.device_knobs import DeviceKnobs
from ecoshare.profiling.tuning_store import TuningStore
from ecoshare.runtime.node_claims import ClaimReport, ClaimRequest, NodeClaims
from ecoshare.runtime.plan import Plan
from ecoshare.runtime.planned_power import with_limits
from ecoshare.runtime.run_searches import RunSearches
from ecoshare.runtime.setting_searches import Searching
from ecoshare.values.device import DeviceInfo


@dataclass(frozen=True, slots=True)
class OneSearch:
    """A run for one search on one device, which is claimed already.

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
