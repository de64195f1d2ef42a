"""Documents of a queue's HTTP interface: what clients send and get. The OpenAPI description is made from them."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ecoshare.core.records import FINAL_STATES
from ecoshare.errors import EcoshareError, InvalidJobFile, Mistake, QueueDown, UnfitEnvironment, UsageError
from ecoshare.jobs.document import MAX_FILE_BYTES
from ecoshare.jobs.fields import AnyInteger, Name
from ecoshare.record.run_view import DeviceStatus, ServiceStatus

MOST_BODY_BYTES = MAX_FILE_BYTES + (4 << 20)
"""Most bytes of a request: a job file of the largest size, and an environment."""


ProblemKind = Literal["usage", "jobs", "machine", "down", "other"]
EndingKind = Literal["", "drain", "stop"]


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Submission(_Document):
    """Jobs to submit."""

    id: str = Field(
        pattern=r"^[0-9a-f]{32}$", description="Chosen by the client. A second submission of an id is the first."
    )
    text: str = Field(max_length=MAX_FILE_BYTES, repr=False, description="Job file.")
    file: str = Field(max_length=4096, description="Name of the job file in messages.")
    folder: str = Field(max_length=4096, pattern="^/", description="Folder that relative paths in the file start at.")
    made: bool = Field(default=False, description="Whether the file was made from scripts or from a mapping.")
    of_scripts: bool = Field(default=False, description="Whether the file was made from scripts.")
    environment: dict[str, str] = Field(default={}, repr=False, description="Variables of the environment of the jobs.")
    is_whole_environment: bool = Field(
        default=False, description="Whether the jobs have no other variables; otherwise those of the queue, too."
    )
    python: str | None = Field(default=None, max_length=4096, description="Interpreter of jobs that name none.")
    held: bool = Field(default=False, description="Whether the jobs are held: none starts before it is released.")


class Acknowledged(_Document):
    """Answer to a submission."""

    jobs: list[str] = Field(description="Names that the jobs were given, in the order of the file.")
    notes: list[str] = Field(default=[], description="Notes for the user, one line each.")


class JobStatus(_Document):
    """A job or sweep of a queue."""

    name: str
    state: str = Field(description="State: held, arriving, queued, running, completed, failed, cancelled, ...")
    submitted_unix_s: float = Field(description="Time of the submission (s since 1970).")
    started_unix_s: float | None = Field(default=None, description="Time of the first start (s since 1970).")
    ended_unix_s: float | None = Field(default=None, description="Time of the end (s since 1970).")
    exit_code: int | None = Field(default=None, description="Exit code of the last attempt, as a shell gives it.")
    reason: str = Field(default="", description="Cause of an end without success.")
    priority: int = 0
    waits_for: list[str] = Field(default=[], description="Jobs and sweeps that must end before it arrives.")
    attempts: int = Field(default=0, description="Number of attempts.")
    iterations: int = Field(
        default=0, description="Training iterations of the present attempt; those of inference if it does not train."
    )
    of_iterations: int | None = Field(default=None, description="Number of all training iterations, if known.")
    by_steps: bool = Field(
        default=False,
        description="Whether iterations are steps of optimizers that step by turns, such as those of a GAN.",
    )
    iterations_per_s: float | None = Field(default=None, description="Waits included; null in a long wait.")
    turn_wait_s: float = Field(default=0.0, description="Time for which it has waited for its turn, from 2 s on.")
    behind: list[str] = Field(default=[], description="Jobs that have a turn on its devices meanwhile.")
    slowdown: float | None = Field(default=None, description="Wall time / time with the turn, as far as known.")
    expected_end_unix_s: float | None = Field(default=None, description="Expected end (s since 1970) at this rate.")
    energy_j: float | None = Field(default=None, description="Joules beyond idle in this session of the queue.")
    energy_source: str = Field(default="", description="attributed or modelled; empty without joules.")
    service: ServiceStatus | None = Field(default=None, description="Requests, if it is a running service.")
    lanes: list[int] = Field(default=[], description="Lanes that it is in.")
    devices: list[str] = Field(default=[], description="Devices that it is on, if the queue has several.")
    trials: int | None = Field(default=None, description="Number of trials of a sweep.")
    ended_trials: dict[str, int] = Field(default={}, description="Ended trials of a sweep by state.")
    run: str = Field(default="", description="Folder of the run that has its output.")

    @property
    def has_ended(self) -> bool:
        """Whether its state is final. The time of its end follows within some tenths of a second."""
        return self.state in FINAL_STATES


class QueueStatus(_Document):
    """A queue and its jobs."""

    name: str
    run: str = Field(description="Run folder.")
    process: int = Field(description="Process that serves the queue.")
    opened_unix_s: float
    objective: str
    policy: str
    devices: list[DeviceStatus]
    ending: EndingKind = Field(description="Whether the queue is coming to its end, and how.")
    warm: bool = Field(description="Whether torch is loaded.")
    jobs: list[JobStatus]
    more: int = Field(default=0, description="Number of jobs that have ended earlier and are not listed.")
    warnings: list[str] = Field(default=[], description="Present troubles, such as a disk that is full.")


class Change(_Document):
    """Change of one job."""

    held: bool | None = Field(default=None, description="Hold the job, or release it.")
    priority: AnyInteger | None = Field(default=None, description="Priority from now on; a higher number goes first.")


class Cancellation(_Document):
    """Jobs and sweeps to cancel: those of them that can be."""

    jobs: list[Name] = Field(default=[], max_length=10_000)
    all: bool = Field(default=False, description="Cancel all jobs and sweeps that have not ended, too.")
    at_once: bool = Field(default=False, description="Kill running jobs now instead of at their next boundary.")

    @model_validator(mode="after")
    def _names_some(self) -> Self:
        if not (self.jobs or self.all):
            raise ValueError("no job is named")
        return self


class Retry(_Document):
    """Jobs to run again: those of them that have failed or were cancelled."""

    jobs: list[Name] = Field(min_length=1, max_length=10_000)


class JobsChanged(_Document):
    """What came of a request about several jobs."""

    jobs: list[str] = Field(description="Jobs for which it was done; dependents of a job that runs again, too.")
    refused: dict[str, str] = Field(default={}, description="Other jobs, each with the reason why it was not done.")


class Ending(_Document):
    """End of a queue."""

    how: Literal["drain", "stop", "now"] = Field(
        description="drain: what runs comes to its end; stop: jobs end at their next boundary; now: they are killed."
    )


class MistakeDocument(_Document):
    """One mistake in a job file."""

    line: int
    column: int
    where: str
    what: str


class Problem(_Document):
    """Reason why a request was refused."""

    kind: ProblemKind
    message: str
    hint: str = ""
    file: str = ""
    mistakes: list[MistakeDocument] = []

    @classmethod
    def of(cls, error: EcoshareError) -> Problem:
        if isinstance(error, InvalidJobFile):
            found = [MistakeDocument(line=m.line, column=m.column, where=m.where, what=m.what) for m in error.mistakes]
            return cls(kind="jobs", message=str(error), hint=error.hint, file=error.file, mistakes=found)
        kind: ProblemKind = "other"
        if isinstance(error, UsageError):
            kind = "usage"
        elif isinstance(error, UnfitEnvironment):
            kind = "down" if isinstance(error, QueueDown) else "machine"
        return cls(kind=kind, message=str(error), hint=error.hint)

    def error(self) -> EcoshareError:
        """Error that the problem stands for."""
        match self.kind:
            case "jobs":
                found = [Mistake(each.line, each.column, each.where, each.what) for each in self.mistakes]
                return InvalidJobFile(self.file, found, self.hint)
            case "usage":
                return UsageError(self.message, self.hint)
            case "down":
                return QueueDown(self.message, self.hint)
            case "machine":
                return UnfitEnvironment(self.message, self.hint)
            case "other":
                return EcoshareError(self.message, self.hint)
