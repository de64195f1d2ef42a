"""Measured speeds of the jobs of a Gavel or Shockwave trace, from a JSON file.

::

    {"v100": {"('ResNet-18 (batch size 32)', 2)": {"null": 40.1, "('LM (batch size 5)', 2)": [21.0, 9.3]}}}
      GPU          type of job, number of GPUs      alone         beside another job: unused here

Speeds are in iterations a second of the whole job; 0 if the job does not fit. Gavel's oracle has only single GPUs, and
its keys are the bare types.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ecoshare.errors import UsageError
from ecoshare.knowledge.advisers.delimited import bytes_of


@dataclass(frozen=True, slots=True)
class Speeds:
    """Measured speeds on one model of GPU.

    Attributes:
        file: Path of the table.
        gpu_model: GPU model of the speeds.
        table: Rows of the table, keyed by job type and GPUs.
    """

    file: str
    gpu_model: str
    table: Mapping[str, Any]

    def alone(self, job_type: str, gpus: int) -> float:
        """Speed (iterations/s) of a job alone on its GPUs.

        Raises:
            LookupError: The job was not measured, or did not fit. The message says which.
        """
        row = self.table.get(str((job_type, gpus)))
        if row is None and gpus == 1:
            row = self.table.get(job_type)
        speed = speed_of(row.get("null")) if isinstance(row, dict) else None
        where = f"on {gpus} {self.gpu_model}" if gpus > 1 else f"on {self.gpu_model}"
        if speed is None:
            raise LookupError(f"{self.file} has no speed of {job_type!r} {where}")
        if not speed:
            raise LookupError(f"{job_type!r} does not fit {where}, says {self.file}")
        return speed


def speed_of(value: Any) -> float | None:
    """Speed (iterations/s) in a cell of the table; None if the cell holds no speed."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= sys.float_info.max:
        return None
    return float(value)


def read(path: Path, gpu_model: str) -> Speeds:
    """Speeds on `gpu_model` in the file at `path`.

    Raises:
        UsageError: The file cannot be read, has another form, or has no such model.
    """
    tables = read_json(path)
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise UsageError(f"{path} has no speeds", "expected GPU -> type of job -> iterations a second, in JSON")
    if gpu_model not in tables:
        close = get_close_matches(gpu_model.lower(), tables, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there is: {', '.join(tables)}"
        raise UsageError(f"{path} has no speeds on {gpu_model!r}", hint)
    return Speeds(str(path), gpu_model, tables[gpu_model])


def read_json(path: Path) -> Any:
    """Content of a JSON file.

    Raises:
        UsageError: The file cannot be read, or is not JSON.
    """
    try:
        return json.loads(bytes_of(path, is_text=True))
    except json.JSONDecodeError as error:
        raise UsageError(f"{path}:{error.lineno}:{error.colno}: no JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no JSON: {error}") from error
