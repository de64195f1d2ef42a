"""`ecoshare devices`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ecoshare.cli.options import JsonOption, ProfilesOption, RunDeviceOption, WaitOption, waits
from ecoshare.cli.output import note
from ecoshare.errors import UsageError

if TYPE_CHECKING:
    from ecoshare.knowledge.calibration_store import CalibrationStore, KnownSpeed


def devices(
    as_json: JsonOption = False,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Measure how fast each device is, with short built-in loads.")
    ] = False,
    calibration: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the known speeds as a file for `ecoshare simulate --calibration`."),
    ] = None,
    device: RunDeviceOption = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.3, max=3600.0, help="Time of each load on each device; 4 unless given.")
    ] = None,
    wait: WaitOption = None,
    profiles: ProfilesOption = None,
) -> None:
    """Show each device's knobs, ranges and present values, whether this user may set them, known speeds and links.

    Nothing is set.
    """
    from ecoshare.knowledge.profiles_folder import default_folder

    if seconds is not None and not calibrate:
        raise UsageError("--seconds is the time of a load, and goes with --calibrate")
    if device is not None and not calibrate and calibration is None:
        raise UsageError("--device names the devices of --calibrate or --calibration")
    folder = profiles or default_folder()
    if not calibrate and calibration is None:
        _show(folder, as_json)
        return
    from ecoshare.knowledge.calibration_store import CalibrationStore

    store = CalibrationStore(folder)
    if calibrate:
        _calibrate(device, seconds, waits(wait), store, as_json)
    if calibration is not None:
        _write(calibration, device, store)
    for line in store.notes:
        note(line)


def _calibrate(device: str | None, seconds: float | None, wait: bool, store: CalibrationStore, as_json: bool) -> None:
    from ecoshare.devices.choice import find_all
    from ecoshare.devices.occupancy import DeviceAdmission, occupied
    from ecoshare.reporting.tables.device_table import print_calibration
    from ecoshare.runtime.measuring.device_calibration import SECONDS, calibrate, check_comparable

    with occupied(partial(find_all, device), DeviceAdmission.of(wait), note) as occupancy:
        check_comparable(occupancy.devices, store)
        result = calibrate(occupancy.devices, SECONDS if seconds is None else seconds, store, note)
    if as_json:
        print(json.dumps(result.as_dict(), indent=2))
    else:
        print_calibration(result, Console(highlight=False))


def _write(path: Path, device: str | None, store: CalibrationStore) -> None:
    from ecoshare.devices.choice import find_all
    from ecoshare.knowledge.calibration_store import as_csv

    content = as_csv(find_all(device), store)
    try:
        path.write_text(content)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


def _show(profiles: Path, as_json: bool) -> None:
    from ecoshare.devices.control.state_folder import StateFolder
    from ecoshare.devices.device_slices import members_now
    from ecoshare.devices.knob_survey import survey
    from ecoshare.reporting.tables.device_table import print_devices, print_members

    found = survey(StateFolder.of_this_user())
    speeds = _speeds(profiles, [each.key for each in found])
    if as_json:
        told = [{**each.as_dict(), "speeds": [of.as_dict() for of in speeds.get(each.key, ())]} for each in found]
        print(json.dumps(told, indent=2))
    else:
        console = Console(highlight=False)
        print_devices(found, speeds, console)
        print_members(members_now(), console)


def _speeds(profiles: Path, keys: list[str]) -> dict[str, list[KnownSpeed]]:
    """Known speeds by the key of a device. Without a calibration the command loads nothing that reads one."""
    from ecoshare.knowledge.profiles_folder import CALIBRATION

    if not (profiles / CALIBRATION).exists():
        return {}
    from ecoshare.knowledge.calibration_store import CalibrationStore, known_speeds

    store = CalibrationStore(profiles)
    found = {key: known_speeds(key, store) for key in keys}
    for line in store.notes:
        note(line)
    return found
