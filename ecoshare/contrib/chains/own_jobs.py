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
from datetime import UTC, datetime
from math import inf

from ecoshare.errors import UnfitEnvironment

_DURATION = re.compile(r"(?:(?P<days>\d+)-)?(?:(?:(?P<hours>\d+):)?(?P<minutes>\d+):)?(?P<seconds>\d+)(?:\.\d+)?")
_UNLIMITED = {"UNLIMITED", "PARTITION_LIMIT", "NOT_SET", "INVALID"}
_UNKNOWN = {"", "UNKNOWN", "NONE", "N/A"}

GPU = "gres/gpu"
"""Name of GPUs among the trackable resources."""


def duration_s(text: str) -> float | None:
    """Seconds of a duration such as `1-00:00:00`, `12:00:00` or `30:00`; infinite without a limit, None if it is none.

    `INVALID`, which squeue prints for the time left of a job that waits, counts as no limit.
    """
    if text.upper() in _UNLIMITED:
        return inf
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(match[name] or 0) for name in ("days", "hours", "minutes", "seconds"))
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def is_unknown(text: str) -> bool:
    """Whether a moment is not known, since it has not come or never came."""
    return text.upper() in _UNKNOWN


def moment_s(text: str) -> float | None:
    """Seconds since 1970 of `2026-01-31T12:00:00` or of whole seconds (`SLURM_TIME_FORMAT=%s`); None if it is none.

    A moment without a zone is local time of the cluster, and is read as if its zone were UTC: only differences, hours
    and weekdays count.
    """
    if text.isdecimal():
        return float(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def resource_count(tres: str, resource: str = GPU) -> int:
    """Number of a resource in a text such as `cpu=8,mem=32G,node=1,gres/gpu=4,gres/gpu:a100=4`; 0 if there is none.

    The sum over the kinds of a resource counts if the resource has no entry of its own.
    """
    own, kinds = 0, 0
    for entry in tres.split(","):
        name, _, count = entry.strip().partition("=")
        if count.isdecimal():
            own += int(count) if name == resource else 0
            kinds += int(count) if name.startswith(f"{resource}:") else 0
    return own or kinds


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


def in_queue(jobs: Sequence[OwnJob], job: int | None) -> OwnJob | None:
    """Job with an ID, if squeue lists it."""
    return next((each for each in jobs if each.job == job), None)
