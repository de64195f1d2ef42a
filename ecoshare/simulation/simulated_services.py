"""Services in a simulation: they want their turns when requests come, and tell of targets that they miss."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from ecoshare.common.plural import listed
from ecoshare.core.events import Config, Event, TargetMissed
from ecoshare.core.policies import named
from ecoshare.core.service_targets import TargetWatch
from ecoshare.errors import UsageError
from ecoshare.serving.request_intervals import against_target
from ecoshare.simulation.cluster import Cluster
from ecoshare.simulation.service_attempt import ServiceAttempt
from ecoshare.simulation.traces.job_trace import Trace
from ecoshare.simulation.virtual_lane import VirtualLane
from ecoshare.simulation.virtual_lanes import VirtualLanes


def check_places(trace: Trace, cluster: Cluster, config: Config) -> None:
    """Refuse open-ended services that would leave no place for the other jobs of a trace, as a live run does.

    Raises:
        UsageError: The services would take all places.
    """
    services = [job.name for job in trace.jobs if job.service is not None and job.service.is_open_ended]
    places = cluster.size * config.lanes_per_device * (named(config.policy).places or config.places_per_lane)
    if services and len(services) < len(trace.all_jobs) and len(services) >= places:
        raise UsageError(
            f"policy {config.policy}: {listed(services)} would keep all places ({places}), so other jobs would wait "
            "for ever",
            "give more with --lanes or --jobs-per-lane, or give the services a last request (count)",
        )


class SimulatedServices:
    """Services that have a place."""

    def __init__(
        self,
        lanes: VirtualLanes,
        later: Callable[[float, Callable[[float], Event | None]], None],
        served: Callable[[ServiceAttempt, float], None],
        tell: Callable[[Event], None],
    ) -> None:
        """No service has a place yet.

        Args:
            lanes: All lanes.
            later: Calls a function at a time (s), and tells the event that it returns, if any.
            served: Ends a service that has answered its last request.
            tell: Tells the core an event.
        """
        self._lanes, self._later, self._served, self._tell = lanes, later, served, tell

    def joined(self, seat: ServiceAttempt, now_s: float) -> None:
        """Let requests of a service come that has joined its lane. The start takes no turn."""
        if seat.requests.is_open:  # it was parked
            self._go_on(seat, now_s)
        else:
            self._later(now_s + seat.job.startup_s, partial(self._open, seat))

    def answered(self, seat: ServiceAttempt, lane: VirtualLane, now_s: float) -> None:
        """End the batch of the holder of a lane."""
        lane.answered(seat, now_s)
        self._lanes.changed(lane, now_s, seat)
        if not seat.wants_turn:
            self._go_on(seat, now_s)
        self._look(seat, now_s)

    def _open(self, seat: ServiceAttempt, now_s: float) -> None:
        if not seat.is_killed:
            seat.requests.open(now_s)
            seat.watch = TargetWatch(now_s)
            self._go_on(seat, now_s)

    def _go_on(self, seat: ServiceAttempt, now_s: float) -> None:
        """Let a service want the turn if requests wait; else wait for the next one, or end after the last."""
        lane = self._lanes.of(seat)
        if seat.wants_turn or lane.seats.get(seat.job.name) is not seat:
            return  # it is answering already, has ended, or is parked
        if seat.requests.is_over:
            self._served(seat, now_s)
        elif (claim := seat.requests.claim(now_s)) is not None:
            before = lane.holder
            lane.want(seat, claim, now_s)
            self._lanes.changed(lane, now_s, before)
        elif seat.requests.next_s < math.inf:
            self._later(seat.requests.next_s, partial(self._go_on, seat))

    def _look(self, seat: ServiceAttempt, now_s: float) -> None:
        """Tell the core if the target was missed for a minute."""
        for each in seat.requests.intervals[seat.watched :]:
            seat.watched += 1
            if seat.watch is not None and (missed := seat.watch.saw(now_s, *against_target([each]))) is not None:
                self._tell(TargetMissed(now_s, seat.job.name, *missed))
