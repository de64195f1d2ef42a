"""Devices of a run that is resumed: those that it had, without the ones that have failed and are gone."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ecoshare.common.plural import counted
from ecoshare.devices import registry
from ecoshare.devices.choice import find_all
from ecoshare.errors import UnfitEnvironment, UsageError
from ecoshare.values.device import LOCAL, PROCESSORS, DeviceInfo


def names_again(before: Sequence[dict[str, Any]]) -> str | None:
    """Names of the devices of each machine of an earlier session, if that had several; None for all GPUs of each."""
    if before[0]["kind"] != PROCESSORS:
        return None
    parts = sum(each.get("node") == before[0].get("node") for each in before)
    return f"{PROCESSORS}/{parts}" if parts > 1 else PROCESSORS


def found_again(run: Path, before: Sequence[dict[str, Any]], failed: Container[str] = ()) -> tuple[DeviceInfo, ...]:
    """The devices of an earlier session, as they are now.

    Args:
        run: The run folder.
        before: The devices in the plan of that session.
        failed: Names of the devices that failed in it. If one of them is gone, the run goes on without it.

    Raises:
        UsageError: A device is another one now.
        UnfitEnvironment: A device is gone.
    """
    if any(each.get("node", LOCAL) != LOCAL for each in before):
        raise UsageError(
            f"{run} ran on several machines", "give `--on ray` again, with the address of the cluster, or `--on slurm`"
        )
    if any(each["name"] in failed for each in before):
        return _without_lost(run, before, failed)
    parts = sum(bool(each.get("processors")) for each in before)
    devices = find_all(f"cpu/{parts}" if parts else ",".join(each["name"] for each in before))
    for then, now in zip(before, devices, strict=True):
        if now.uuid != then["uuid"]:
            raise UsageError(
                f"{run} ran on {then['uuid']}, and {now.name} is {now.uuid} now", "set CUDA_VISIBLE_DEVICES as it was"
            )
        if now.name != then["name"]:
            raise UsageError(f"{run} ran on {then['name']} alone", "start it again")
        if now.cores != then["cores"] and now.processors:
            raise UsageError(
                f"{run} ran on {then['name']} of {counted(then['cores'], 'processor')}, and it has {now.cores} now",
                "give it the same processors, as with `taskset`",
            )
    return devices


def _without_lost(run: Path, before: Sequence[dict[str, Any]], failed: Container[str]) -> tuple[DeviceInfo, ...]:
    """The GPUs of an earlier session that are there, with the names that they had in it.

    A lost GPU changes the numbers of those behind it, so that they are known by their UUIDs. A GPU that has failed and
    is there was reset, or its owner wants it to be tried again.
    """
    visible = {each.uuid: each for each in registry.visible_gpus()}
    gone = [each["name"] for each in before if each["uuid"] not in visible]
    if missing := [name for name in gone if name not in failed]:
        raise UnfitEnvironment(f"{run} ran on {missing[0]}, which is not there", "see `ecoshare doctor`")
    found = [replace(visible[each["uuid"]], name=each["name"]) for each in before if each["uuid"] in visible]
    if not found:
        raise UnfitEnvironment(
            f"{run} ran on {', '.join(gone)}, which failed and did not come back",
            "reset the GPU (`nvidia-smi -r`) or restart the machine; on another GPU, run the job file anew",
        )
    if unfit := next((each for each in found if each.unfit), None):
        raise UnfitEnvironment(f"{unfit.name} {unfit.unfit}")
    return tuple(found)
