"""Stores measured speeds of co-located jobs beside the profiles, one file for each group of classes.

::

    profiles/beside/
      resnet-0123456789ab+vae-ba9876543210.3f2a9c01.json      the speed of each job relative to its speed alone

A class belongs to one device model and one version of torch, so its name implies where it was measured. The newest
measurement of a group counts. `json_store.py` reads the files, replaces them, and sets damaged ones aside, as it does
for profiles.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Set
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, PositiveFloat, model_validator

from ecoshare.base.printable import utc_text
from ecoshare.knowledge.json_store import KeptFiles
from ecoshare.knowledge.profiles_folder import BESIDE

_LONGEST_NAME = 150


class StoredColocation(BaseModel):
    """Measurement of jobs beside each other, each in a lane of its own, at the default setting.

    Attributes:
        classes: Classes of the jobs, sorted.
        speeds: Relative speed of each job: rate beside the others / rate alone.
        power_w: Power (W) of the device, measured or modelled; null if it is not known.
        made_utc: Time at which it was saved (ISO 8601, UTC).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    schema_version: Literal[1] = 1
    classes: tuple[str, ...]
    speeds: tuple[PositiveFloat, ...]
    power_w: PositiveFloat | None
    made_utc: str

    @model_validator(mode="after")
    def _is_one(self) -> StoredColocation:
        if len(self.classes) < 2 or len(self.classes) != len(self.speeds):
            raise ValueError("it has not a speed for each of several classes")
        return self


class ColocationStore:
    """Store of co-location measurements, in the folder of the profiles. The folder need not exist yet."""

    def __init__(self, profiles: Path) -> None:
        self._folder = profiles / BESIDE
        self._kept = KeptFiles(self._folder, 1, "is no measurement of neighbours", 2)

    @property
    def notes(self) -> list[str]:
        """Reasons why files cannot be used, one line each, for the caller to show."""
        return self._kept.notes

    def of(self, classes: Set[str]) -> list[StoredColocation]:
        """Measurements of groups that contain these classes only, oldest first."""
        found = [
            self._kept.read(path, StoredColocation.model_validate_json) for path in sorted(self._folder.glob("*.json"))
        ]
        return sorted(
            (each for each in found if each is not None and set(each.classes) <= classes),
            key=lambda each: each.made_utc,
        )

    def forget(self, job_class: str) -> int:
        """Remove all measurements of groups with this class; return their number.

        Raises:
            UnfitEnvironment: A file cannot be removed.
        """
        return sum(
            self._kept.remove(path)
            for path in sorted(self._folder.glob("*.json"))
            if (each := self._kept.read(path, StoredColocation.model_validate_json)) is not None
            and job_class in each.classes
        )

    def save(self, classes: tuple[str, ...], speeds: tuple[float, ...], power_w: float | None) -> None:
        """Save a measurement; it replaces an older one of the same classes.

        Args:
            classes: Class of each job.
            speeds: Relative speed of each job, in the order of `classes`.
            power_w: Power (W) of the device, measured or modelled; None if it is not known.

        Raises:
            UnfitEnvironment: The file cannot be written: no room, or no permission.
        """
        pairs = sorted(zip(classes, speeds, strict=True))
        names = tuple(name for name, _ in pairs)
        own = StoredColocation(
            classes=names, speeds=tuple(speed for _, speed in pairs), power_w=power_w or None, made_utc=utc_text()
        )
        digest = hashlib.sha256(json.dumps(names).encode()).hexdigest()[:8]
        path = self._folder / f"{'+'.join(names)[:_LONGEST_NAME]}.{digest}.json"
        self._kept.write(path, own.model_dump_json(indent=1) + "\n")
