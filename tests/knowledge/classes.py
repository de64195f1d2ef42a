"""Job classes and profiles, built by hand."""

from __future__ import annotations

import hashlib
from typing import Any

from ecoshare.knowledge.profile import IterationTimes, MemoryProfile, Profile, ProfileOrigin
from tests.reporting.profiles import PROFILE

NAME = "train-0123456789ab"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def origin(**changes: Any) -> ProfileOrigin:
    fields: dict[str, Any] = {
        "script": "/home/a/project/train.py",
        "sources": {"train.py": digest("train"), "model.py": digest("model")},
        "args": ("--batch", "32", "--lr", "0.1"),
        "device_model": "A GPU",
        "torch": "2.13.0",
    }
    return ProfileOrigin(**{**fields, **changes})


def profile(job_class: str = NAME, made_utc: str = "2026-01-01T00:00:00Z", **changes: Any) -> Profile:
    """Profile of that class; `changes` are to its origin."""
    return PROFILE.model_copy(
        update={
            "job_class": job_class,
            "made_utc": made_utc,
            "origin": origin(**changes),
            "memory": MemoryProfile(persistent_bytes=1, ephemeral_bytes=2, model_bytes=None, framework_bytes=None),
            "train": IterationTimes(count=3, mean_s=0.1, standard_error_s=0.01, median_s=0.1, p95_s=0.2),
        }
    )
