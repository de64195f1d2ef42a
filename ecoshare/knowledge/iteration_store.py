"""Stores how many training iterations completed jobs took, by class and arguments, beside the profiles.

::

    profiles/iterations/
      train-0123456789ab.json      a class: counts of its last completed jobs, for each set of arguments

A class may cover several arguments (`class:` in the job file), and `--epochs 3` says nothing about `--epochs 30`. So a
count holds for equal arguments only. `json_store.py` reads the files, replaces them, and sets damaged ones aside, as it
does for profiles. If two runs write a class at the same moment, the counts of one of them are lost. The next run counts
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from statistics import median
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from ecoshare.base.plural import counted
from ecoshare.knowledge.json_store import ClassFiles, OfClass, check_class_name
from ecoshare.knowledge.profile import ProfileOrigin
from ecoshare.knowledge.profiles_folder import ITERATIONS

MOST_COUNTS = 9
"""Counts that are kept for one set of arguments. Their median withstands four outliers, and follows a lasting change,
such as a larger data set, after five runs. The number is odd, so in the long run the median is a count that was seen.
"""

MOST_ARGUMENTS = 100
"""Sets of arguments that are kept for one class, the last used ones. Each run of a class with a given name may bring
new arguments, so the file needs a bound.
"""

_DEEP = 5
_MOST_ITERATIONS = 2**53
"""Largest count that a file may hold: times are computed from it as floats."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class JobArguments(_Part):
    """Arguments that a job ran with, as far as they may change its number of iterations.

    Attributes:
        script: File name of the script, or name of the module.
        args: Arguments of the script.
        environment: Short digest of the job's own environment variables (`env:`), because their values may be secret.
            Empty without any.
    """

    script: str
    args: tuple[str, ...]
    environment: str = ""

    @classmethod
    def of(cls, origin: ProfileOrigin, environment: str) -> JobArguments:
        """Arguments of a job. The folder of its script does not count, so a project that was moved keeps its counts."""
        return cls(script=PurePath(origin.script).name, args=origin.args, environment=environment)


class IterationCount(_Part):
    """Training iterations of one completed job.

    Attributes:
        iterations: Number of training iterations, over all attempts of the job.
        run: Name of the run folder.
        job: Name of the job.
    """

    iterations: Annotated[int, Field(ge=1, le=_MOST_ITERATIONS)]
    run: str
    job: str


@dataclass(frozen=True, slots=True)
class LearnedIterations:
    """Number of training iterations that was learned from completed jobs.

    Attributes:
        iterations: Median of the counts.
        jobs: Number of completed jobs.
        fewest: Smallest count.
        most: Largest count.
    """

    iterations: int
    jobs: int
    fewest: int
    most: int

    @property
    def source(self) -> str:
        """Origin of the number in words, such as `median of 3 completed jobs (800 to 1,600)`."""
        jobs = counted(self.jobs, "completed job")
        if self.fewest == self.most:
            return f"as in {jobs}"
        return f"median of {jobs} ({self.fewest:,} to {self.most:,})"


class ArgumentCounts(_Part):
    """Counts of the last completed jobs with equal arguments, the newest last."""

    arguments: JobArguments
    counts: Annotated[tuple[IterationCount, ...], Field(min_length=1)]

    @property
    def learned(self) -> LearnedIterations:
        """Number that the counts teach."""
        numbers = [each.iterations for each in self.counts]
        return LearnedIterations(round(median(numbers)), len(numbers), min(numbers), max(numbers))


class ClassIterations(OfClass):
    """Counts of one class.

    Attributes:
        job_class: Name of the class.
        script: Path of the script, or name of the module, of the job that was counted last.
        given: Name of the class in the job file; null if the class follows from the script.
        counted: Counts by arguments, the last used arguments last.
    """

    schema_version: Literal[1] = 1
    script: str
    given: str | None
    counted: tuple[ArgumentCounts, ...]

    def of(self, arguments: JobArguments) -> LearnedIterations | None:
        """Number of iterations of a job with these arguments; None if no such job has completed."""
        return next((each.learned for each in self.counted if each.arguments == arguments), None)


SCHEMA_VERSION: int = ClassIterations.model_fields["schema_version"].default


class IterationStore:
    """Store of iteration counts, in the folder of the profiles. The folder need not exist yet."""

    def __init__(self, profiles: Path) -> None:
        damaged = "holds no iteration counts of its class"
        self._files = ClassFiles(profiles / ITERATIONS, ClassIterations, SCHEMA_VERSION, damaged, _DEEP)

    @property
    def notes(self) -> list[str]:
        """Reasons why files cannot be used, one line each, for the caller to show."""
        return self._files.notes

    def find(self, job_class: str) -> ClassIterations | None:
        """Counts of a class, always from the disk; None if there are none that this version can use."""
        return self._files.find(job_class)

    def all(self) -> list[ClassIterations]:
        """Counts of all classes that this version can use, by class."""
        return self._files.all()

    def add(self, job_class: str, origin: ProfileOrigin, new: Sequence[tuple[JobArguments, IterationCount]]) -> None:
        """Add counts of completed jobs of one class; a job that was counted before is left out.

        A file from a newer version of ecoshare stays as it is, and `notes` says so.

        Args:
            job_class: Name of the class.
            origin: Origin of the class of one of the jobs.
            new: Arguments and count of each job, in the order of their ends.

        Raises:
            UnfitEnvironment: The file cannot be written: no room, or no permission.
            ValueError: The name of the class cannot be a file name here.
        """
        check_class_name(job_class)
        before = self.find(job_class)
        known = {each.arguments: each.counts for each in before.counted} if before is not None else {}
        kept = dict(known)
        for arguments, count in new:
            counts = kept.get(arguments, ())
            if not any((each.run, each.job) == (count.run, count.job) for each in counts):
                kept.pop(arguments, None)  # the last used arguments are the last in the file
                kept[arguments] = (*counts, count)[-MOST_COUNTS:]
        if kept == known:
            return
        last = [ArgumentCounts(arguments=arguments, counts=counts) for arguments, counts in kept.items()]
        content = ClassIterations(
            job_class=job_class, script=origin.script, given=origin.given, counted=tuple(last[-MOST_ARGUMENTS:])
        )
        self._files.write(content)

    def forget(self, job_class: str) -> int:
        """Remove the counts of a class; return their number.

        Raises:
            UnfitEnvironment: The file cannot be removed: no permission.
        """
        found = self._files.forget(job_class)
        return 0 if found is None else sum(len(each.counts) for each in found.counted)
