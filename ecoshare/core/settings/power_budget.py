"""Power budget: the limits of all devices, which together never exceed it.

::

    a job came, went or was measured ──► the limits under which the work costs least (`power_allocation.py`)
                                             │
           lower limits first                ▼            when these are in force, what they freed is given away
      ApplySetting cuda:0 ──► Done ──► ApplySetting cuda:1 ──► Done

    a packing is warm and its limit new ──► MeasureSetting ──► AskPower ──► PowerPredicted: its response is known better

A limit counts from the command that raises it until the answer to the command that lowers it. An idle device counts
with the limit that is set there, too. No job starts before the limits that a run found fit into the budget. A device
may round a limit up. It then counts with the limit that it shows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from ecoshare.base.class_profile import (
    MOST_MEASUREMENTS,
    NEAR,
    POWER_LIMIT,
    KnownResponse,
    LimitMeasurement,
    PowerPoint,
    PowerResponse,
    not_kept,
)
from ecoshare.base.measurement import AS_FOUND, Measurement, MeasurementStatus, Packing, Setting
from ecoshare.base.segment import Segment
from ecoshare.core.commands import ApplySetting, AskPower, Command, MeasureSetting
from ecoshare.core.events import (
    ClassesKnown,
    Done,
    PowerPredicted,
    Refused,
    RunOpened,
    SettingAdvised,
    SettingAnswer,
    SettingMeasured,
)
from ecoshare.core.placement.colocation_estimates import IDLE_SHARE, ColocationForecast
from ecoshare.core.policies.base import PackingPolicy
from ecoshare.core.records import Job, Lane
from ecoshare.core.run_state import RunState
from ecoshare.core.settings.power_allocation import TOLERANCE_W, PoweredDevice, allocate, cost_at
from ecoshare.core.settings.setting_selection import by_lane, packing_of

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


GAIN = 0.01
"""Least relative fall of the cost for which limits are changed: each change takes a moment, and is written down."""

MOST_TRIES = 8
"""Most measurements that are begun for one packing. Some fail, because a job ends meanwhile."""

_UNKNOWN_EXPONENT = 0.5
"""Assumed exponent of the speed against the limit, before the adviser has answered for a packing."""


class PowerBudget:
    """Limits of all devices. It takes the place of the setting selection in a run with a budget.

    Attributes:
        short_w: Least limit (W) under which the jobs of a device keep their slowdown limits, by its name. Only devices
            are named that have a lower one, because the budget does not suffice for all.
    """

    active = tries = True

    def __init__(
        self,
        opened: RunOpened,
        state: RunState,
        policy: PackingPolicy | None,
        present: Callable[[Iterable[Lane]], list[Job]],
        next_id: Callable[[], int],
        bear: Callable[[Sequence[Job], float], bool] = lambda _jobs, _slower: True,
    ) -> None:
        """Budget of a run that begins. All devices have the limits that they were found with.

        Args:
            opened: Opening of the run, with the budget, which is at least the sum of the least limits, and with devices
                that all have limits that can be set.
            state: State of the run; `over_budget` is kept up to date.
            policy: Policy of the run, if it packs: the objective. None stands for the most work per second.
            present: Function that returns the jobs of some lanes that make up the packing of their device.
            next_id: Function that returns the id of the next command.
            bear: See `SettingSelector`.
        """
        config = opened.config
        self._budget_w, self._least_speed = config.power_budget_w, 1.0 / (config.tuning_limit or inf)
        self._most_w = self._budget_w + 2 * TOLERANCE_W  # sums are rounded: no start may wait for the last bit
        self._state, self._policy = state, policy
        self._present, self._next_id, self._bear = present, next_id, bear
        self.short_w: dict[str, float] = {}
        self._devices = {
            each.name: LimitedDevice(each.name, limits, limits[-1], limits[-1], limits[-1])
            for each in opened.devices
            if (limits := each.power_limits_w)
        }
        self._responses: dict[PackingKind, PowerResponse] = {}
        self._measured = {each.packing: list(each.measurements) for each in opened.known_responses}
        self._tries: Counter[Packing] = Counter()
        self._asked: dict[int, tuple[str, PackingKind]] = {}  # device that asks, and what about
        self._is_stale = True
        self._look_at_sum()

    @property
    def in_force(self) -> dict[str, Setting]:
        """Setting of each device that has not the limit that it was found with, while no command is on the way."""
        return {name: device.setting for name, device in self._devices.items() if device.setting != AS_FOUND}

    @property
    def shown_w(self) -> tuple[tuple[str, float, float], ...]:
        """Limits (W) that devices were asked for and show, as (device, asked, shown)."""
        return tuple(
            (name, asked_w, shown_w)
            for name, device in self._devices.items()
            for asked_w, shown_w in sorted(device.shown_w.items())
        )

    @property
    def responses(self) -> Iterable[KnownResponse]:
        """Measurements of packings under power limits, from earlier runs and this one."""
        return (KnownResponse(packing, tuple(found)) for packing, found in self._measured.items())

    def go_on(self, segment: Segment) -> None:
        """Take over the limits in force, and those that devices have shown."""
        for name, asked_w, shown_w in segment.limits_w:
            device = self._devices[name]
            device.shown_w[asked_w] = shown_w
            device.rounds_up |= shown_w > asked_w
        for name, setting in segment.settings:
            device = self._devices[name]
            device.in_force_w = device.wanted_w = device.goal_w = float(dict(setting)[POWER_LIMIT])
        self._look_at_sum()

    def knows(self, event: ClassesKnown) -> None:
        """Learn measurements under limits of packings of classes that are new in this run."""
        for each in event.known_responses:
            self._measured.setdefault(each.packing, list(each.measurements))
        self._is_stale = True

    def begin(self) -> list[Command]:
        """Commands that bring the limits that the run found into the budget."""
        return self._deal()

    @property
    def counted_w(self) -> float:
        """Sum (W) of the limits that may be in force."""
        return sum(each.counts_w for each in self._devices.values())

    def is_measuring(self, name: str) -> bool:
        """Whether a measurement is under way on a device. A job that comes or goes now makes it void."""
        return self._devices[name].measures

    def at_default(self, lane: Lane) -> bool:
        """Whether the device of a lane has the limit that it was found with, and no command is about to change that."""
        device = self._devices[lane.device.name]
        return device.command is None and device.setting == AS_FOUND

    def look(self, name: str, lanes: Sequence[Lane], ready: bool) -> list[Command]:
        """Commands that follow from the present packing of a device; see `SettingSelector.look`."""
        device = self._devices[name]
        jobs = tuple(self._present(lanes))
        # A device between two jobs keeps its limit: the next one comes in a moment.
        if jobs or not (self._state.starting or self._state.live > self._state.placed):
            self._is_stale |= set(jobs) != set(device.jobs)
            device.packing, device.turns = packing_of(jobs), by_lane(jobs)
        return [*self._deal(), *(self._learn(device, ready) if jobs else ())]

    def owns(self, command: int) -> bool:
        """Whether a command belongs to the budget and has no answer yet."""
        return command in self._asked or any(each.command == command for each in self._devices.values())

    def device_of(self, command: int) -> str:
        """Name of the device that an unanswered command is about."""
        if command in self._asked:
            return self._asked[command][0]
        return next(each.name for each in self._devices.values() if each.command == command)

    def answered(self, event: SettingAnswer, lanes: Sequence[Lane]) -> list[Command]:
        """Commands that follow from the answer to a command of the budget.

        Args:
            event: The answer.
            lanes: All lanes of the device that the command is about.
        """
        if isinstance(event, PowerPredicted):
            _, kind = self._asked.pop(event.command)
            self._responses[kind] = event.response
            self._is_stale = True
            return self._deal()
        device = self._devices[self.device_of(event.command)]
        device.command = None
        commands: list[Command] = []
        match event:
            case Done():
                device.in_force_w = device.wanted_w
                if device.has_shown(event.limit_w):
                    self._is_stale = True
                    shown_w = device.takes_w(device.in_force_w)
                    self._give_up(device, f"it rounds a limit of {device.in_force_w:g} W up to {shown_w:g} W")
            case Refused():
                # A failed call may have worked: the higher of the two limits may be in force.
                device.in_force_w = device.wanted_w = max(device.in_force_w, device.wanted_w)
                device.is_stuck, self._is_stale = True, True
                self._give_up(device, event.error)
            case SettingMeasured():
                device.measures, self._is_stale = False, True
                commands = self._told(device, event.measurement, packing_of(self._present(lanes)))
            case SettingAdvised():
                raise AssertionError("a run with a budget searches no settings")
        self._look_at_sum()
        return commands + self._deal()

    def drop(self, name: str) -> list[int]:
        """Take a failed device out of the choice. Returns its unanswered commands.

        It counts with the largest limit that may be in force there: nothing can be set any more, and it may still draw.
        """
        device = self._devices[name]
        commands = [number for number, (asks, _) in self._asked.items() if asks == name]
        for number in commands:
            del self._asked[number]
        if device.command is not None:
            commands.append(device.command)
        device.in_force_w = device.goal_w = device.wanted_w = max(device.in_force_w, device.wanted_w)
        device.command, device.measures, device.is_stuck = None, False, True
        device.packing, device.turns, self._is_stale = (), (), True
        self._give_up(device, "it failed before its limit was lowered")
        return commands

    # Limits

    def _deal(self) -> list[Command]:
        """Commands that bring the limits nearer to the best ones."""
        if self._is_stale:
            self._is_stale = False
            self._choose()
        commands: list[Command] = []
        for device in self._devices.values():
            if device.command is None and device.goal_w < device.in_force_w:
                commands.append(self._apply(device))
        for device in self._devices.values():
            more_w = device.takes_w(device.goal_w) - device.takes_w(device.in_force_w)
            is_higher = device.command is None and device.goal_w > device.in_force_w
            if is_higher and self.counted_w + more_w <= self._most_w:
                commands.append(self._apply(device))
        return commands

    def _choose(self) -> None:
        """Choose the limit of each device. Those of this moment stay if others are hardly better."""
        devices = list(self._devices.values())
        for each in devices:
            if each.is_fixed:
                each.goal_w = each.in_force_w
        at_any = [self._powered(each) for each in devices]
        bearable = [self._borne(device, each) for device, each in zip(devices, at_any, strict=True)]
        powered = self._fast_enough(at_any, bearable)
        best = allocate(powered, self._budget_w, self._cost)
        if self._is_better(powered, best):
            self._aim_at(best)
        needed_w = {device.name: each.response[0].limit_w for device, each in zip(devices, bearable, strict=True)}
        short = [each for each in devices if each.takes_w(each.goal_w) < needed_w[each.name]]
        self.short_w = {each.name: each.asks_w(needed_w[each.name]) for each in short}

    def _is_better(self, powered: list[PoweredDevice], best: list[float]) -> bool:
        """Whether limits that take so much (W) are better than those that the devices should have up to now."""
        now = [each.takes_w(each.goal_w) for each in self._devices.values()]
        # A limit below the first point of a response is too low for the tuning limit or for a job.
        is_fast = all(limit_w >= each.response[0].limit_w for each, limit_w in zip(powered, now, strict=True))
        if not is_fast or sum(now) > self._most_w:
            return True
        before = cost_at(powered, now, self._cost)
        return before == inf or before * (1.0 - GAIN) > cost_at(powered, best, self._cost)

    def _aim_at(self, best: list[float]) -> None:
        """Let each device have the limit that takes so much (W) of the budget."""
        left_w = self._budget_w - sum(best)
        for device, limit_w in zip(self._devices.values(), best, strict=True):
            more_w = device.takes_w(device.in_force_w) - limit_w
            # An idle device keeps its limit while nothing needs the watts: it draws no more, and starts the faster.
            stays = not device.turns and 0.0 < more_w <= left_w
            device.goal_w = device.in_force_w if stays or device.is_fixed else device.asks_w(limit_w)
            left_w -= more_w if stays else 0.0

    def _fast_enough(self, at_any: list[PoweredDevice], bearable: list[PoweredDevice]) -> list[PoweredDevice]:
        """The devices without limits that are too low, as far as the budget suffices for that.

        The tuning limit gives way first, then the slowdown limits of jobs.

        Args:
            at_any: The devices with all their limits.
            bearable: The devices without limits under which a job breaks its slowdown limit.
        """
        tuned = [replace(each, response=_from(each.response, self._least_speed)) for each in bearable]
        fits = (each for each in (tuned, bearable) if sum(one.response[0].limit_w for one in each) <= self._most_w)
        return next(fits, at_any)

    def _borne(self, device: LimitedDevice, powered: PoweredDevice) -> PoweredDevice:
        """The device without limits under which a job breaks its slowdown limit. The largest limit is always left."""
        if all(job.spec.slowdown_limit is None for job in device.jobs):
            return powered
        response = powered.response
        kept = tuple(point for point in response if self._bear(device.jobs, 1.0 / point.speed))
        return replace(powered, response=kept or response[-1:])

    def _powered(self, device: LimitedDevice) -> PoweredDevice:
        """The device as the allocation sees it. A device that measures or is stuck keeps its limit."""
        response = self._response(device)
        full_w = response[-1].power_w
        if device.is_fixed:
            response = (_at(response, device.in_force_w),)
        if device.rounds_up:  # the largest one stands for limits that take as much
            taken = {device.takes_w(each.limit_w): each for each in response}
            response = tuple(replace(taken[limit_w], limit_w=limit_w) for limit_w in sorted(taken))
        if not device.turns:
            limit_w = device.takes_w(device.in_force_w if device.is_fixed else device.limits_w[0])
            return PoweredDevice((PowerPoint(limit_w, 1.0, min(limit_w, IDLE_SHARE * device.limits_w[-1])),))
        part_w = full_w / len(device.turns)
        worth = sum(sum(self._worth(job, part_w) for job in jobs) / len(jobs) for jobs in device.turns)
        return PoweredDevice(response, float(len(device.turns)), worth)

    def _worth(self, job: Job, full_w: float) -> float:
        """Worth of a second of a job's work: of its joules, for an objective that counts these."""
        return 1.0 if self._policy is None else self._policy.worth(job, full_w, job.told_s)

    def _cost(self, speeds: float, worth: float, power_w: float) -> float:
        if worth <= 0.0:
            return inf
        if self._policy is None:
            return 1.0 / worth
        return self._policy.spent(ColocationForecast((speeds,), (0.0,), power_w)) / worth

    def _apply(self, device: LimitedDevice) -> ApplySetting:
        device.wanted_w, device.command = device.goal_w, self._next_id()
        return ApplySetting(device.command, device.name, setting_at(device, device.goal_w))

    def _give_up(self, device: LimitedDevice, error: str) -> None:
        """Let no job start if the least limits, with that of a device that refuses another one, exceed the budget."""
        every = self._devices.values()
        least_w = [each.takes_w(each.in_force_w if each.is_stuck else each.limits_w[0]) for each in every]
        if self._state.over_budget and sum(least_w) > self._most_w and not self._state.refusal:
            self._state.refusal = not_kept(self._budget_w, device.name, error)

    def _look_at_sum(self) -> None:
        in_force_w = sum(each.takes_w(each.in_force_w) for each in self._devices.values())
        self._state.over_budget = in_force_w > self._most_w

    # Responses

    def _response(self, device: LimitedDevice) -> PowerResponse:
        known = self._responses.get(device.kind)
        if known is not None:
            return known
        most_w = device.limits_w[-1]
        return tuple(PowerPoint(each, (each / most_w) ** _UNKNOWN_EXPONENT, each) for each in device.limits_w)

    def _learn(self, device: LimitedDevice, ready: bool) -> list[Command]:
        """Question about an unknown packing, and measurement of a packing that will last under a new limit."""
        commands: list[Command] = []
        if device.kind not in self._responses:
            commands += self._ask(device)
        if ready and device.command is None and device.in_force_w == device.goal_w and self._is_new(device):
            self._tries[device.packing] += 1
            device.command, device.measures = self._next_id(), True
            jobs = tuple(sorted(job.spec.name for job in device.jobs))
            commands.append(MeasureSetting(device.command, device.name, jobs, device.setting))
        return commands

    def _is_new(self, device: LimitedDevice) -> bool:
        """Whether a measurement of the packing of a device under its limit would teach something."""
        known = self._measured.get(device.packing, [])
        if len(known) >= MOST_MEASUREMENTS or self._tries[device.packing] >= MOST_TRIES:
            return False
        if device.is_stuck:
            return False  # which limit is in force is not sure
        if any(each.measures and each.packing == device.packing for each in self._devices.values()):
            return False
        return all(abs(each.limit_w / device.takes_w(device.in_force_w) - 1.0) > NEAR for each in known)

    def _ask(self, device: LimitedDevice) -> list[Command]:
        if any(kind == device.kind for _, kind in self._asked.values()):
            return []  # the answer to an earlier question comes first
        command = self._next_id()
        self._asked[command] = device.name, device.kind
        return [AskPower(command, device.name, device.packing, device.limits_w, tuple(self._known(device)))]

    def _known(self, device: LimitedDevice) -> list[LimitMeasurement]:
        """Measurements of a packing, with that of its class alone from an earlier run, under the limit as found."""
        packing = device.packing
        solos = [job.spec.solo for job in device.jobs if packing == ((job.spec.job_class,),)]
        earlier = [
            LimitMeasurement(device.limits_w[-1], solo.power_w, ((packing[0][0], solo.iteration_s),))
            for solo in solos[:1]
            if solo is not None and solo.power_w and solo.iteration_s
        ]
        return [*earlier, *self._measured.get(packing, [])]

    def _told(self, device: LimitedDevice, found: Measurement, packing: Packing) -> list[Command]:
        """Note a measurement, and ask what follows from it."""
        if found.status is not MeasurementStatus.MEASURED or not found.power_w:
            return []
        if not packing or packing != device.packing:
            return []  # a job has come or gone meanwhile
        times: dict[str, list[float]] = {}
        for job in device.jobs:
            if job.spec.name in found.times_s:
                times.setdefault(job.spec.job_class, []).append(found.times_s[job.spec.name])
        if set(times) != {name for lane in packing for name in lane}:
            return []
        means = tuple((name, sum(times[name]) / len(times[name])) for name in sorted(times))
        limit_w = device.takes_w(device.in_force_w)
        self._measured.setdefault(packing, []).append(LimitMeasurement(limit_w, found.power_w, means))
        return self._ask(device)


def _from(response: PowerResponse, least_speed: float) -> PowerResponse:
    """Points with at least this speed. The last point has the speed 1, or it is the only one."""
    return tuple(point for point in response if point.speed >= least_speed) or response[-1:]


def _at(response: PowerResponse, limit_w: float) -> PowerPoint:
    """Point of a limit in force, with the values of the nearest lower limit of the response."""
    found = next((point for point in reversed(response) if point.limit_w <= limit_w), response[0])
    return replace(found, limit_w=limit_w)
