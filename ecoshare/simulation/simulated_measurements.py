"""Simulated measurements: profiling windows of single jobs, measurements of settings and packings, and advice.

The live runtime (`runtime/measuring/`) does the same. Here it takes virtual time and has the same errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ecoshare.advisers.advice import Advice
from ecoshare.core.commands import AskInterference, AskPower, AskSetting, MeasureSetting, ProfileJob
from ecoshare.core.events import Event, InterferencePredicted, PowerPredicted, Profiled, SettingMeasured
from ecoshare.simulation.costs import Costs
from ecoshare.simulation.simulated_attempt import SimulatedAttempt
from ecoshare.simulation.virtual_device import VirtualDevice
from ecoshare.simulation.world import Truth
from ecoshare.values.measurement import Measurement, MeasurementStatus, PairSpeed

Later = Callable[[float, Callable[[float], Event | None]], None]
"""Function that calls back at a time (s) and passes the event that the callback returns to the core."""

Foresee = Callable[[AskInterference], tuple[tuple[PairSpeed, ...], dict[str, float]]]
"""Adviser on interference: speeds of ordered pairs, and the price of each class's work, as `interference_adviser`."""


class SimulatedMeasurements:
    """Executor of the commands that measure, and of those that ask an adviser."""

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

    def profile(self, command: ProfileJob, seat: SimulatedAttempt, now_s: float) -> None:
        """Measure a job alone. The first window on a device measures the idle device before the job."""
        device = self._reserve(seat, "", now_s).name
        rest_s = 0.0 if device in self._watched else self._costs.rest_s
        self._watched.add(device)
        self._later(now_s + rest_s, partial(self._rested, command, seat))

    def _rested(self, command: ProfileJob, seat: SimulatedAttempt, now_s: float) -> None:
        self._reserve(seat, seat.job.name, now_s)
        self._later(now_s + self._costs.window_s, partial(self._profiled, command, seat))

    def _profiled(self, command: ProfileJob, seat: SimulatedAttempt, now_s: float) -> Profiled:
        device = self._reserve(seat, None, now_s)
        if seat.left_s <= 0.0:
            return Profiled(now_s, command.id, None, "the job ended in its window")
        return Profiled(now_s, command.id, seat.job.memory, "", self._world.solo(seat.job, device.name, now_s))

    def measure(
        self, command: MeasureSetting, device: VirtualDevice, seats: Sequence[SimulatedAttempt], now_s: float
    ) -> None:
        """Measure the jobs of a device beside each other, at one setting."""
        self._later(now_s + self._costs.trial_s, partial(self._measured, command, device, seats))

    def _measured(
        self, command: MeasureSetting, device: VirtualDevice, seats: Sequence[SimulatedAttempt], now_s: float
    ) -> SettingMeasured:
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
            from ecoshare.advisers.power_adviser import respond  # imports torch, so only on demand

            event = partial(PowerPredicted, command=command.id, response=respond(command))
        else:
            from ecoshare.advisers.interference_adviser import foresee  # imports scipy, so only on demand

            pairs, prices = (self._foresee or foresee)(command)
            event = partial(InterferencePredicted, command=command.id, pairs=pairs, prices=prices)
        self._later(now_s + self._costs.ask_s, event)
