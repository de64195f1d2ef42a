"""Processors of a node that its run has alone, and others."""

from __future__ import annotations

import os

import pytest

from ecoshare.cluster.allocation import why_not_alone
from ecoshare.devices import registry

ALL = str(os.cpu_count())


@pytest.mark.parametrize(
    ("shares", "environment", "reason"),
    [
        (False, {}, ""),
        (True, {}, "other work of the cluster may use the processors"),
        (False, {"SLURM_JOB_ID": "7", "SLURM_CPUS_ON_NODE": ALL}, ""),
        (False, {"SLURM_JOB_ID": "7"}, f"Slurm has allocated 0 of {ALL} processors"),
    ],
)
def test_processors_are_set_only_where_no_other_work_has_any(
    shares: bool, environment: dict[str, str], reason: str
) -> None:
    assert why_not_alone([registry.find("cpu")], shares, environment) == reason
