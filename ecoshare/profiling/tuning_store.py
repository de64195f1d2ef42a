"""What tuning a packing has found, trial by trial; kept beside the profiles, one readable file a packing and device.

::

    profiles/tuned/
      resnet-0123456789ab+vae-ba9876543210.NVIDIA-H200.3f2a9c01.json     a result for each objective and tuning limit

Files are read, replaced and set aside as those of profiles are (`json_store.py`).
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    field_validator,
)

from ecoshare.profiling.json_store import KeptFiles

FOLDER = "tuned"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._+-]+")
_LONGEST_NAME = 120
_DEEP = 5
"""Parts of a place in a result that tell a reader enough: it is within a trial of one of them."""

Setting = dict[str, float | str]
"""A number or a special name, such as `unlocked`, by knob."""

Packing = tuple[tuple[str, ...], ...]
"""Lanes, each the job classes in it, sorted."""


def in_order(packing: Packing) -> Packing:
    """The same for every order of the lanes and of the jobs in them."""
    return tuple(sorted(tuple(sorted(lane)) for lane in packing))


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class MeasurementRecord(_Part):
    """One trial of a search.

    Attributes:
        number: From 1.
        requested: The setting that was asked for.
        achieved: Mean of what was measured of each knob; null where it cannot be read.
        status: How far it can be believed: `tuner.Status`.
        joules: Spent in it.
        times: Seconds an iteration by job; of a censored trial at least so much.
        energy: E, joules spent per joule that the same work costs alone.
        interference: Time of each job over that at the default setting.
        feasible: Whether the tuning limit was kept; null where it is not known.
        best: Whether its setting was the best so far after it.
        reasons: Why clocks were lower than asked for, in words.
    """

    number: Annotated[int, Field(ge=1)]
    requested: Setting
    achieved: dict[str, float | None] = Field(default_factory=dict)
    status: Literal["measured", "censored", "contaminated", "failed"]
    power_w: PositiveFloat | None
    joules: NonNegativeFloat | None = None
    duration_s: NonNegativeFloat | None = None
    times: dict[str, PositiveFloat]
    energy: PositiveFloat | None
    interference: dict[str, PositiveFloat]
    feasible: bool | None
    best: bool
    reasons: tuple[str, ...] = ()
    temperature_c: float | None = None
    note: str = ""


class KnobRange(_Part):
    """A knob, and what was open to the search.

    Attributes:
        unit: Empty where its numbers have none.
        count: Of its values, special ones included.
    """

    name: str
    unit: str
    count: NonNegativeInt
    lowest: float
    highest: float


class TunedDevice(_Part):
    """Where it was tuned. A setting holds for devices of the model; trials are of this one."""

    model: str
    uuid: str | None


class BestStatic(_Part):
    """The best setting known that does not look at the packing.

    Attributes:
        energy: E of this packing at it; null where it was not measured.
        source: Where it comes from, in words.
    """

    setting: Setting
    energy: PositiveFloat | None
    source: str


class TuningResult(_Part):
    """The result of one search.

    Attributes:
        objective: `energy`, `edp`, `jct` or `makespan`.
        tuning_limit: Most that an iteration may take, over the same at the default setting.
        best: Null where nothing is feasible.
        saved_against_default: 1 - E(best) / E(default).
        violations: Trials that broke the limit.
        search_energy_j: Joules of all trials.
        made_utc: ISO 8601.
    """

    schema_version: Literal[1] = 1
    objective: str
    tuning_limit: PositiveFloat
    knobs: tuple[KnobRange, ...]
    packing: Packing
    device: TunedDevice
    default: Setting
    best: Setting | None
    trials: tuple[MeasurementRecord, ...]
    saved_against_default: float | None
    best_static: BestStatic | None
    violations: NonNegativeInt
    search_energy_j: NonNegativeFloat | None
    made_utc: str

    @property
    def slower(self) -> float:
        """Most that an iteration of any job took at the best setting, over the same at the default; at least 1."""
        tried = [trial.interference for trial in self.trials if trial.requested == self.best]
        return max([1.0, *(ratio for each in tried for ratio in each.values())])

    @field_validator("packing")
    @classmethod
    def _in_order(cls, packing: Packing) -> Packing:
        return in_order(packing)


class _File(_Part):
    """The results of one packing on one device, the newest of each objective and tuning limit."""

    schema_version: Literal[1] = 1
    results: tuple[TuningResult, ...]


SCHEMA_VERSION: int = _File.model_fields["schema_version"].default


class TuningStore:
    """The tuned results in the folder of the profiles, which need not exist yet.

    Attributes:
        folder: Where they lie.
    """

    def __init__(self, profiles: Path) -> None:
        self.folder = profiles / FOLDER
        self._kept = KeptFiles(self.folder, SCHEMA_VERSION, "is no result of tuning", _DEEP)

    @property
    def notes(self) -> list[str]:
        """What is in the way of using some file, a line each, for the caller to show."""
        return self._kept.notes

    def find(self, packing: Packing, device_model: str, objective: str, tuning_limit: float) -> TuningResult | None:
        """What is known of a packing, whatever the order of its lanes; None where this version can use nothing."""
        for tuned in self.results(packing, device_model):
            if (tuned.objective, tuned.tuning_limit) == (objective, tuning_limit):
                return tuned
        return None

    def results(self, packing: Packing, device_model: str) -> tuple[TuningResult, ...]:
        """All results of a packing: the trials of each tell of every objective and limit."""
        return self._results_in(self.path(packing, device_model))

    def of(self, classes: set[str], device_model: str, objective: str) -> tuple[TuningResult, ...]:
        """The newest result for each packing of these job classes alone, whatever the tuning limit."""
        found: dict[Packing, TuningResult] = {}
        for each in self.on(device_model):
            if each.objective == objective and {name for lane in each.packing for name in lane} <= classes:
                before = found.get(each.packing)
                if before is None or each.made_utc > before.made_utc:
                    found[each.packing] = each
        return tuple(found.values())

    def on(self, device_model: str) -> list[TuningResult]:
        """All results of a device model."""
        everything = [each for path in sorted(self.folder.glob("*.json")) for each in self._results_in(path)]
        return [each for each in everything if each.device.model == device_model]

    def save(self, tuned: TuningResult) -> Path:
        """Write a result, in place of an older one of its objective and limit; the file.

        One that a newer version of ecoshare wrote stays as it is, and `notes` say so.

        Raises:
            UnfitEnvironment: No room, or no permission.
        """
        path = self.path(tuned.packing, tuned.device.model)
        kept = [
            each
            for each in self._results_in(path)
            if (each.objective, each.tuning_limit) != (tuned.objective, tuned.tuning_limit)
        ]
        self._kept.write(path, _readable(_File(results=(tuned, *kept))))
        return path

    def forget(self, job_class: str) -> int:
        """Remove all results of packings with this class; how many packings.

        Raises:
            UnfitEnvironment: No permission.
        """
        return sum(
            self._kept.remove(path)
            for path in sorted(self.folder.glob("*.json"))
            if any(job_class in lane for each in self._results_in(path) for lane in each.packing)
        )

    def path(self, packing: Packing, device_model: str) -> Path:
        """The file of a packing on a device: a name to read, and a hash, since names may be long or alike."""
        lanes = in_order(packing)
        words = "_".join("+".join(lane) for lane in lanes)[:_LONGEST_NAME]
        digest = hashlib.sha256(json.dumps([lanes, device_model]).encode()).hexdigest()[:8]
        name = f"{words}.{device_model[:40]}".strip()
        return self.folder / f"{_NOT_IN_NAMES.sub('-', name).lstrip('.') or 'packing'}.{digest}.json"

    def _results_in(self, path: Path) -> tuple[TuningResult, ...]:
        def parse(data: bytes) -> tuple[TuningResult, ...]:
            results = _File.model_validate_json(data).results
            if any(self.path(each.packing, each.device.model) != path for each in results):
                raise ValueError("it is that of another packing")
            return results

        return self._kept.read(path, parse) or ()


def _readable(content: _File) -> str:
    return content.model_dump_json(indent=1) + "\n"
