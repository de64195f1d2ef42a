"""Devices that a run has alone, and others."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from ecoshare.base.device import DeviceInfo
from ecoshare.devices import occupancy, registry
from ecoshare.errors import UnfitEnvironment
from ecoshare.runtime.measuring.device_claim import claim
from ecoshare.runtime.measuring.run_claims import ClaimRequest, claim_devices

ALL = str(os.cpu_count())
CPU = registry.find("cpu")
GPU = replace(CPU, name="cuda:0", kind="cuda", model="NVIDIA H100")
JOB = {"SLURM_JOB_ID": "7"}
WISH = ClaimRequest(may_set=True, searches=False, sets_known=True, with_processors=True, limits_power=False)


@pytest.mark.parametrize(
    ("device", "environment", "reason"),
    [
        (CPU, {}, ""),
        (GPU, {}, ""),
        (CPU, {**JOB, "SLURM_CPUS_ON_NODE": ALL}, ""),
        (CPU, JOB, f"Slurm has allocated 0 of {ALL} processors"),
        (GPU, {**JOB, "SLURM_JOB_GPUS": "0,1"}, ""),
        (GPU, {**JOB, "SLURM_STEP_GPUS": "3"}, ""),
        (GPU, {**JOB, "SLURM_JOB_GPUS": ""}, "Slurm has allocated no whole GPU"),
        (
            GPU,
            {**JOB, "SLURM_JOB_GPUS": "0", "SLURM_GPU_FREQ": "low"},
            "Slurm sets the clocks of this allocation (--gpu-freq=low)",
        ),
    ],
)
def test_devices_are_set_only_as_slurm_has_allocated_them(
    device: DeviceInfo, environment: dict[str, str], reason: str
) -> None:
    assert occupancy.why_not_allocated([device], environment) == reason


def test_processors_of_a_node_that_is_shared_are_never_set() -> None:
    assert occupancy.why_not_alone([CPU], shares_processors=True) == "other work of the cluster may use the processors"


def test_a_run_by_hand_in_an_allocation_is_held_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it failed, `ecoshare run` under `salloc` could set the clocks of GPUs that belong to other jobs."""
    for name, value in {**JOB, "SLURM_CPUS_ON_NODE": "0"}.items():
        monkeypatch.setenv(name, value)
    claims, report = claim_devices([CPU], WISH)
    assert not claims.settings and report.refusal == f"Slurm has allocated 0 of {ALL} processors"
    with pytest.raises(UnfitEnvironment, match="Slurm has allocated 0 of"):
        claim_devices([CPU], replace(WISH, limits_power=True))
    with pytest.raises(UnfitEnvironment, match="Slurm has allocated 0 of"):
        claim(CPU, exact=True)
