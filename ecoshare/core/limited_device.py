"""A device under a power budget: its limit, what is asked of it, and the jobs that are at work."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from ecoshare.core.records import Job
from ecoshare.values.packing import Packing
from ecoshare.values.power_response import POWER_LIMIT
from ecoshare.values.setting import AS_FOUND, Setting

PackingKind = tuple[Packing, tuple[float, ...]]
"""Packing, and the power limits (W) of its device."""


@dataclass(slots=True)
class LimitedDevice:
    """A device under the budget.

    Attributes:
        limits_w: Power limits (W) that it takes, ascending; the last is the one that it was found with.
        in_force_w: Limit in force, as it was asked for.
        wanted_w: Limit of the last `ApplySetting` command, in force or not.
        goal_w: Limit that the device should have.
        packing: Jobs that are at work.
        turns: Those jobs by lane, as they were when the device was looked at: a job may have lost its place since.
        command: Id of the `ApplySetting` or `MeasureSetting` command without an answer; None without one.
        measures: Whether that command measures.
        is_stuck: Whether the device has refused a limit. It then keeps the limit in force, or may have the refused one.
        shown_w: Limit that the device showed after each limit that it was asked for, or the latter if it is larger.
        rounds_up: Whether the device has shown a larger limit than the one that it was asked for.
    """

    name: str
    limits_w: tuple[float, ...]
    in_force_w: float
    wanted_w: float
    goal_w: float
    packing: Packing = ()
    turns: tuple[tuple[Job, ...], ...] = ()
    command: int | None = None
    measures: bool = False
    is_stuck: bool = False
    shown_w: dict[float, float] = field(default_factory=dict)
    rounds_up: bool = False

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Jobs that are at work."""
        return tuple(job for lane in self.turns for job in lane)

    @property
    def kind(self) -> PackingKind:
        """Kind of device and packing that has one response to limits."""
        return self.packing, self.limits_w

    @property
    def setting(self) -> Setting:
        """Setting in force."""
        return setting_at(self, self.in_force_w)

    @property
    def is_fixed(self) -> bool:
        """Whether the limit in force must stay: a measurement is under way, or the device refuses limits."""
        return self.measures or self.is_stuck

    @property
    def counts_w(self) -> float:
        """Power (W) with which the device counts: the largest limit that may be in force."""
        return max(self.takes_w(self.in_force_w), self.takes_w(self.wanted_w))

    def takes_w(self, limit_w: float) -> float:
        """Power (W) that one of its limits takes from the budget: the limit as the device shows it.

        A device that has rounded one limit up may round others up, too. A limit that was not tried counts as the next
        one. The least limit does not: it is never raised to, so it may be tried.
        """
        if not self.rounds_up or limit_w in self.shown_w or limit_w == self.limits_w[0]:
            return self.shown_w.get(limit_w, limit_w)
        return self.limits_w[min(bisect_right(self.limits_w, limit_w), len(self.limits_w) - 1)]

    def asks_w(self, takes_w: float) -> float:
        """Limit (W) to ask for, if so much of the budget is meant for the device: the largest that takes no more."""
        return max((each for each in self.limits_w if self.takes_w(each) <= takes_w), default=takes_w)

    def has_shown(self, limit_w: float | None) -> bool:
        """Note the limit (W) that the device shows after a command; None for the one that it was asked for.

        Returns:
            Whether a limit takes more of the budget than was known.
        """
        asked_w, before_w = self.in_force_w, self.takes_w(self.in_force_w)
        self.shown_w[asked_w] = max(asked_w, limit_w or 0.0)
        more = self.shown_w[asked_w] > before_w
        self.rounds_up = self.rounds_up or self.shown_w[asked_w] > asked_w
        return more


def setting_at(device: LimitedDevice, limit_w: float) -> Setting:
    """Setting of a device with a power limit (W); the default for the limit that it was found with."""
    return AS_FOUND if limit_w == device.limits_w[-1] else ((POWER_LIMIT, limit_w),)
