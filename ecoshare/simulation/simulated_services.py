"""Services in a simulation: they want their turns when requests come, and tell of targets that they miss."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from ecoshare.base.measurement import Measurement, MeasurementStatus, PairSpeed
from ecoshare.base.plural import listed
from ecoshare.core.commands import AskInterference, AskPower, AskSetting, MeasureSetting, ProfileJob
from ecoshare.core.events import (
    Config,
    Event,
    InterferencePredicted,
    PowerPredicted,
    Profiled,
    SettingMeasured,
    TargetMissed,
)
from ecoshare.core.policies import named
from ecoshare.core.settings.service_targets import TargetWatch
from ecoshare.errors import UsageError
from ecoshare.knowledge.advisers.advice import Advice
from ecoshare.lane.serving.request_intervals import against_target
from ecoshare.simulation.cluster import Cluster
from ecoshare.simulation.costs import Costs
from ecoshare.simulation.simulated_attempt import ServiceAttempt, SimulatedAttempt
from ecoshare.simulation.traces.job_trace import Trace
from ecoshare.simulation.virtual_lanes import VirtualDevice, VirtualLane, VirtualLanes
from ecoshare.simulation.world import Truth


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


Later = Callable[[float, Callable[[float], Event | None]], None]
"""Function that calls back at a time (s) and passes the event that the callback returns to the core."""

Foresee = Callable[[AskInterference], tuple[tuple[PairSpeed, ...], dict[str, float]]]
"""Adviser on interference: speeds of ordered pairs, and the price of each class's work, as `interference_adviser`."""


class SimulatedMeasurements:
    """Executor of the commands that measure, and of those that ask an adviser.

    The live runtime (`runtime/measuring/`) does the same. Here it takes virtual time and has the same errors.

    Attributes:
        open: Number of windows and measurements that have begun and not ended.
    """

    def __init__(
        self,
        world: Truth,
        costs: Costs,
        tuner: Callable[[AskSetting], Advice] | None,
        foresee: Foresee | None,
        reserve: Callable[[SimulatedAttempt, str | None, float], VirtualDevice],
        later: Later,
    ) -> None:
        """Start without any measurement.

        Args:
            world: Truth about devices and jobs.
            costs: Durations of windows, measurements and advice.
            tuner: Adviser on settings; None if the run searches none.
            foresee: Adviser on interference; None for ecoshare's own.
            reserve: Restricts turns on the device of an attempt to one job, to no job (empty), or to all (None).
            later: Calls back at a time.
        """
        self._world, self._costs, self._tuner, self._foresee = world, costs, tuner, foresee
        self._reserve, self._later = reserve, later
        self._watched: set[str] = set()
        self.open = 0

    def profile(self, command: ProfileJob, seat: SimulatedAttempt, now_s: float) -> None:
        """Measure a job alone. The first window on a device measures the idle device before the job."""
        self.open += 1
        device = self._reserve(seat, "", now_s).name
        rest_s = 0.0 if device in self._watched else self._costs.rest_s
        self._watched.add(device)
        self._later(now_s + rest_s, partial(self._rested, command, seat))

    def _rested(self, command: ProfileJob, seat: SimulatedAttempt, now_s: float) -> None:
        self._reserve(seat, seat.job.name, now_s)
        self._later(now_s + self._costs.window_s, partial(self._profiled, command, seat))

    def _profiled(self, command: ProfileJob, seat: SimulatedAttempt, now_s: float) -> Profiled:
        self.open -= 1
        device = self._reserve(seat, None, now_s)
        if seat.left_s <= 0.0:
            return Profiled(now_s, command.id, None, "the job ended in its window")
        return Profiled(now_s, command.id, seat.job.memory, "", self._world.solo(seat.job, device.name, now_s))

    def measure(
        self, command: MeasureSetting, device: VirtualDevice, seats: Sequence[SimulatedAttempt], now_s: float
    ) -> None:
        """Measure the jobs of a device beside each other, at one setting."""
        self.open += 1
        self._later(now_s + self._costs.trial_s, partial(self._measured, command, device, seats))

    def _measured(
        self, command: MeasureSetting, device: VirtualDevice, seats: Sequence[SimulatedAttempt], now_s: float
    ) -> SettingMeasured:
        self.open -= 1
        world, at_work = self._world, [seat.job for seat in device.seats]
        if any(seat.job not in at_work for seat in seats):
            note = "a job ended before the measurement"
            return SettingMeasured(
                now_s, command.id, Measurement(command.setting, MeasurementStatus.CONTAMINATED, note=note)
            )
        if any(seat.is_service for seat in seats):
            note = "joules of services are not simulated"
            return SettingMeasured(now_s, command.id, Measurement(command.setting, MeasurementStatus.FAILED, note=note))
        times_s = {
            seat.job.name: world.measured(seat.iteration_s / seat.speed, f"time of {seat.job.name}", now_s)
            for seat in seats
        }
        idle_w = world.idle_w
        power_w = world.measured(idle_w + device.watts, f"power of {device.name}", now_s)
        found = Measurement(
            command.setting,
            MeasurementStatus.MEASURED,
            power_w=power_w,
            joules=power_w * self._costs.trial_s,
            duration_s=self._costs.trial_s,
            times_s=times_s,
            shares=dict.fromkeys(times_s, 1.0),
            rates={name: 1.0 / time_s for name, time_s in times_s.items()},
        )
        return SettingMeasured(now_s, command.id, found)

    def ask(self, command: AskSetting | AskInterference | AskPower, now_s: float) -> None:
        """Ask an adviser, which answers from the present data after `Costs.ask_s`."""
        event: Callable[[float], Event]
        if isinstance(command, AskSetting):
            assert self._tuner is not None, "settings are searched only where there is a tuner"
            event = self._tuner(command).told(command.id)
        elif isinstance(command, AskPower):
            from ecoshare.knowledge.advisers.power_adviser import respond  # imports torch, so only on demand

            event = partial(PowerPredicted, command=command.id, response=respond(command))
        else:
            from ecoshare.knowledge.advisers.interference_adviser import foresee  # imports scipy, so only on demand

            pairs, prices = (self._foresee or foresee)(command)
            event = partial(InterferencePredicted, command=command.id, pairs=pairs, prices=prices)
        self._later(now_s + self._costs.ask_s, event)
