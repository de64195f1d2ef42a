"""Stores how long an iteration of each class took alone on each device, beside the profiles: one file for each device.

::

    profiles/calibration/
      GPU-3f2a9c01-….1b2c3d4e.json      a GPU by its UUID: the last times of each class, alone at the default setting

`device_speeds.py` compares the devices of one model. `json_store.py` reads the files, replaces them, and sets damaged
ones aside, as it does for profiles. If two runs write a device at the same moment, the times of one of them are lost.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveFloat

from ecoshare.base.device import LOCAL, SPEED_COLUMNS, DeviceInfo
from ecoshare.devices.control.state_folder import key
from ecoshare.errors import UnfitEnvironment
from ecoshare.knowledge.device_speeds import ANY, COMPUTE, FLOOR, MEMORY, PARTITION_FLOOR, RelativeSpeed, device_speeds
from ecoshare.knowledge.json_store import KeptFiles
from ecoshare.knowledge.profiles_folder import CALIBRATION

MOST_TIMES = 9
"""Times that are kept for one class: as many as counts of iterations, for the same reasons."""

MOST_CLASSES = 200
"""Classes that are kept for one device, the last measured ones: each change of a script makes a class."""

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST_NAME = 80
_DEEP = 5
"""Number of parts of a mistake's place that a note shows: enough to find it."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class IterationTime(_Part):
    """Iteration time of a class alone on a device at the default setting, measured in one run.

    Attributes:
        seconds: Time (s) of an iteration.
        iterations: Number of iterations that were measured.
        relative_error: Standard error / time within the measurement; null if it had too few iterations.
        run: Name of the run folder, or of the calibration.
    """

    seconds: PositiveFloat
    iterations: Annotated[int, Field(ge=1)]
    relative_error: NonNegativeFloat | None = None
    run: str


class ClassTimes(_Part):
    """Times of one class, the newest last."""

    job_class: str
    times: Annotated[tuple[IterationTime, ...], Field(min_length=1)]


class DeviceCalibration(_Part):
    """Times of all classes on one device.

    Attributes:
        device: Identity of the device, as `identity` gives it.
        model: Model, in the words of `DeviceInfo.described`.
        name: Name that the device had in the last run that measured it, such as `cuda:0`.
        classes: Times by class, the last measured class last.
    """

    schema_version: Literal[1] = 1
    device: str
    model: str
    name: str
    classes: tuple[ClassTimes, ...]


SCHEMA_VERSION: int = DeviceCalibration.model_fields["schema_version"].default


def identity(device: DeviceInfo) -> str | None:
    """Identity of a device over all runs; None for a GPU without a UUID, and for all processors of this machine.

    A GPU has its UUID. A partition has the name of its machine and the numbers of its processors, since machines may
    share a folder of profiles. All processors of another machine have the name of that machine. Those of this machine
    have no other device of their model beside them in a run without other machines.
    """
    if not device.on_processors:
        return device.uuid
    machine = key(device) if device.node == LOCAL else f"processors-{device.node}"
    if device.processors:
        return f"{machine}:{','.join(map(str, device.processors))}"
    return None if device.node == LOCAL else machine


class CalibrationStore:
    """Store of iteration times by device, in the folder of the profiles. The folder need not exist yet."""

    def __init__(self, profiles: Path) -> None:
        self._folder = profiles / CALIBRATION
        self._kept = KeptFiles(self._folder, SCHEMA_VERSION, "is no calibration of its device", _DEEP)

    @property
    def notes(self) -> list[str]:
        """Reasons why files cannot be used, one line each, for the caller to show."""
        return self._kept.notes

    def make(self) -> None:
        """Make the folder before a measurement begins, so that the times can be saved.

        Raises:
            UnfitEnvironment: The folder cannot be made, or cannot be written to.
        """
        self._kept.make()

    def all(self) -> list[DeviceCalibration]:
        """Calibrations of all devices that this version can use, in the order of their names and identities."""
        try:
            paths = sorted(self._folder.glob("[!.]*.json"))
        except OSError as error:
            self._kept.note(f"{self._folder} cannot be read: {error.strerror or error}")
            return []
        found = [calibration for path in paths if (calibration := self._read(path)) is not None]
        return sorted(found, key=lambda each: (each.model, each.name, each.device))

    def speeds(self, model: str) -> dict[str, dict[str, RelativeSpeed]]:
        """Relative speeds of all devices of a model, by identity and class; see `device_speeds`."""
        found = [each for each in self.all() if each.model == model]
        times = {
            each.device: {
                of.job_class: [(time.seconds, time.relative_error or 0.0) for time in of.times] for of in each.classes
            }
            for each in found
        }
        return device_speeds(times, PARTITION_FLOOR if any(":" in each.device for each in found) else FLOOR)

    def add(self, device: DeviceInfo, new: Mapping[str, IterationTime]) -> None:
        """Add times that one run measured on a device. They replace earlier ones of the same run.

        A file from a newer version of ecoshare stays as it is, and `notes` says so. A device without an identity has no
        file.

        Args:
            device: The device.
            new: Time of each class.

        Raises:
            UnfitEnvironment: The file cannot be written: no room, or no permission.
        """
        own = identity(device)
        if own is None or not new:
            return
        path = self._file(own)
        before = self._read(path)
        kept = {each.job_class: each.times for each in before.classes} if before is not None else {}
        if before is not None and before.model != device.described:
            kept = {}
        for job_class, time in new.items():
            times = [each for each in kept.pop(job_class, ()) if each.run != time.run]
            kept[job_class] = (*times, time)[-MOST_TIMES:]
        last = [ClassTimes(job_class=job_class, times=times) for job_class, times in kept.items()]
        content = DeviceCalibration(
            device=own, model=device.described, name=device.name, classes=tuple(last[-MOST_CLASSES:])
        )
        self._kept.write(path, content.model_dump_json(indent=1) + "\n")

    def forget(self, job_class: str) -> int:
        """Remove the times of a class from all devices; return the number of removed times.

        Raises:
            UnfitEnvironment: A file cannot be written: no room, or no permission.
        """
        removed = 0
        for each in self.all():
            left = tuple(of for of in each.classes if of.job_class != job_class)
            if len(left) < len(each.classes):
                removed += sum(len(of.times) for of in each.classes if of.job_class == job_class)
                content = each.model_copy(update={"classes": left})
                self._kept.write(self._file(each.device), content.model_dump_json(indent=1) + "\n")
        return removed

    def _file(self, device: str) -> Path:
        digest = hashlib.sha256(device.encode()).hexdigest()[:8]
        return self._folder / f"{_NOT_IN_NAMES.sub('-', device)[:_LONGEST_NAME].strip('-')}.{digest}.json"

    def _read(self, path: Path) -> DeviceCalibration | None:
        def parse(data: bytes) -> DeviceCalibration:
            content = DeviceCalibration.model_validate_json(data)
            if self._file(content.device) != path:
                raise ValueError("it is that of another device")
            return content

        return self._kept.read(path, parse)


@dataclass(frozen=True, slots=True)
class CalibratedDevice:
    """A device with its times and speeds.

    Attributes:
        times: Time of each load, as it was kept.
        speeds: Relative speed of each class, with those that were measured before; see `device_speeds`.
    """

    device: DeviceInfo
    times: dict[str, IterationTime]
    speeds: dict[str, RelativeSpeed]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "device": self.device.name,
            "uuid": self.device.uuid,
            "processors": list(self.device.processors),
            "times": {name: each.model_dump(exclude={"run"}) for name, each in self.times.items()},
            "speed": self.speeds[ANY].speed,
            "standard_error": self.speeds[ANY].standard_error,
            "speeds": {name: each.speed for name, each in self.speeds.items() if name},
        }


@dataclass(frozen=True, slots=True)
class DeviceCalibrationResult:
    """Result of a calibration.

    Attributes:
        took_s: Time (s) that it took, with the start of the processes.
    """

    model: str
    devices: tuple[CalibratedDevice, ...]
    took_s: float

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "model": self.model,
            "took_s": self.took_s,
            "devices": [each.as_dict() for each in self.devices],
        }


@dataclass(frozen=True, slots=True)
class KnownSpeed:
    """Relative speed of a device for all classes.

    Attributes:
        name: Name that the device had when it was last measured.
        model: Model that the speed is relative to: partitions of another size are another model.
        speed: Rate on this device / rate on a typical device of its model.
        classes: Number of classes that it follows from, the built-in loads included.
    """

    name: str
    model: str
    speed: float
    standard_error: float
    classes: int

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def known_speeds(key: str, store: CalibrationStore) -> list[KnownSpeed]:
    """Known speeds of a device, or of each partition of this machine's processors.

    Args:
        key: Key of the device's journal and lock: the UUID of a GPU, or the name of this machine's processors.
        store: Calibrations of all devices.
    """
    found = []
    for each in store.all():
        if each.device == key or each.device.startswith(f"{key}:"):
            speeds = store.speeds(each.model).get(each.device)
            if speeds is not None:
                whole = speeds[ANY]
                found.append(KnownSpeed(each.name, each.model, whole.speed, whole.standard_error, len(speeds) - 1))
    return found


def as_csv(devices: Sequence[DeviceInfo], store: CalibrationStore) -> str:
    """Speeds of devices as a file for `ecoshare simulate --calibration`, where they are the GPUs of the first node.

    Args:
        devices: Devices of one model: the first one is `n0g0` in the file.
        store: Calibrations of all devices.

    Raises:
        UnfitEnvironment: No speed of these devices is known.
    """
    known = store.speeds(devices[0].described)
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(SPEED_COLUMNS)
    written = 0
    for place, device in enumerate(devices):
        for name, each in known.get(identity(device) or "", {}).items():
            if name not in (COMPUTE, MEMORY):
                table.writerow((f"n0g{place}", name, each.speed))
                written += 1
    if not written:
        raise UnfitEnvironment(
            f"no speed of {devices[0].name} is known, nor of another {devices[0].described}",
            "`ecoshare devices --calibrate` measures it",
        )
    return text.getvalue()
