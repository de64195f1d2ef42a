"""The models of the job file, and the JSON Schema for editors."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from ecoshare.jobs.schema import JobConfig, JobFile, json_schema
from tests.jobs.conftest import KNOWN_KEYS


def _keys(schema: dict[str, Any], model: str) -> dict[str, Any]:
    keys = schema["$defs"][model]["properties"]
    assert isinstance(keys, dict)
    return keys


def test_the_schema_holds_the_keys_of_the_design() -> None:
    """If it failed, an editor would mark a documented key, or complete one that is refused."""
    schema = json_schema()
    keys = KNOWN_KEYS.split(", ")
    own = ["name", "script", "module", "args", "after", "after_ok", "after_any", "sweep", "service"]
    assert set(schema["properties"]) == {"version", "defaults", "on_end", "jobs"}
    assert list(_keys(schema, "JobConfig")) == keys
    assert list(_keys(schema, "JobOptions")) == [key for key in keys if key not in own]
    assert not schema["$defs"]["JobConfig"]["additionalProperties"]


def test_every_key_is_described() -> None:
    """If it failed, an editor would show a key without saying what it means."""
    schema = json_schema()
    for keys in (schema["properties"], _keys(schema, "JobConfig"), _keys(schema, "JobOptions")):
        assert [key for key, field in keys.items() if not field.get("description")] == []


def test_bounds_are_in_the_schema() -> None:
    """If it failed, an editor would accept what `load` refuses."""
    job = _keys(json_schema(), "JobConfig")
    assert (job["retries"]["minimum"], job["retries"]["maximum"]) == (0, 100)
    assert job["gpus"]["minimum"] == 1
    assert {"type": "integer", "minimum": 1} in job["iterations"]["anyOf"]
    assert {"type": "number", "minimum": 1} in job["slowdown"]["anyOf"]
    # `args: [--epochs, 3]` holds a number as far as an editor knows.
    assert "number" in job["args"]["items"]["type"]


def test_environments_stay_out_of_what_is_printed() -> None:
    """If it failed, a log line with a job or with an uncaught error would hold a password."""
    job = JobConfig.model_validate({"name": "a", "script": "a.py", "env": {"TOKEN": "hunter2"}})
    assert job.env == {"TOKEN": "hunter2"}
    assert "hunter2" not in repr(job) + str(job)
    with pytest.raises(ValidationError) as raised:
        JobFile.model_validate({"version": 1, "jobs": [{"name": "a", "env": {"TOKEN": ["hunter2"]}}]})
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("programs", [{}, {"script": "a.py", "module": "a"}])
def test_a_job_has_one_program(programs: dict[str, str]) -> None:
    """If it failed, code that makes jobs without a file could make one that cannot run."""
    with pytest.raises(ValidationError, match="script"):
        JobConfig.model_validate({"name": "a", **programs})


def test_values_of_python_code() -> None:
    """If it failed, a job made in Python would have to spell its numbers as text."""
    job = JobConfig.model_validate({"name": "a", "module": "m", "timeout": 5, "arrival": 0.5, "slowdown": 2, "gpus": 2})
    assert (job.timeout_s, job.arrival_s, job.slowdown_limit, job.gpus) == (5.0, 0.5, 2.0, 2)


@pytest.mark.parametrize("key", ["priority", "gpus", "retries", "iterations", "slowdown", "timeout", "arrival"])
@pytest.mark.parametrize("value", [True, float("nan"), float("inf"), object(), b"1"])
def test_values_that_are_no_numbers(key: str, value: object) -> None:
    """If it failed, a truth value or a number that compares with nothing would pass for a limit."""
    with pytest.raises(ValidationError, match="expected a"):
        JobConfig.model_validate({"name": "a", "module": "m", key: value})
