"""The document `plan.json`: the decisions about a run from before it began, as they are written and read.

A field that a newer version added is kept. A field that an older version did not write has a default, and is not
written again.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from ecoshare.jobs.fields import Name

Count = Annotated[int, Field(ge=0)]
Whole = Annotated[int, Field(ge=1)]
Amount = Annotated[float, Field(ge=0)]


class Written(BaseModel):
    """Document, or a part of one."""

    model_config = ConfigDict(extra="allow", strict=True, populate_by_name=True)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON: all fields that were given."""
        fields: dict[str, Any] = self.model_dump(by_alias=True, exclude_unset=True)
        return fields


class RequestsDocument(Written):
    """Requests that ecoshare makes for a service; see `RequestSource`."""

    arrivals: str = ""
    rate_per_s: Amount = 0.0
    clients: Count = 0
    count: Count = 0
    seed: int = 0


class ServiceDocument(Written):
    """Service that a job is; see `ServiceSpec`."""

    p99_s: Amount
    batch_sizes: list[Whole] = []
    queue: Whole
    requests: RequestsDocument | None = None
    sleep: str = ""
    wake: str = ""
    port: Count = 0


class JobDocument(Written):
    """Job of a plan.

    Attributes:
        env: Names of the environment variables that are set, without their values.
    """

    name: Name
    job_class: str = Field(validation_alias="class", serialization_alias="class")
    script: str | None = None
    module: str | None = None
    args: list[str] = []
    cwd: str = ""
    env: list[str] = []
    arrival_s: Amount = 0.0
    priority: int = 0
    iterations: Count | None = None
    iterations_learned: dict[str, Any] | None = None
    gpus: Whole = 1
    most_gpus: Whole = 1
    nodes: Whole = 1
    launch: str | None = None
    slowdown_limit: Amount | None
    isolation: str | None = None
    launcher: str | None = None
    retries: Count = 0
    preemptible: bool = False
    after: list[Name] = []
    after_any: list[Name] = []
    on_end: list[str] = []
    service: ServiceDocument | None = None


class TrialDocument(JobDocument):
    """Trial of a sweep, which no plan has: the log tells it.

    Attributes:
        metric: Text of the metric; None for none.
        called: Whether it is a call of a function in the program that began the run.
    """

    sweep: str
    values: dict[str, Any]
    metric: str | None
    called: bool


class SweepDocument(JobDocument):
    """Sweep of a plan: what its trials have in common, and how they are drawn.

    Attributes:
        metric: Text of the metric; None for none.
        called: Whether its trials are calls of a function in the program that began the run.
    """

    by: str
    space: dict[str, Any]
    replicates: list[str] = []
    trials: Count | None
    metric: str | None
    goal: str
    target: float | None
    stop: str | None = None
    parallel: Count | None = None
    called: bool = False

    def trial(self, name: str, values: dict[str, Any]) -> TrialDocument:
        """A trial of the sweep."""
        fields = {each: getattr(self, each) for each in JobDocument.model_fields}
        own = {"name": name, "sweep": self.name, "values": values, "metric": self.metric, "called": self.called}
        return TrialDocument.model_construct(**{**fields, **own})


class DeviceDocument(Written):
    """Fields of a device that readers need; see `DeviceInfo`."""

    name: str
    kind: str
    model: str
    uuid: str | None
    memory_bytes: Count
    cores: Count
    power_limit_w: Amount | None = None
    processors: list[Count] = []


class BudgetDocument(Written):
    """Power budget (W) of a run; see `PlannedBudget`."""

    watts: Amount
    by: str
    tuning_limit: Amount


class PlanDocument(Written):
    """Plan of a run.

    Attributes:
        devices: Devices, each with the fields of `DeviceDocument` and more.
        run_options: Options of the run, which are checked where it is resumed.
        speeds: Speed of each device for job classes, by its name; see `Plan`.
        tuned: Packings with known settings.
        measured_beside: Packings of which the speeds are known.
    """

    schema_version: Any = 1
    job_file: str
    made_file: bool = False
    digest: str
    objective: str
    policy: str
    options: dict[str, float] = {}
    devices: list[dict[str, Any]] = Field(min_length=1)
    speeds: dict[str, Any] = {}
    host_bytes: Count = 0
    power_budget: BudgetDocument | None = None
    lanes: Whole
    places_per_lane: Whole
    mps: Any = False
    profiles: str | None
    known_classes: Any = []
    control: bool = False
    goal: dict[str, Any] | None = None
    run_options: Any = None
    only_tune: bool = False
    queue: str = ""
    tuned: list[Any] = []
    measured_beside: list[Any] = []
    on_end: list[str] = []
    notes: list[str]
    jobs: list[JobDocument]
    sweeps: list[SweepDocument] = []
