"""Relative speeds of the devices of a plan, from the calibration that earlier runs have kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ecoshare.common.plural import counted
from ecoshare.profiling.calibration_store import CalibrationStore, identity
from ecoshare.profiling.device_speeds import ANY
from ecoshare.profiling.profile import Profile
from ecoshare.profiling.profile_store import ProfileStore
from ecoshare.values.device import DeviceInfo, Speeds, speed_of

_WORTH_A_NOTE = 1.02
"""Least ratio of the fastest device to the slowest that the user is told."""


def known_speeds(
    devices: Sequence[DeviceInfo], classes: Iterable[str], store: ProfileStore | None, notes: list[str]
) -> dict[str, Speeds]:
    """Relative speeds of the devices that have any, by name; empty for one device, and if all are alike.

    Args:
        devices: Devices of the run.
        classes: Job classes of the run.
        store: Profiles of job classes, which have the calibration beside them; None to use none.
        notes: Notes for the user, which get one line if the devices differ.
    """
    if store is None or len(devices) < 2:
        return {}
    kept = CalibrationStore(store.folder)
    known = kept.speeds(devices[0].described)
    notes += kept.notes
    names = sorted({ANY, *classes})
    found: dict[str, Speeds] = {}
    for device in devices:
        own = known.get(identity(device) or "", {})
        found[device.name] = tuple((name, own[name].speed) for name in names if name in own)
    if all(speed == 1.0 for speeds in found.values() for _, speed in speeds):
        return {}
    notes += _note(devices, found, names)
    return {name: speeds for name, speeds in found.items() if speeds}


def relative_to(device: DeviceInfo, store: CalibrationStore) -> Callable[[str | None, str], float]:
    """Function of a UUID and a class: speed of that device / speed of `device`; 1 if it is unknown.

    A time that was measured there, times this factor, is the time to expect on `device`.
    """
    known = store.speeds(device.described)

    def speed(uuid: str | None, job_class: str) -> float:
        own = known.get(uuid or "", {})
        found = own.get(job_class) or own.get(ANY)
        return found.speed if found is not None else 1.0

    return lambda uuid, job_class: speed(uuid, job_class) / speed(device.uuid, job_class)


def speed_where_measured(profile: Profile, devices: Sequence[DeviceInfo], speeds: Mapping[str, Speeds]) -> float:
    """Relative speed of a class on the device of its profile; 1 if it is none of these devices, or not known."""
    machine = profile.machine
    for each in devices:
        if (each.uuid, each.name) == (machine.uuid, machine.device) or (each.uuid and each.uuid == machine.uuid):
            return speed_of(speeds.get(each.name, ()), profile.job_class)
    return 1.0


def _note(devices: Sequence[DeviceInfo], speeds: Mapping[str, Speeds], names: Sequence[str]) -> list[str]:
    """Line about the class for which the devices differ most; none if they hardly differ."""

    def of(device: DeviceInfo, job_class: str) -> float:
        return speed_of(speeds[device.name], job_class)

    def ratio(job_class: str) -> float:
        found = [of(each, job_class) for each in devices]
        return max(found) / min(found)

    widest = max(names, key=ratio)
    if ratio(widest) < _WORTH_A_NOTE:
        return []
    slowest = min(devices, key=lambda each: of(each, widest))
    fastest = max(devices, key=lambda each: of(each, widest))
    percent = 100.0 * (1.0 - 1.0 / ratio(widest))
    calibrated = sum(bool(speeds[each.name]) for each in devices)
    known = "" if calibrated == len(devices) else f"; {counted(len(devices) - calibrated, 'device')} not calibrated"
    return [
        f"{slowest.name} is up to {percent:.0f} % slower than {fastest.name}: jobs go to the fastest free device{known}"
    ]
