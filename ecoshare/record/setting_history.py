"""History of the settings that a run applied to its devices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ecoshare.base.class_profile import BY_LIMITS, BY_PLACEMENT, POWER_LIMIT, not_kept
from ecoshare.base.device import Device
from ecoshare.base.measurement import Measurement, Setting
from ecoshare.base.plural import counted
from ecoshare.base.segment import Segment
from ecoshare.core.commands import ApplySetting
from ecoshare.core.events import RunOpened
from ecoshare.core.settings.power_allocation import TOLERANCE_W
from ecoshare.jobs.quantities import format_duration, number

Values = dict[str, float | str]
"""Value of each knob that a setting names; empty for the default setting."""


@dataclass(slots=True)
class SettingPeriod:
    """Setting that was in force on a device for some time, or that was refused.

    Attributes:
        setting: Knobs that were named; the other knobs kept the values that the run found. Empty for a return to the
            default that was refused.
        from_s: Time (s) at which the setting was applied or refused.
        to_s: Time (s) of the next setting, or the end of a session that was resumed; None for a setting in force until
            the end of the run, or a refused one.
        trials: Number of measurements on the device while the setting was in force.
        error: Reason for the refusal; None if the setting was applied.
    """

    device: str
    setting: Values
    from_s: float
    to_s: float | None = None
    trials: int = 0
    error: str | None = None


@dataclass(slots=True)
class SettingHistory:
    """Settings of all devices.

    Attributes:
        periods: Settings other than the default, and refusals, in order of time.
    """

    periods: list[SettingPeriod] = field(default_factory=list)
    _in_force: dict[str, SettingPeriod] = field(default_factory=dict)

    def begin_session(self, before_s: float) -> None:
        """Begin a session: the guard has restored all settings since the end (s) of the session before, `before_s`."""
        for period in self._in_force.values():
            period.to_s = before_s
        self._in_force.clear()

    def go_on(self, settings: Iterable[tuple[str, Setting]], at_s: float) -> None:
        """Go on in another segment of the log, with these settings in force."""
        for device, setting in settings:
            if device not in self._in_force:
                self._in_force[device] = SettingPeriod(device, dict(setting), at_s)
                self.periods.append(self._in_force[device])

    def applied(self, command: ApplySetting, at_s: float) -> None:
        """Note that a setting is in force."""
        if (before := self._in_force.pop(command.device, None)) is not None:
            before.to_s = at_s
        if command.setting:
            self._in_force[command.device] = SettingPeriod(command.device, dict(command.setting), at_s)
            self.periods.append(self._in_force[command.device])

    def refused(self, command: ApplySetting, error: str, at_s: float) -> None:
        """Note that a setting was refused: the one before it stays in force."""
        self.periods.append(SettingPeriod(command.device, dict(command.setting), at_s, error=error))

    def measured(self, device: str, measurement: Measurement) -> None:
        """Note a measurement on a device."""
        period = self._in_force.get(device)
        if period is not None and period.setting == dict(measurement.setting):
            period.trials += 1


def setting_words(each: SettingPeriod) -> str:
    """Text for a period: `cuda:0: gpu_clock 1830, power_limit 567; from 16.7 s to 52.1 s, 1 measurement`."""
    values = values_words(each.setting) or "back to the default"
    if each.error is not None:
        return f"{each.device}: {values}; refused at {format_duration(each.from_s)}: {each.error}"
    to = "the end" if each.to_s is None else format_duration(each.to_s)
    measured = f", {counted(each.trials, 'measurement')}" if each.trials else ""
    return f"{each.device}: {values}; from {format_duration(each.from_s)} to {to}{measured}"


def values_words(setting: Values) -> str:
    """Text for the knobs of a setting, such as `gpu_clock 1830, power_limit 567`; empty for the default."""
    words = ((name, f"{value:g}" if isinstance(value, int | float) else value) for name, value in setting.items())
    return ", ".join(f"{name} {value}" for name, value in words)


@dataclass(frozen=True, slots=True)
class BudgetSummary:
    """Power budget of a run.

    Attributes:
        watts: The budget (W).
        by: `limits` if power limits were set, or `placement` if only the jobs that started were chosen.
        most_w: Largest sum (W) of the limits in force at once, from the moment in each session when it first was
            within the budget; None for a budget by placement, and before that moment.
    """

    watts: float
    by: str
    most_w: float | None

    @property
    def sets_limits(self) -> bool:
        """Whether power limits were set to keep it."""
        return self.by == BY_LIMITS

    @property
    def words(self) -> str:
        """Sentence for the user."""
        if self.by == BY_PLACEMENT:
            return f"power budget: {number(self.watts)} W, by the choice of the jobs that started; no limit was set"
        most = (
            "the limits were never within it"
            if self.most_w is None
            else f"the limits took at most {number(self.most_w)} W"
        )
        return f"power budget: {number(self.watts)} W; {most}"


class BudgetRecord:
    """Sum of the limits in force, followed through the log of a run.

    Attributes:
        refusal: Reason why no job of the last session could start, in words; empty if there is none.
    """

    def __init__(self) -> None:
        """Record of a run without a budget, until it is opened with one."""
        self._opened: RunOpened | None = None
        self._limits_w: dict[str, float] = {}
        self._most_w: float | None = None
        self._began = False
        self.refusal = ""

    def begin_session(self, opened: RunOpened) -> None:
        """Begin a session: all devices have the limits that they were found with."""
        self._opened, self._began, self.refusal = opened, False, ""
        self._limits_w = {each.name: each.power_limits_w[-1] for each in opened.devices if each.power_limits_w}
        self._look()

    def go_on(self, opened: RunOpened, segment: Segment) -> None:
        """Go on in another segment of the log, with the limits in force as they are."""
        if self._opened is None:
            self.begin_session(opened)
            shown_w = {(device, asked_w): shown_w for device, asked_w, shown_w in segment.limits_w}
            for device, setting in segment.settings:
                if device in self._limits_w:
                    limit_w = float(dict(setting).get(POWER_LIMIT, self._limits_w[device]))
                    self._limits_w[device] = shown_w.get((device, limit_w), limit_w)
            self._look()

    def applied(self, command: ApplySetting, shown_w: float | None = None) -> None:
        """Note that a setting is in force.

        Args:
            command: The command that applied it.
            shown_w: Limit (W) that the device shows, if it is not the one that was asked for. The larger one counts.
        """
        if command.device in self._limits_w:
            self._limits_w[command.device] = max(self._wanted_w(command), shown_w or 0.0)
            self._look()

    def refused(self, command: ApplySetting, error: str) -> None:
        """Note that a limit was refused. Before the limits are within the budget, no job can start then."""
        if command.device in self._limits_w and not self._began and not self.refusal:
            assert self._opened is not None, "a session has begun"
            self.refusal = not_kept(self._opened.config.power_budget_w, command.device, error)
        if command.device in self._limits_w:  # the refused limit may be in force all the same
            self._limits_w[command.device] = max(self._limits_w[command.device], self._wanted_w(command))
            self._look()

    @property
    def summary(self) -> BudgetSummary | None:
        """The budget, and how much the limits took of it; None without a budget."""
        if self._opened is None or not self._opened.config.power_budget_w:
            return None
        config = self._opened.config
        by = BY_PLACEMENT if config.budget_by_placement else BY_LIMITS
        return BudgetSummary(config.power_budget_w, by, self._most_w)

    def _wanted_w(self, command: ApplySetting) -> float:
        """Limit (W) that a setting names: the one that was found, if it names none."""
        found_w = next(each.power_limits_w[-1] for each in self._devices if each.name == command.device)
        return float(dict(command.setting).get(POWER_LIMIT, found_w))

    @property
    def _devices(self) -> tuple[Device, ...]:
        return () if self._opened is None else self._opened.devices

    def _look(self) -> None:
        """Compare the sum of the limits with the largest one so far."""
        assert self._opened is not None, "a session has begun"
        now_w, budget_w = sum(self._limits_w.values()), self._opened.config.power_budget_w
        if now_w <= budget_w + 2 * TOLERANCE_W:
            self._began, self.refusal = True, ""
        if self._limits_w and self._began:
            self._most_w = max(now_w, self._most_w or 0.0)
