"""Joules above the clairvoyant bound, by what was at work at the time.

The joules of the bound are the worth of all work at its prices, by strong duality of the program in energy_bound.py.
So the joules of a run above the bound are a sum over time::

    joules - bound  =  sum of (power of the device - sum over the jobs at work of price x speed) x time

No term is below 0 for a packing that the bound may use, but for drift. A term says what the choice at that time cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from ecoshare.base.measurement import Setting
from ecoshare.core.commands import Command, MeasureSetting, ProfileJob
from ecoshare.core.events import Event, JobArrived, JobExited, Profiled, SettingMeasured
from ecoshare.simulation.traces.job_trace import TraceJob
from scripts.bench.energy import Judge


class When(Enum):
    """Kinds of time, by the jobs that were at work."""

    IDLE = "nothing at work"
    WINDOW = "in profiling windows"
    MEASURING = "while a setting is measured"
    ONLY = "one job at work, no other there"
    ALONE = "one job at work, others there"
    BESIDE = "several jobs at work"


class ExcessAccount:
    """Account of a run on one device.

    Attributes:
        joules: Joules above the bound.
    """

    def __init__(self, prices: Mapping[str, float]) -> None:
        """Account before the run.

        Args:
            prices: Worth (J) of a second of each class's work alone, in the bound.
        """
        self.joules = dict.fromkeys(When, 0.0)
        self._prices = prices
        self._at_s, self._excess_w = 0.0, 0.0
        self._at_work = self._there = self._windows = self._measurements = 0

    def works(self, classes: Sequence[str], speeds: Sequence[float], watts: float, at_s: float) -> None:
        """Note what is at work from now on."""
        self._advance(at_s)
        worth_w = sum(self._prices[each] * speed for each, speed in zip(classes, speeds, strict=True))
        self._at_work, self._excess_w = len(classes), watts - worth_w

    def watch(self, event: Event, commands: Sequence[Command]) -> None:
        """Note an event of the run, and the commands that followed."""
        self._advance(event.at_s)
        self._there += isinstance(event, JobArrived)
        self._there -= isinstance(event, JobExited) and event.outcome.is_the_end
        self._windows += sum(isinstance(each, ProfileJob) for each in commands) - isinstance(event, Profiled)
        self._measurements += sum(isinstance(each, MeasureSetting) for each in commands)
        self._measurements -= isinstance(event, SettingMeasured)

    def _advance(self, at_s: float) -> None:
        self.joules[self._when] += (at_s - self._at_s) * self._excess_w
        self._at_s = at_s

    @property
    def _when(self) -> When:
        if not self._at_work:
            return When.IDLE
        if self._windows:
            return When.WINDOW
        if self._measurements:
            return When.MEASURING
        if self._at_work > 1:
            return When.BESIDE
        return When.ALONE if self._there > 1 else When.ONLY


@dataclass(frozen=True)
class AccountingJudge(Judge):
    """Judge that tells an account what is at work."""

    account: ExcessAccount = field(kw_only=True)

    def device_watts(self, jobs: Sequence[TraceJob], device: str, setting: Setting, at_s: float) -> float:
        """See `Judge`. A question about no device is no news of one."""
        if device:
            classes = [each.job_class for each in jobs]
            state = self.world.state(classes, setting, at_s, device)
            self.account.works(classes, state.speeds, state.watts, at_s)
        return super().device_watts(jobs, device, setting, at_s)
