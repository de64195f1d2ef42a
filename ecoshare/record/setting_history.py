"""History of the settings that a run applied to its devices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ecoshare.common.plural import counted
from ecoshare.core.commands import ApplySetting
from ecoshare.jobs.quantities import format_duration
from ecoshare.values.measurement import Measurement
from ecoshare.values.setting import Setting

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
