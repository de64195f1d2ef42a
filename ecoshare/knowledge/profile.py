"""Profile of a job class: the memory that a job needs, and its time and joules per iteration.

Each class has one readable file, `profiles/<class>.json`. A profile is measured in a window of a job's own run, after
the warm-up and alone on the device. A value that could not be measured is null, and `notes` says why.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from statistics import fmean, quantiles
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from ecoshare.base.batch_means import error_of_any
from ecoshare.base.device import PROCESSORS


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ProfileOrigin(_Part):
    """Identity of a class: a profile holds for jobs that have all of these values.

    Attributes:
        script: Absolute path of a script, or name of a module.
        sources: SHA-256 of the script and of each local module that it imports, by path from the script's folder.
        args: All arguments of the script.
        device_model: Device in the words of `DeviceInfo.described`.
        torch: Version of torch.
        given: Name that the job file gives the class (`class:`), or null. With it, scripts and arguments may differ.
    """

    script: str
    sources: dict[str, str]
    args: tuple[str, ...]
    device_model: str
    torch: str
    given: str | None = None


class Machine(_Part):
    """Machine on which the profile was measured.

    Attributes:
        device: Name of the device in the run, such as `cuda:0`.
        kind: `cpu` or `cuda`.
        uuid: UUID of a GPU; null for processors.
        driver: Version of a GPU's driver; null for processors.
        cores: Number of processors that the run could use.
        intra_op_threads: Number of intra-op threads of torch; null if unknown.
        python: Version of Python.
        platform: Operating system, in Python's words.
        ecoshare: Version of ecoshare.
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

    @property
    def on_processors(self) -> bool:
        """Whether the job ran on the processors, and not on a GPU."""
        return self.kind == PROCESSORS


class AchievedSetting(_Part):
    """Achieved setting of the hardware during the measurement; null for a value that the device does not report."""

    gpu_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_limit_w: float | None = None


class MemoryProfile(_Part):
    """Memory that a job keeps while it waits for its turn, and memory that it needs beyond that inside an iteration.

    Attributes:
        persistent_bytes: P. On CUDA: the largest size that stays reserved at a yield with an empty cache, plus the
            context. On the CPU: the proportional set size of the process at a boundary.
        ephemeral_bytes: T: memory that an iteration needs at its peak beyond P.
        model_bytes: Bytes of tensors that are alive at a boundary, by a walk over them; `parts` says what holds them.
        framework_bytes: P - `model_bytes`: remains of the allocator, libraries, the context.
        parts: Bytes of tensors by what holds them: parameters, gradients, optimizer states and so on.
        peak_bytes: Most bytes of tensors that are alive at once inside an iteration.
        context_bytes: On CUDA: memory of the process outside its allocator. Null if the driver does not report it.
        seen_bytes: Largest memory that a job of the class took in any run, if that was more than P + T; else null.
        timeline: Pairs of seconds since the iteration began and bytes of tensors that are alive from then on.
        note: Reason why some values are unknown; empty if there is none.
    """

    persistent_bytes: NonNegativeInt | None
    ephemeral_bytes: NonNegativeInt | None
    model_bytes: NonNegativeInt | None
    framework_bytes: NonNegativeInt | None
    parts: dict[str, int | None] = Field(default_factory=dict)
    peak_bytes: NonNegativeInt | None = None
    context_bytes: NonNegativeInt | None = None
    seen_bytes: NonNegativeInt | None = None
    timeline: tuple[tuple[float, int], ...] = ()
    note: str = ""


class IterationTimes(_Part):
    """Wall times of the iterations of one kind, without the warm-up.

    Attributes:
        count: Number of measured iterations.
        mean_s: Mean time.
        standard_error_s: Standard error of the mean, by batch means, since neighbouring iterations are correlated. Null
            for too few iterations.
        median_s: Median time.
        p95_s: 95th percentile: one iteration in twenty takes longer.
    """

    count: NonNegativeInt
    mean_s: NonNegativeFloat
    standard_error_s: NonNegativeFloat | None
    median_s: NonNegativeFloat
    p95_s: NonNegativeFloat


class IterationEnergy(_Part):
    """Joules per iteration, alone on the device.

    Attributes:
        per_iteration_j: Joules of a training iteration, idle power included; null if none was seen.
        per_eval_iteration_j: Joules of an inference iteration, idle power included; null if none was seen.
        active_per_iteration_j: Joules of a training iteration beyond idle power; null if that power is unknown.
        active_per_eval_iteration_j: Joules of an inference iteration beyond idle power.
        relative_error: Standard error of the window's joules / these joules. Null for modelled joules, since their
            error is unknown.
        power_w: Mean power (W) over the window.
        idle_w: Power (W) of the device with the contexts up and nothing running; null if unknown.
        idle_share: Share in [0, 1] of the joules that the idle device would have spent in the same time.
        source: `measured` or `modelled`.
        scope: `gpu` or `cpu`.
        meter: Name of the meter.
        about: One line about the meter.
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

    def without_iterations(self) -> IterationEnergy:
        """The same power and meter, for a program without iterations."""
        names = ("per_iteration_j", "per_eval_iteration_j", "active_per_iteration_j", "active_per_eval_iteration_j")
        return self.model_copy(update=dict.fromkeys(names))


class BatchAnswers(_Part):
    """Answers of a service in batches of one size, one after another, alone on the device.

    Attributes:
        size: Number of requests in a batch.
        count: Number of measured batches.
        mean_s: Mean time (s) that the handler and the device take for a batch.
        standard_error_s: Standard error (s) of the mean, by batch means; null for too few batches.
        median_s: Median time (s).
        p95_s: 95th percentile (s).
        p99_s: 99th percentile (s); of fewer than 100 batches the longest.
        per_request_j: Joules of a request, idle power included; null if unknown.
        energy_error: Standard error of the joules / the joules; null for modelled joules and for unknown ones.
    """

    size: PositiveInt
    count: PositiveInt
    mean_s: NonNegativeFloat
    standard_error_s: NonNegativeFloat | None
    median_s: NonNegativeFloat
    p95_s: NonNegativeFloat
    p99_s: NonNegativeFloat
    per_request_j: NonNegativeFloat | None = None
    energy_error: NonNegativeFloat | None = None

    @property
    def relative_error(self) -> float | None:
        """Standard error of the mean / mean; None if unknown."""
        return self.standard_error_s / self.mean_s if self.standard_error_s is not None and self.mean_s else None


class Use(_Part):
    """Utilisation of the device by the job.

    Attributes:
        busy: On a GPU: share of the time in which a kernel ran. On the CPU: processor time / (wall time x threads).
        memory_busy: Share of the time in which the GPU's memory was read or written.
        bound_by: Rough bottleneck: `compute`, `memory` or `host` (launches, input, waiting); null if unknown.
    """

    busy: NonNegativeFloat | None
    memory_busy: NonNegativeFloat | None = None
    bound_by: Literal["compute", "memory", "host"] | None = None


class ProfileWindow(_Part):
    """Window in which the profile was measured.

    Attributes:
        warm_up_iterations: Number of iterations before the window, which do not count.
        warm_up_s: Time (s) in which the job held its turn before the window.
        measured_s: Time (s) in which times and joules were measured.
        total_s: Length (s) of the window: the idle device, iterations with observed memory, measured iterations.
        productive_s: Time (s) that the iterations of the window take without observation.
        overhead: Time that the memory observation added / `productive_s`; null if no iteration was timed.
        paused_jobs: Number of other jobs that waited meanwhile.
    """

    warm_up_iterations: NonNegativeInt
    warm_up_s: NonNegativeFloat
    measured_s: NonNegativeFloat
    total_s: NonNegativeFloat
    productive_s: NonNegativeFloat
    overhead: float | None
    paused_jobs: NonNegativeInt


_FEW = 0.02
"""Inference / training iterations of a job, up to which unmeasured inference takes the cost of training."""


class Profile(_Part):
    """The profile of a job class.

    Attributes:
        job_class: Name of the class and of its file.
        made_utc: Time at which the profile was made (ISO 8601, UTC).
        train: Times of training iterations; null if none was measured.
        eval: Times of inference iterations; null if none was measured.
        energy: Joules per iteration; null if there is no meter and no model, or if the meter failed.
        batches: Answers of a service by batch size, in ascending order; empty for any other program. Then `memory`,
            `use` and the power are those of the largest batch, and there are no iterations.
        reported: Values of `ecoshare.report` before the end of the window, by name and in order; null for one that is
            not finite.
        meter_failed: Whether there is a meter and it failed. Then the class needs another window.
        steady: Whether the iteration time had settled when the window ended.
        doubt: Reason not to rely on the figures, and to measure the class again; empty if there is none.
        notes: Remarks for the user, such as reasons for missing values.
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
    batches: tuple[BatchAnswers, ...] = ()
    reported: dict[str, tuple[float | None, ...]] = Field(default_factory=dict)
    meter_failed: bool = False
    window: ProfileWindow
    steady: bool
    doubt: str = ""
    notes: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether the class needs no other window. A profile that is not whole serves until then."""
        is_timed = self.train is not None or self.eval is not None or bool(self.batches)
        return not self.meter_failed and not self.doubt and is_timed

    def longest_answer_s(self, sizes: Sequence[int]) -> float | None:
        """99th percentile (s) of the time of the smallest batch that a service may use; None if unknown.

        Args:
            sizes: Batch sizes that the service may use; empty for those that were measured. If the smallest one was not
                measured, the next larger one counts, since a larger batch takes no less time.
        """
        least = min(sizes, default=1)
        return next((each.p99_s for each in self.batches if each.size >= least), None)

    def not_measured(self, iterations: int, eval_iterations: int) -> str:
        """Kind of iteration that a job has and this profile lacks: `training` or `inference`; empty if there is none.

        Inference iterations that `guessed` covers do not count as lacking.

        Args:
            iterations: Number of training iterations of the job.
            eval_iterations: Number of inference iterations of the job.
        """
        if iterations and self.train is None:
            return "training"
        return "inference" if self.eval is None and self.guessed(iterations, eval_iterations) < eval_iterations else ""

    def guessed(self, iterations: int, eval_iterations: int) -> int:
        """Number of inference iterations that are taken to cost as much as training iterations; the error is as large.

        They are taken so if they are few and were not measured. A script that tests its model once, at its end, does so
        after its window.
        """
        few = self.eval is None and self.train is not None and eval_iterations <= _FEW * iterations
        return eval_iterations if few else 0

    def alone_s(self, iterations: int, eval_iterations: int) -> float | None:
        """Time (s) that so many iterations take alone; None for no iteration, or if the time of a kind is not known.

        Args:
            iterations: Number of training iterations of the job.
            eval_iterations: Number of inference iterations of the job.
        """
        guessed = self.guessed(iterations, eval_iterations)
        kinds = ((iterations + guessed, self.train), (eval_iterations - guessed, self.eval))
        if any(count and times is None for count, times in kinds):
            return None
        return math.fsum(count * times.mean_s for count, times in kinds if times is not None) or None

    def alone_error_s(self, iterations: int, eval_iterations: int) -> float | None:
        """Standard error (s) of `alone_s`; None if it is unknown.

        A job may test its model so seldom that its window holds too few inference iterations for an error, or none.
        Then the error of their time counts as large as the time, which is little in such a job.

        Args:
            iterations: Number of training iterations of the job.
            eval_iterations: Number of inference iterations of the job.
        """
        guessed = self.guessed(iterations, eval_iterations)
        error_s = guessed * self.train.mean_s if guessed and self.train is not None else 0.0
        if iterations + guessed:
            if self.train is None or self.train.standard_error_s is None:
                return None
            error_s += (iterations + guessed) * self.train.standard_error_s
        if tests := eval_iterations - guessed:
            if self.eval is None or (self.eval.standard_error_s is None and not iterations):
                return None
            own_s = self.eval.standard_error_s
            error_s += tests * (self.eval.mean_s if own_s is None else own_s)
        return error_s


def times(durations_s: Sequence[float]) -> IterationTimes | None:
    """Statistics of durations (s); None if there are none."""
    if not durations_s:
        return None
    mean_s = fmean(durations_s)
    error = error_of_any(durations_s)
    cuts = quantiles(durations_s, n=20, method="inclusive") if len(durations_s) > 1 else [mean_s] * 19
    return IterationTimes(
        count=len(durations_s),
        mean_s=mean_s,
        standard_error_s=error * mean_s if error is not None else None,
        median_s=cuts[9],
        p95_s=cuts[18],
    )


_OPTION = re.compile(r"--?[^\W\d]")


def why_new(origin: ProfileOrigin, profile: Profile) -> str:
    """Reason in one line why a profile does not serve jobs of `origin`; empty if it serves them."""
    then = profile.origin
    parts = []
    if origin.given != then.given:
        parts.append(f"class: {origin.given or 'none'} in the job file, and {then.given or 'none'} then")
    if origin.given is None:
        changed = sorted({shown(name) for name, _ in origin.sources.items() ^ then.sources.items()})
        if changed:
            verb = "has" if len(changed) == 1 else "have"
            parts.append(f"{_listed(changed, ' and ')} {verb} changed since the profile of {_day(profile)}")
        if origin.args != then.args:
            parts.append(f"other arguments: {_other_arguments(origin.args, then.args)}")
    if origin.torch != then.torch:
        parts.append(f"torch {shown(origin.torch)}, and {shown(then.torch)} then")
    if origin.device_model != then.device_model:
        parts.append(f"another device: {shown(origin.device_model)}, and {shown(then.device_model)} then")
    return "; ".join(parts)


def _day(profile: Profile) -> str:
    return shown(profile.made_utc.partition("T")[0])


def options(args: tuple[str, ...]) -> dict[str, str]:
    """Values by option, roughly: words after an option are its value, and words before any option get a number.

    `--batch=32` equals `--batch 32`, and `-1` is a value. A file name after a flag becomes the flag's value, which does
    no harm here.
    """
    found: dict[str, str] = {}
    seen: Counter[str] = Counter()
    option = ""
    for number, arg in enumerate(args, start=1):
        if _OPTION.match(arg):
            option, _, value = arg.partition("=")
            seen[option] += 1
            option += f" ({seen[option]})" if seen[option] > 1 else ""
            found[option] = value
        elif option:
            found[option] = f"{found[option]} {arg}".lstrip()
        else:
            found[f"argument {number}"] = arg
    return found


def _other_arguments(args: tuple[str, ...], then_args: tuple[str, ...]) -> str:
    now, then = options(args), options(then_args)
    parts = [
        f"{shown(name)} {shown(value)}".rstrip()
        + (f" (was {shown(then[name]) or 'without a value'})" if name in then else " (new)")
        for name, value in now.items()
        if then.get(name) != value
    ]
    parts += [f"without {shown(name)} {shown(then[name])}".rstrip() for name in then if name not in now]
    return _listed(parts, ", ") or "the same, written in another way"


def _listed(words: list[str], last: str, most: int = 4) -> str:
    if len(words) > most:
        words, last = [*words[:most], f"{len(words) - most} more"], " and "
    return last.join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def shown(text: str, most: int = 60) -> str:
    """Text of a file in one printable line of at most `most` characters; the cut end becomes `...`."""
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= most else text[: most - 3] + "..."
