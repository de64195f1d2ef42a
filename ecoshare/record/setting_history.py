"""History of the settings that a run applied to its devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ecoshare.common.plural import counted
from ecoshare.core.commands import ApplySetting, Command
from ecoshare.core.events import Done, Event, Refused, RunOpened, SettingMeasured
from ecoshare.jobs.quantities import format_duration


def settings(entries: Iterable[Event | Command]) -> list[dict[str, Any]]:
    """Settings other than the default, in order, as plain data, including refused ones with the reason.

    `to_s` is None for a setting that was in force until the end of the run. `setting` holds the knobs that were named;
    the other knobs kept the values that the run found.
    """
    found: list[dict[str, Any]] = []
    asked: dict[int, ApplySetting] = {}
    in_force: dict[str, dict[str, Any]] = {}
    for entry in entries:
        match entry:
            case RunOpened():  # resumed: commands are counted anew, and the guard has put everything back
                asked.clear()
                in_force.clear()
            case ApplySetting():
                asked[entry.id] = entry
            case Done() if entry.command in asked:
                command = asked.pop(entry.command)
                if (before := in_force.pop(command.device, None)) is not None:
                    before["to_s"] = entry.at_s
                if command.setting:
                    in_force[command.device] = _plain(command, entry.at_s)
                    found.append(in_force[command.device])
            case Refused() if entry.command in asked:
                found.append({**_plain(asked.pop(entry.command), entry.at_s), "error": entry.error})
            case SettingMeasured():
                for each in in_force.values():
                    if each["setting"] == dict(entry.measurement.setting):
                        each["trials"] += 1
    return found


def setting_words(each: Mapping[str, Any]) -> str:
    """Text for one entry of `settings`: `cuda:0: gpu_clock 1830, power_limit 567; from 16.7 s to 52.1 s, 1 trial`."""
    values = values_words(each["setting"])
    if each["error"] is not None:
        return f"{each['device']}: {values}; refused at {format_duration(each['from_s'])}: {each['error']}"
    to = "the end" if each["to_s"] is None else format_duration(each["to_s"])
    trials = f", {counted(each['trials'], 'trial')}" if each["trials"] else ""
    return f"{each['device']}: {values}; from {format_duration(each['from_s'])} to {to}{trials}"


def values_words(setting: Mapping[str, float | str]) -> str:
    """Text for the knobs of a setting, such as `gpu_clock 1830, power_limit 567`; empty for the default."""
    words = ((name, f"{value:g}" if isinstance(value, int | float) else value) for name, value in setting.items())
    return ", ".join(f"{name} {value}" for name, value in words)


def _plain(command: ApplySetting, at_s: float) -> dict[str, Any]:
    return {
        "device": command.device,
        "setting": dict(command.setting),
        "from_s": at_s,
        "to_s": None,
        "trials": 0,
        "error": None,
    }
