"""Result of a calibration of devices, and the speeds that are known, for tables and files."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ecoshare.errors import UnfitEnvironment
from ecoshare.profiling.calibration_store import CalibrationStore, IterationTime, identity
from ecoshare.profiling.device_speeds import ANY, COMPUTE, MEMORY, RelativeSpeed
from ecoshare.values.device import SPEED_COLUMNS, DeviceInfo


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
