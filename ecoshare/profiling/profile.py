"""What one job of a class needs: memory, time and joules an iteration. One `profiles/<class>.json`, readable.

A profile is measured in a window of a job's own run, after its warm-up, alone on the device. What could not be measured
is null, and `notes` say why.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ProfileOrigin(_Part):
    """What a class is: a profile holds for jobs of which all of this is the same.

    Attributes:
        script: Absolute path; or, for a module, its name.
        sources: SHA-256 of the script and of each local module that it imports, by path from the script's folder.
        args: All arguments.
        device_model: What the maker calls the device.
        torch: Version.
        given: The name of the class, where the job file names it (`class:`); scripts and arguments may differ then.
    """

    script: str
    sources: dict[str, str]
    args: tuple[str, ...]
    device_model: str
    torch: str
    given: str | None = None


class Machine(_Part):
    """Where it was measured.

    Attributes:
        device: Name in the run, such as `cuda:0`.
        kind: `cpu` or `cuda`.
        uuid: Of a GPU.
        driver: Of a GPU.
        cores: Processors that the run could use.
        intra_op_threads: Of torch.
    """

    device: str
    kind: str
    uuid: str | None
    driver: str | None
    cores: int
    intra_op_threads: int | None
    python: str
    platform: str
    ecoshare: str


class AchievedSetting(_Part):
    """The hardware's setting while it was measured, as achieved; null where the device does not say."""

    gpu_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_limit_w: float | None = None


class MemoryProfile(_Part):
    """What a job keeps while it waits for its turn, and what it needs beyond that inside an iteration.

    Attributes:
        persistent_bytes: P. On CUDA the largest size that stays reserved at a yield with the cache emptied, and the
            context; on the CPU the process's proportional set size at a boundary.
        ephemeral_bytes: T, the rest of the peak.
        model_bytes: Tensors alive at a boundary, by the walk over them; `parts` says what holds them.
        framework_bytes: What P is more than that: the allocator's remains, libraries, the context.
        parts: By what holds the tensors: parameters, gradients, optimizer states and so on.
        peak_bytes: Most bytes of tensors alive at once inside an iteration.
        context_bytes: On CUDA what the process holds beside its allocator; null where the driver does not say.
        timeline: (seconds since the iteration began, bytes of tensors alive from then on).
        note: What keeps some of this from being known.
    """

    persistent_bytes: NonNegativeInt | None
    ephemeral_bytes: NonNegativeInt | None
    model_bytes: NonNegativeInt | None
    framework_bytes: NonNegativeInt | None
    parts: dict[str, int | None] = Field(default_factory=dict)
    peak_bytes: NonNegativeInt | None = None
    context_bytes: NonNegativeInt | None = None
    timeline: tuple[tuple[float, int], ...] = ()
    note: str = ""


class IterationTimes(_Part):
    """Wall times of the iterations of one kind, without those of the warm-up.

    Attributes:
        count: Iterations measured.
        mean_s: Their mean; `standard_error_s` is its own, by the means of batches, since neighbours are alike.
        median_s: The middle one.
        p95_s: One in twenty takes longer.
    """

    count: NonNegativeInt
    mean_s: NonNegativeFloat
    standard_error_s: NonNegativeFloat | None
    median_s: NonNegativeFloat
    p95_s: NonNegativeFloat


class IterationEnergy(_Part):
    """Joules an iteration, alone on the device.

    Attributes:
        per_iteration_j: Of training, idle power included; null where no such iteration was seen.
        per_eval_iteration_j: Of inference.
        active_per_iteration_j: Of training, beyond idle.
        active_per_eval_iteration_j: Of inference, beyond idle.
        relative_error: Standard error of all of these, over their value; null for a model's joules, whose error nobody
            knows.
        power_w: Mean over the window.
        idle_w: Of the device with the contexts up and nothing running; null where it could not be had.
        idle_share: Part of the joules that idleness would have taken in the same time.
        source: `measured` or `modelled`.
        scope: `gpu` or `cpu`.
        meter: Its name.
        about: One line on the meter.
    """

    per_iteration_j: NonNegativeFloat | None
    per_eval_iteration_j: NonNegativeFloat | None
    active_per_iteration_j: NonNegativeFloat | None
    active_per_eval_iteration_j: NonNegativeFloat | None
    relative_error: NonNegativeFloat | None
    power_w: NonNegativeFloat
    idle_w: NonNegativeFloat | None
    idle_share: NonNegativeFloat | None
    source: str
    scope: str
    meter: str
    about: str


class Use(_Part):
    """How much of the device the job keeps busy.

    Attributes:
        busy: GPU: part of the time during which anything ran there; CPU: processor time over wall time times threads.
        memory_busy: Part of the time during which the GPU's memory was read or written.
        bound_by: `compute`, `memory` or `host` (launches, input, waiting), roughly; null where nothing tells.
    """

    busy: NonNegativeFloat | None
    memory_busy: NonNegativeFloat | None = None
    bound_by: Literal["compute", "memory", "host"] | None = None


class ProfileWindow(_Part):
    """The window in which it was measured.

    Attributes:
        warm_up_iterations: Done before, and dropped.
        warm_up_s: Time with the turn before.
        measured_s: Of which times and joules were measured.
        total_s: Of the whole window: idle device, recorded iterations, measured ones.
        productive_s: What the iterations done in it take without being observed.
        overhead: What observing the memory added to the time of the window's iterations, over that time.
        paused_jobs: Others that waited meanwhile.
    """

    warm_up_iterations: NonNegativeInt
    warm_up_s: NonNegativeFloat
    measured_s: NonNegativeFloat
    total_s: NonNegativeFloat
    productive_s: NonNegativeFloat
    overhead: float | None
    paused_jobs: NonNegativeInt


_FEW = 0.02
"""Part of a job's iterations up to which those that were not measured do not keep the rest from being compared."""


class Profile(_Part):
    """The profile of a job class.

    Attributes:
        job_class: Its name, and that of the file.
        made_utc: ISO 8601.
        train: Times of training iterations; null where none were seen.
        eval: Of inference iterations.
        energy: Null where there is no meter at all, or it failed.
        meter_failed: There is one, and it failed: the class is worth another window.
        steady: Whether the figures had settled when the window ended.
        doubt: Why the figures are not relied on and the class is measured again; empty where nothing is wrong.
    """

    schema_version: Literal[1] = 1
    job_class: str
    made_utc: str
    origin: ProfileOrigin
    machine: Machine
    setting: AchievedSetting
    memory: MemoryProfile
    train: IterationTimes | None
    eval: IterationTimes | None
    use: Use
    energy: IterationEnergy | None
    meter_failed: bool = False
    window: ProfileWindow
    steady: bool
    doubt: str = ""
    notes: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether another window would tell no more. A profile that lacks something serves until then."""
        return not self.meter_failed and not self.doubt and (self.train is not None or self.eval is not None)

    def not_measured(self, iterations: int, eval_iterations: int) -> str:
        """Of so many iterations a kind that was not measured, `training` or `inference`; empty for none that counts."""
        if iterations and self.train is None:
            return "training"
        return "inference" if self.eval is None and self.guessed(iterations, eval_iterations) < eval_iterations else ""

    def guessed(self, iterations: int, eval_iterations: int) -> int:
        """Inference iterations that are taken to cost what a training one does, give or take as much.

        A script that tests its model once, at its end, does so after the window in which it was measured.
        """
        few = self.eval is None and self.train is not None and eval_iterations <= _FEW * iterations
        return eval_iterations if few else 0

    @property
    def relative_error(self) -> float | None:
        """Standard error of the mean iteration time over that time, the larger of both kinds; None where not known."""
        kinds = [each for each in (self.train, self.eval) if each is not None]
        if not kinds or any(each.standard_error_s is None or not each.mean_s for each in kinds):
            return None
        return max((each.standard_error_s or 0.0) / each.mean_s for each in kinds)
