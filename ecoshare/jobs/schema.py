"""Schema of the job file: its keys, their values, and their meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from ecoshare.base.service import CALL_LIMIT_S
from ecoshare.jobs import fields
from ecoshare.jobs.document import MAX_ITEMS
from ecoshare.jobs.quantities import quoted
from ecoshare.jobs.service_config import RETRIES, ServiceConfig
from ecoshare.jobs.sweep import Sweep


def _read_version(value: object) -> object:
    if value not in (1, "1"):
        raise ValueError(f"expected 1, the only version there is, got {quoted(value)}")
    return 1


SLOWDOWN = (
    "The slowdown of a job is its wall time per iteration, waits for the turn included, "
    "divided by its time per iteration alone."
)
"""Definition of the slowdown. It is at least 1; docs/reports.md says where the time alone comes from."""


class _Model(BaseModel):
    # Inputs hold values of `env:`, which must not reach a log through an uncaught error.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class JobOptions(_Model):
    """Options of a job, which `defaults:` may set for all jobs and each job for itself.

    Attributes have the names of the keys in the file, with the unit added; `class` is `job_class`.
    """

    cwd: fields.FolderPath = Field(
        default=Path(),
        description="Working folder, relative to the job file; by default the folder of the job file.",
    )
    env: fields.Environment = Field(
        default={},
        repr=False,
        description="Environment variables; `env` of a job is added to `env` of `defaults`.",
    )
    python: fields.Program | None = Field(
        default=None,
        description="Another Python interpreter: a path relative to the job file, or a name on the PATH.",
    )
    job_class: fields.Name | None = Field(
        default=None,
        alias="class",
        description="Job class; jobs of one class share a profile. The default follows from the script.",
    )
    arrival_s: fields.Duration = Field(
        default=0.0,
        alias="arrival",
        description="Time from the start of the run to the arrival of the job, such as `2 min`.",
    )
    priority: fields.AnyInteger = Field(default=0, description="Priority; jobs with a higher number go first.")
    iterations: fields.PositiveInteger | None = Field(
        default=None,
        description=(
            "Total number of training iterations; by default it is learned from earlier runs: the median of completed "
            "jobs of the class with the same arguments."
        ),
    )
    gpus: fields.DeviceCount = Field(default=1, description="Number of devices that the job needs at once.")
    most_gpus: fields.DeviceCount | None = Field(
        default=None,
        description=(
            "Most devices that the job can use. Under `--policy fluid` and `equal` it has `gpus` of them or more, as "
            "many as its part of the work that is left. It is stopped and started again for another number, so it "
            "must be `preemptible`."
        ),
    )
    nodes: fields.DeviceCount = Field(
        default=1,
        description=(
            "Most machines that the devices of a job with `launch: ranks` may lie on. Over several, the job has its "
            "lanes to itself."
        ),
    )
    launch: fields.LaunchMode | None = Field(
        default=None,
        description=(
            "How the processes of a job of several devices are started. `ranks`: one for each device, with the "
            "environment that torchrun would give it; `torchrun`: by torchrun itself. The default is one process that "
            "sees all devices of the job."
        ),
    )
    slowdown_limit: fields.Factor | None = Field(
        default=None, alias="slowdown", description=f"Largest slowdown that the job accepts. {SLOWDOWN}"
    )
    isolation: fields.IsolationMode = Field(
        default=fields.Isolation.PROCESS,
        description=(
            "How the job is isolated. `process`: it is forked from a warm server; `fresh`: it has an interpreter of "
            "its own; `lane`: jobs of one trusted script share one process in a lane, as in a sweep, or as services "
            "for which ecoshare makes the requests."
        ),
    )
    retries: fields.Attempts = Field(
        default=0, description=f"How many times a failed job is started again; by default 0, for a service {RETRIES}."
    )
    resume_args: fields.Arguments = Field(
        default=(), description="Arguments that are added from the second attempt on."
    )
    preemptible: fields.YesOrNo = Field(
        default=False,
        description=(
            "Whether the job may be stopped for a job that the policy puts before it. It gets SIGTERM, saves its state "
            "within 10 s, and goes on in its next attempt, with `resume_args`."
        ),
    )
    timeout_s: fields.PositiveDuration | None = Field(
        default=None,
        alias="timeout",
        description=(
            "Longest time that the job may have the turn without a step; after it, the job is stopped. A service is "
            f"stopped if another job has waited for this long behind one call; by default {CALL_LIMIT_S:g} s."
        ),
    )
    startup_timeout_s: fields.PositiveDuration | None = Field(
        default=None, alias="startup_timeout", description="Longest time from the start of the job to its first step."
    )
    on_end: fields.Command = Field(
        default=(),
        description=(
            "Program and arguments to run at the end of the job, without a shell. `{job}` stands for its name, `{run}` "
            "for the run folder, and `{state}` for `completed`, `failed`, `cancelled` or `pruned`."
        ),
    )


class JobConfig(JobOptions):
    """One job: a script or a module, its arguments, and how to run it.

    In a job that `load` returns, paths are absolute and the defaults of the file are filled in.
    """

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["script"]}, {"required": ["module"]}]})

    name: fields.Name = Field(description="Name, unique in the file; letters, digits, '.', '_' and '-'.")
    script: fields.FilePath | None = Field(
        default=None, description="Script to run, relative to the job file; a job has this or `module`."
    )
    module: fields.Module | None = Field(
        default=None, description="Module to run, as `python -m` does; a job has this or `script`."
    )
    args: fields.Arguments = Field(default=(), description="Arguments of the script, passed on exactly as written.")
    after: fields.Names = Field(
        default=(),
        description="Jobs and sweeps that must complete before the job arrives. If one does not, the job is cancelled.",
    )
    after_ok: fields.Names = Field(default=(), description="The same as `after`, by the name that Slurm gives it.")
    after_any: fields.Names = Field(
        default=(), description="Jobs and sweeps that must end, in whatever state, before this job arrives."
    )
    sweep: Sweep | None = Field(
        default=None,
        description="Sweep: many trials of the job, which differ in the values for `{name}` in `args` and `env`.",
    )

    service: ServiceConfig | None = Field(
        default=None,
        description=(
            "Service: the job answers requests within a target time. Without a last request it ends when all other "
            "jobs have ended."
        ),
    )

    @model_validator(mode="after")
    def _check_program(self) -> Self:
        problem = program_problem(self.script is not None, self.module is not None)
        if problem:
            raise ValueError(problem)
        return self


class JobFile(_Model):
    """A job file: version, defaults and jobs."""

    version: Annotated[int, BeforeValidator(_read_version), WithJsonSchema({"const": 1})] = Field(
        description="Version of the format of this file: 1."
    )
    defaults: Annotated[JobOptions, BeforeValidator(lambda value: {} if value is None else value)] = Field(
        default=JobOptions(), description="Options of all jobs; a key of a job replaces the default."
    )
    on_end: fields.Command = Field(
        default=(),
        description=(
            "Program and arguments to run at the end of the run, without a shell. `{run}` stands for the run folder, "
            "and `{state}` for `completed`, `failed` or `interrupted`."
        ),
    )
    jobs: tuple[JobConfig, ...] = Field(min_length=1, max_length=MAX_ITEMS, description="The jobs, in any order.")


def program_problem(has_script: bool, has_module: bool) -> str:
    """Problem with the program of a job that has these keys; empty if there is none."""
    if has_script and has_module:
        return "a job has a script or a module, not both"
    if not has_script and not has_module:
        return "the key 'script' (or 'module') is missing"
    return ""


def json_schema() -> dict[str, Any]:
    """JSON Schema of a job file, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **JobFile.model_json_schema(by_alias=True),
    }
