"""Slurm jobs of a chain, from a listing of the user's own jobs.

::

    squeue --me --all --noheader --Format=FORMAT

A job belongs to the chain in the folder of its batch script, and the script's name has the number of its allocation. So
a job is found again even if the process that submitted it was killed before it could write the ID down.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from ecoshare.chains.slurm_text import duration_s, resource_count
from ecoshare.errors import UnfitEnvironment

FORMAT = "JobID:30|,State:30|,TimeLeft:30|,TimeLimit:30|,Reason:60|,tres-alloc:255|,Command:4096"
"""Value of squeue's option `--Format`."""

_SCRIPT = re.compile(r"(?P<folder>.*)/allocation-(?P<number>\d+)\.sh")

NEVER = ("PartitionTimeLimit", "BadConstraints", "InvalidAccount")
"""Reasons of a job that waits and would never start as it is.

A limit on the number of jobs passes when another one ends. `PartitionNodeLimit` may mean a machine that is down.
"""


def script_name(number: int) -> str:
    """Name of the batch script of an allocation."""
    return f"allocation-{number}.sh"


@dataclass(frozen=True, slots=True)
class OwnJob:
    """Slurm job of a chain.

    Attributes:
        job: ID of the job.
        number: Number of its allocation, by the name of its script.
        state: State, such as `PENDING`.
        left_s: Time (s) until its limit; its limit while it waits.
        limit_s: Time limit (s).
        reason: Reason why it waits.
        tres: Trackable resources, as Slurm writes them.
    """

    job: int
    number: int
    state: str
    left_s: float
    limit_s: float
    reason: str
    tres: str

    @property
    def waits(self) -> bool:
        """Whether it has not started, or will start again."""
        return self.state in ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT")

    @property
    def never_starts(self) -> bool:
        """Whether the job can never start as it is."""
        return self.waits and self.reason in NEVER

    def count(self, resource: str) -> int:
        """Number of a resource that it has or asks for."""
        return resource_count(self.tres, resource)


def read(listing: str, folder: str) -> list[OwnJob]:
    """Jobs of the chain in a folder.

    Args:
        listing: Output of squeue.
        folder: Absolute path of the chain.

    Raises:
        UnfitEnvironment: A line is in another form.
    """
    found = []
    for line in listing.splitlines():
        cells = [cell.strip() for cell in line.split("|", 6)]
        script = _SCRIPT.fullmatch(cells[-1])
        if len(cells) != 7 or script is None or script["folder"] != folder:
            continue
        job, state, left, limit, reason, tres, _ = cells
        if not job.isdecimal():
            raise UnfitEnvironment(f"squeue names no job: {job!r}")
        limit_s = duration_s(limit)
        left_s = duration_s(left)
        found.append(
            OwnJob(
                int(job),
                int(script["number"]),
                state,
                inf if left_s is None else left_s,
                inf if limit_s is None else limit_s,
                reason,
                tres,
            )
        )
    return found


def fields(line: str) -> dict[str, str]:
    """Fields of a line of `scontrol --oneliner show`, by name."""
    words = (word.partition("=") for word in line.split())
    return {name: value for name, equals, value in words if equals}


def in_queue(jobs: Sequence[OwnJob], job: int | None) -> OwnJob | None:
    """Job with an ID, if squeue lists it."""
    return next((each for each in jobs if each.job == job), None)
