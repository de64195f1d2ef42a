"""Measurements of earlier runs that a queue has told its run already, so that each is told once."""

from __future__ import annotations

from dataclasses import replace

from ecoshare.core.events import RunOpened
from ecoshare.runtime.planning.plan import Plan


class KnownMeasurements:
    """Measurements of packings and co-locations that the run knows."""

    def __init__(self) -> None:
        """None so far."""
        self._known: set[tuple[str, object]] = set()

    def begin(self, opening: Plan | RunOpened) -> None:
        """Know what the opening of a run or of a segment has, and nothing else."""
        self._known = _measurements(opening)

    def add(self, plan: Plan) -> None:
        """Know what a plan has, too."""
        self._known |= _measurements(plan)

    def new_of(self, plan: Plan) -> Plan:
        """The plan without what is known already."""
        settings = {each.packing: each for each in plan.known_settings if ("setting", each.packing) not in self._known}
        responses = {
            each.packing: each for each in plan.known_responses if ("response", each.packing) not in self._known
        }
        colocations = dict.fromkeys(each for each in plan.colocations if ("co-location", each) not in self._known)
        return replace(
            plan,
            known_settings=tuple(settings.values()),
            known_responses=tuple(responses.values()),
            colocations=tuple(colocations),
        )


def _measurements(told: Plan | RunOpened) -> set[tuple[str, object]]:
    return {
        *(("setting", each.packing) for each in told.known_settings),
        *(("response", each.packing) for each in told.known_responses),
        *(("co-location", each) for each in told.colocations),
    }
