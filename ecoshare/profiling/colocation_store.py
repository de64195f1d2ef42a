"""How fast classes of jobs were measured to run beside each other; kept beside the profiles, one file a group.

::

    profiles/beside/
      resnet-0123456789ab+vae-ba9876543210.3f2a9c01.json      the speeds of both, over those alone

A class is of one device model and one torch, so its name says where it was. The newest measurement of a group counts.
Files are read, replaced and set aside as those of profiles are (`json_store.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Set
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, PositiveFloat, model_validator

from ecoshare.profiling.json_store import KeptFiles, made_utc

FOLDER = "beside"
_LONGEST_NAME = 150


class StoredColocation(BaseModel):
    """Jobs that were measured beside each other, each in a lane of its own, at the default setting.

    Attributes:
        classes: Of the jobs, sorted.
        speeds: Of each, over that alone.
        power_w: Of the device; null where there is no meter.
        made_utc: ISO 8601.
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
    """What was measured of neighbours, in the folder of the profiles, which need not exist yet."""

    def __init__(self, profiles: Path) -> None:
        self._folder = profiles / FOLDER
        self._kept = KeptFiles(self._folder, 1, "is no measurement of neighbours", 2)

    @property
    def notes(self) -> list[str]:
        """What is in the way of using some file, a line each, for the caller to show."""
        return self._kept.notes

    def of(self, classes: Set[str]) -> list[StoredColocation]:
        """What is known of groups of these classes alone, the oldest first."""
        found = [
            self._kept.read(path, StoredColocation.model_validate_json) for path in sorted(self._folder.glob("*.json"))
        ]
        return sorted(
            (each for each in found if each is not None and set(each.classes) <= classes),
            key=lambda each: each.made_utc,
        )

    def forget(self, job_class: str) -> int:
        """Remove all measurements of groups with this class; how many.

        Raises:
            UnfitEnvironment: No permission.
        """
        return sum(
            self._kept.remove(path)
            for path in sorted(self._folder.glob("*.json"))
            if (each := self._kept.read(path, StoredColocation.model_validate_json)) is not None
            and job_class in each.classes
        )

    def save(self, classes: tuple[str, ...], speeds: tuple[float, ...], power_w: float | None) -> None:
        """Keep a measurement, in place of an older one of the same classes.

        Raises:
            UnfitEnvironment: No room, or no permission.
        """
        pairs = sorted(zip(classes, speeds, strict=True))
        names = tuple(name for name, _ in pairs)
        own = StoredColocation(
            classes=names, speeds=tuple(speed for _, speed in pairs), power_w=power_w or None, made_utc=made_utc()
        )
        digest = hashlib.sha256(json.dumps(names).encode()).hexdigest()[:8]
        path = self._folder / f"{'+'.join(names)[:_LONGEST_NAME]}.{digest}.json"
        self._kept.write(path, own.model_dump_json(indent=1) + "\n")
