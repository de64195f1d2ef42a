"""Cells of Slurm's tables as numbers: durations, moments and trackable resources."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from math import inf

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
