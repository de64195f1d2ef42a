"""Stores what tuning found, measurement by measurement, beside the profiles: one file for each packing and device.

::

    profiles/tuned/
      resnet-0123456789ab+vae-ba9876543210.NVIDIA-H200.3f2a9c01.json     a result for each objective and tuning limit

`json_store.py` reads the files, replaces them, and sets damaged ones aside, as it does for profiles.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, field_validator

from ecoshare.base.measurement import MeasurementStatus, Packing, class_of
from ecoshare.knowledge.json_store import KeptFiles
from ecoshare.knowledge.profiles_folder import TUNED

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._+-]+")
_LONGEST_NAME = 120
_DEEP = 5
"""Number of parts of a mistake's place that a note shows: enough to find it inside a measurement of a result."""

KnobValues = dict[str, float | str]
"""Value of each knob of a device: a number, or a special name such as `unlocked`."""


def in_order(packing: Packing) -> Packing:
    """Packing with sorted lanes and sorted jobs: equal for every order of the lanes and of their jobs."""
    return tuple(sorted(tuple(sorted(lane)) for lane in packing))


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class MeasurementRecord(_Part):
    """One measurement of a search.

    Attributes:
        number: Number in the search, from 1.
        requested: KnobValues that the search asked for.
        achieved: Mean measured value of each knob, or its name; null if the knob cannot be read.
        status: Reliability of the measurement, as in `ecoshare.base.measurement.MeasurementStatus`.
        power_w: Mean power (W) of the device; null without a meter.
        joules: Joules that the device spent during the measurement.
        processors_w: Mean power (W) of the processors beside a GPU; null if they are no part of the objective.
        processors_j: Joules that these processors spent; null if they are no part of the objective.
        duration_s: Length (s) of the measurement.
        times: Seconds per iteration by job; for a censored measurement a lower bound.
        energy: E: joules spent / joules that the same work costs alone.
        interference: Iteration time of each job / its time at the default setting.
        feasible: Whether the tuning limit was kept; null if unknown.
        best: Whether the setting was the best so far after this measurement.
        reasons: Causes of clocks lower than requested, in words.
    """

    number: Annotated[int, Field(ge=1)]
    requested: KnobValues
    achieved: dict[str, float | str | None] = Field(default_factory=dict)
    status: MeasurementStatus
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
    processors_w: PositiveFloat | None = None
    processors_j: NonNegativeFloat | None = None


class KnobRange(_Part):
    """A knob and the range that the search could use.

    Attributes:
        unit: Unit of the values; empty if they have none.
        count: Number of values, special ones included.
        lowest: Lowest number; null if all values have names only.
        highest: Highest number, those of special values included; null if all values have names only.
    """

    name: str
    unit: str
    count: NonNegativeInt
    lowest: float | None
    highest: float | None


class TunedDevice(_Part):
    """Device on which a packing was tuned. The setting holds for all devices of the model; the measurements do not."""

    model: str
    uuid: str | None


class BestStatic(_Part):
    """Best known setting that does not depend on the packing.

    Attributes:
        energy: E of this packing at that setting; null if it was not measured.
        source: Origin of the setting, in words.
    """

    setting: KnobValues
    energy: PositiveFloat | None
    source: str


class TuningResult(_Part):
    """Result of one search.

    Attributes:
        objective: `energy`, `edp`, `jct` or `makespan`.
        tuning_limit: Upper bound of an iteration's time / its time at the default setting.
        best: Best setting; null if none is feasible.
        classes: Class of each job that the measurements name; empty in results of older versions.
        trials: Measurements of the search, in order.
        saved_against_default: 1 - E(best) / E(default); null if unknown.
        best_static: Best setting that does not depend on the packing; null if none is known.
        violations: Number of measurements that broke the limit.
        search_energy_j: Joules of all measurements, by all meters of the objective; null if unknown.
        made_utc: Time at which the result was made (ISO 8601, UTC).
    """

    schema_version: Literal[1] = 1
    objective: str
    tuning_limit: PositiveFloat
    knobs: tuple[KnobRange, ...]
    packing: Packing
    device: TunedDevice
    default: KnobValues
    best: KnobValues | None
    trials: tuple[MeasurementRecord, ...]
    saved_against_default: float | None
    best_static: BestStatic | None
    violations: NonNegativeInt
    search_energy_j: NonNegativeFloat | None
    made_utc: str
    classes: dict[str, str] = Field(default_factory=dict)

    @property
    def with_processors(self) -> bool:
        """Whether the joules of the processors beside the GPU are a part of the objective."""
        return any(trial.processors_w is not None for trial in self.trials)

    @property
    def slower(self) -> float:
        """Largest iteration time of any job at the best setting / time at the default setting; at least 1."""
        tried = [trial.interference for trial in self.trials if trial.requested == self.best]
        return max([1.0, *(ratio for each in tried for ratio in each.values())])

    @field_validator("packing")
    @classmethod
    def _in_order(cls, packing: Packing) -> Packing:
        return in_order(packing)


class _File(_Part):
    """Results of one packing on one device: the newest for each objective and tuning limit."""

    schema_version: Literal[1] = 1
    results: tuple[TuningResult, ...]


SCHEMA_VERSION: int = _File.model_fields["schema_version"].default


class TuningStore:
    """Store of tuning results, in the folder of the profiles. The folder need not exist yet.

    Attributes:
        folder: Folder of the results.
    """

    def __init__(self, profiles: Path) -> None:
        self.folder = profiles / TUNED
        self._kept = KeptFiles(self.folder, SCHEMA_VERSION, "is no result of tuning", _DEEP)

    @property
    def notes(self) -> list[str]:
        """Reasons why files cannot be used, one line each, for the caller to show."""
        return self._kept.notes

    def find(self, packing: Packing, device_model: str, objective: str, tuning_limit: float) -> TuningResult | None:
        """Result for a packing, in any order of its lanes; None if there is none that this version can use."""
        for tuned in self.results(packing, device_model):
            if (tuned.objective, tuned.tuning_limit) == (objective, tuning_limit):
                return tuned
        return None

    def results(self, packing: Packing, device_model: str) -> tuple[TuningResult, ...]:
        """All results of a packing. The measurements of each result are of use for every objective and limit."""
        return self._results_in(self.path(packing, device_model))

    def of(self, classes: set[str], device_model: str, objective: str) -> tuple[TuningResult, ...]:
        """Newest result of each packing that contains these job classes only, with any tuning limit."""
        found: dict[Packing, TuningResult] = {}
        for each in self.on(device_model):
            if each.objective == objective and {class_of(name) for lane in each.packing for name in lane} <= classes:
                before = found.get(each.packing)
                if before is None or each.made_utc > before.made_utc:
                    found[each.packing] = each
        return tuple(found.values())

    def on(self, device_model: str) -> list[TuningResult]:
        everything = [each for path in sorted(self.folder.glob("*.json")) for each in self._results_in(path)]
        return [each for each in everything if each.device.model == device_model]

    def save(self, tuned: TuningResult) -> Path:
        """Write a result; it replaces an older one of the same objective and limit. Return the file.

        A file from a newer version of ecoshare stays as it is, and `notes` says so.

        Raises:
            UnfitEnvironment: The file cannot be written: no room, or no permission.
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
        """Remove all results of packings with this class; return the number of removed files.

        Raises:
            UnfitEnvironment: A file cannot be removed: no permission.
        """
        return sum(
            self._kept.remove(path)
            for path in sorted(self.folder.glob("*.json"))
            if any(
                class_of(name) == job_class for each in self._results_in(path) for lane in each.packing for name in lane
            )
        )

    def path(self, packing: Packing, device_model: str) -> Path:
        """Path of the file of a packing on a device: readable words, and a hash, since words may be long or alike."""
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
