"""Reads `plan.json`, `environment.json` and the exit records, which are checked then.

A field that a newer version added is no error. A field that an older version did not write has a default.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from ecoshare.base import documents
from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.disk import atomic_write
from ecoshare.base.measurement import Goal
from ecoshare.errors import UsageError
from ecoshare.lane.exit_records import exit_path, exit_paths
from ecoshare.lane.files import open_to_append
from ecoshare.lane.messages import Ended
from ecoshare.record.plan_document import Amount, DeviceDocument, JobDocument, PlanDocument, Written
from ecoshare.record.run_folder import SUBMITTED, unwritable

SWEEP = "by"
"""Key that only a sweep has."""


def append(path: Path, jobs: Iterable[JobDocument]) -> None:
    """Append jobs and sweeps, and synchronize the file to disk.

    A cut last line, which a crash may leave, is removed first: the next line would be lost with it.

    Raises:
        UnfitEnvironment: The disk is full, or permission is missing. Then nothing is appended.
    """
    lines = b"".join(json.dumps(job.as_dict()).encode() + b"\n" for job in jobs)
    try:
        file = open_to_append(path, read=True)
        try:
            begin = _end_of_lines(file)
            os.ftruncate(file, begin)
            if os.write(file, lines) < len(lines):  # a disk that is nearly full takes a part
                os.ftruncate(file, begin)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        raise unwritable(path, error) from error


def _end_of_lines(file: int) -> int:
    """Place (bytes) behind the last whole line."""
    end = os.fstat(file).st_size
    if end == 0 or os.pread(file, 1, end - 1) == b"\n":
        return end
    return os.pread(file, end, 0).rfind(b"\n") + 1


def drop(path: Path, names: Collection[str]) -> None:
    """Remove the lines of some jobs and sweeps. Nothing is appended meanwhile.

    Raises:
        OSError: The file cannot be read or written.
        ValueError: A line is no JSON object with a name.
    """
    with contextlib.suppress(FileNotFoundError):
        left = [job for job in read(path) if job["name"] not in names]
        atomic_write(path, b"".join(json.dumps(job).encode() + b"\n" for job in left), sync=True)


def read(path: Path) -> list[dict[str, Any]]:
    """Jobs and sweeps, in the order in which their names were first submitted; a cut last line is ignored.

    Raises:
        OSError: The file cannot be read.
        ValueError: A line is no JSON object with a name.
    """
    found: dict[str, dict[str, Any]] = {}
    with documents.open_regular(path) as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                break
            job = documents.parse(line)
            if not isinstance(job, dict) or not isinstance(job.get("name"), str):
                raise ValueError(f"line {number} holds no job")
            found[job["name"]] = job
    return list(found.values())


DAMAGED = "the run folder is damaged"


class _Devices(Written):
    devices: list[DeviceDocument] = Field(min_length=1)


class _Power(Written):
    idle_w: Amount
    busy_w: Amount
    full_load: Amount
    source: str


class _Environment(_Devices):
    """Machine and versions of a run, as far as its readers need them."""

    token: str = Field(pattern=r"^[0-9a-f]{8,64}$")
    opened_unix_s: Amount
    power_models: dict[str, _Power | None] = Field(default_factory=dict)
    torch_load_s: Amount | None = None


_PLAN = TypeAdapter(PlanDocument)
_DEVICES: TypeAdapter[Any] = TypeAdapter(_Devices)
_ENVIRONMENT: TypeAdapter[Any] = TypeAdapter(_Environment)
_GOAL: TypeAdapter[Goal | None] = TypeAdapter(Goal | None)
_ENDED = TypeAdapter(Ended)
_USAGE = TypeAdapter(Usage)

Fields = TypeVar("Fields")


def read_plan(path: Path, with_submitted: bool = True) -> PlanDocument:
    """Read the plan of a run: the decisions from before it began.

    Args:
        path: Path of the plan.
        with_submitted: Whether its jobs include those that were submitted to the run while it went on.

    Raises:
        UsageError: The file cannot be read, does not match the schema, or gives two jobs one name.
    """
    plan = read_json(path)
    if with_submitted:
        _add_submitted(plan, path.with_name(SUBMITTED))
    _rename_limits(plan)
    _list_device(plan)
    found = checked(path, _PLAN, plan)
    checked(path, _DEVICES, {"devices": found.devices})
    checked(path, _GOAL, found.goal)
    names = [each.name for each in (*found.jobs, *found.sweeps)]
    if len(set(names)) < len(names):
        raise _damaged(path, "two jobs have one name")
    return found


def _add_submitted(plan: dict[str, Any], path: Path) -> None:
    """Add the jobs and sweeps that were submitted while the run went on, in place."""
    if not path.exists():
        return
    try:
        submitted = read(path)
    except OSError as error:
        raise _damaged(path, error.strerror or str(error)) from error
    except ValueError as error:
        raise _damaged(path, str(error)) from error
    for key, are_sweeps in (("jobs", False), ("sweeps", True)):
        if isinstance(own := plan.setdefault(key, []), list):
            own += [job for job in submitted if (SWEEP in job) == are_sweeps]


def _rename_limits(plan: dict[str, Any]) -> None:
    """Give the slowdown limits of jobs in an older plan their present name, in place."""
    for key in ("jobs", "sweeps"):
        jobs = plan.get(key)
        for job in jobs if isinstance(jobs, list) else ():
            if isinstance(job, dict) and "slowdown" in job and "slowdown_limit" not in job:
                job["slowdown_limit"] = job.pop("slowdown")


def _list_device(document: dict[str, Any]) -> None:
    """Put the one device of an older document into a list, in place."""
    device = document.pop("device", None)
    if "devices" in document or not isinstance(device, dict):
        return
    if isinstance(memory_bytes := document.pop("memory_bytes", None), int):
        device["memory_bytes"] = memory_bytes
    document["devices"] = [device]
    if "power_model" in document and isinstance(device.get("name"), str):
        document["power_models"] = {device["name"]: document.pop("power_model")}


def read_environment(path: Path) -> dict[str, Any]:
    """Read the machine and versions of a run.

    Raises:
        UsageError: The file cannot be read, or does not match the schema.
    """
    environment = read_json(path)
    _list_device(environment)
    checked(path, _ENVIRONMENT, environment)
    return environment


def read_records(folder: Path) -> list[Ended]:
    """Read the exit records of a job's attempts, in the order of the attempts.

    A record that is not valid JSON is left out: a power cut may have damaged it. So is a link, a folder or a pipe
    that a job has made.

    Raises:
        UsageError: A record cannot be read, does not match the schema, or belongs to another attempt.
    """
    records = []
    for path in exit_paths(folder):
        if path.is_symlink() or not path.is_file():
            continue
        try:
            fields = documents.parse(_content(path))
        except ValueError:
            continue
        ended = checked(path, _ENDED, fields)
        usage = checked(path, _USAGE, ended.usage)
        if ended.job != folder.name or path != exit_path(folder, ended.attempt):
            raise _damaged(path, f"it is of attempt {ended.attempt} of {ended.job!r}")
        if ended.outcome not in [each.value for each in Outcome]:
            raise _damaged(path, f"{ended.outcome!r} is no outcome")
        records.append(replace(ended, usage=asdict(usage)) if ended.usage else ended)
    return sorted(records, key=lambda ended: ended.attempt)


def recorded_end(folder: Path, attempt: int) -> Ended | None:
    """Exit record of an attempt, by the folder of its job; None if there is none, or a job's records are damaged."""
    try:
        return next((each for each in read_records(folder) if each.attempt == attempt), None)
    except UsageError:  # a damaged record does not show that the attempt ended
        return None


def read_json(path: Path) -> dict[str, Any]:
    """Read the object in a JSON file.

    Raises:
        UsageError: The file cannot be read, or does not hold a JSON object.
    """
    try:
        fields = documents.parse(_content(path))
    except ValueError as error:
        raise _damaged(path, str(error)) from error
    if not isinstance(fields, dict):
        raise _damaged(path, "it holds no object")
    return fields


def _content(path: Path) -> bytes:
    try:
        with documents.open_regular(path) as file:
            return file.read()
    except OSError as error:
        raise _damaged(path, error.strerror or str(error)) from error


def checked(path: Path, form: TypeAdapter[Fields], value: Any) -> Fields:
    """Value of a document, or of a part of one.

    Args:
        path: Path of the document.
        form: Schema of the value.
        value: The value, as JSON has it.

    Raises:
        UsageError: It does not match the schema.
    """
    try:
        return form.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(each) for each in first["loc"])
        raise _damaged(path, f"{where}: {first['msg'].lower()}") from error


def _damaged(path: Path, why: str) -> UsageError:
    return UsageError(f"{path}: {why}", DAMAGED)


def with_devices(known: Iterable[Mapping[str, Any]], new: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Devices as documents have them: those that are known, and new ones in place of those of the same name."""
    return list({each["name"]: each for each in (*known, *new)}.values())
