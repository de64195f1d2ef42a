"""NVIDIA GPUs: NVML finds and reads them, zeus sets them, MPS lets processes share a context."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from ecoshare.base.device import DeviceInfo
from ecoshare.devices import meter
from ecoshare.devices.memory_transfer import CudaMemoryTransfer
from ecoshare.devices.meter import PowerModel
from ecoshare.devices.nvidia import cuda_checkpoint, mps, nvml
from ecoshare.devices.nvidia.nvidia_knobs import GpuKnobs
from ecoshare.devices.nvidia.nvml import NvmlDevice, NvmlGpu
from ecoshare.devices.torch_build import TorchBuild, check_cuda
from ecoshare.devices.vendor import ContextSharing
from ecoshare.errors import UnfitEnvironment

SHARE = 0.95
"""Share of the free memory that a run may use. The rest is for the driver, which needs more with each context."""


class Nvidia:
    """Vendor of NVIDIA GPUs."""

    name, kind, precedence = "nvidia", "cuda", 0
    modules = ("httpx", "pynvml", "zeus.device.gpu.nvidia", "zeus.utils.zeusd")

    def visible(self) -> list[DeviceInfo]:
        """Visible GPUs in the order in which CUDA would count them in this environment.

        `CUDA_VISIBLE_DEVICES` takes numbers, UUIDs and beginnings of UUIDs. CUDA ignores a name that fits no GPU and
        all names after it, and so does this function. Numbers follow the bus order, which is the driver's
        (`CUDA_DEVICE_ORDER=PCI_BUS_ID`).

        Raises:
            UnfitEnvironment: The driver fails, or the variable names a MIG instance. Such a part of a GPU has no energy
                counter and no clocks of its own.
        """
        return [_info(place, gpu) for place, gpu in enumerate(_visible(nvml.gpus()))]

    def environment(self, devices: Sequence[DeviceInfo]) -> dict[str, str | None]:
        """Variables that name the GPUs by their UUIDs, which no order of GPUs changes."""
        return {"CUDA_VISIBLE_DEVICES": ",".join(each.uuid or "" for each in devices)}

    def nearness(self, devices: Sequence[DeviceInfo]) -> dict[tuple[str, str], int]:
        """Nearness by the number of NVLinks, else by the levels of the PCIe topology; without pairs that NVML skips."""
        found = nvml.gpu_nearness([str(each.uuid) for each in devices])
        return {(devices[one].name, devices[other].name): near for (one, other), near in found.items()}

    def share_contexts(
        self, devices: Sequence[DeviceInfo], lanes: int, places: int, folder: Path, environment: Mapping[str, str]
    ) -> ContextSharing:
        """Choose MPS if several processes run on a GPU at once and MPS is available. One daemon serves all GPUs.

        A daemon that already runs is always used. Otherwise, one lane needs no MPS: its jobs never run at once. Each
        job has its own context, so a crash stays with its job. Jobs that are more than MPS takes get none.

        Raises:
            UnfitEnvironment: A GPU is in compute mode exclusive_process, and MPS is not available, or a daemon that
                already runs does not take so many jobs.
        """
        exclusive = [each for each in devices if each.compute_mode == "exclusive_process"]
        too_many = next(filter(None, (_too_many(each, lanes * places) for each in devices)), "")
        if (found := mps.running()) is not None:
            if too_many:
                raise UnfitEnvironment(
                    f"the MPS daemon at {found.pipes} gets every job: {too_many}",
                    "give --lanes or --jobs-per-lane a smaller number, or end the daemon",
                )
            return ContextSharing(f"MPS daemon found at {found.pipes}", True, found.environment, mps.BEHIND)
        if lanes == 1 and not exclusive:
            return ContextSharing("one lane: jobs take turns, each with a context of its own")
        try:
            if too_many:
                raise UnfitEnvironment(too_many, "give --lanes or --jobs-per-lane a smaller number")
            daemon = mps.start(folder, [str(each.uuid) for each in devices], dict(environment))
        except UnfitEnvironment as error:
            if exclusive:
                raise UnfitEnvironment(
                    f"{exclusive[0].name} is in compute mode exclusive_process, and {error}",
                    "ecoshare never changes the compute mode; its administrator can",
                ) from error
            return ContextSharing(f"lanes alternate by the driver's time slices: {error}")
        end = partial(mps.end, daemon)
        return ContextSharing("MPS daemon started for this run", True, daemon.environment, mps.BEHIND, end)

    def check_torch(self, devices: Sequence[DeviceInfo], build: TorchBuild) -> None:
        """Compare torch with the driver and the compute capability of each GPU.

        Raises:
            UnfitEnvironment: It does not fit one of them.
        """
        for each in devices:
            check_cuda(build, each)

    def memory_transfer(self, device: DeviceInfo, environment: Mapping[str, str]) -> CudaMemoryTransfer:
        """Transfer by the driver's checkpoint calls.

        Raises:
            UnfitEnvironment: The driver is older than 570, the GPU is cut into MIG instances, or an MPS daemon answers
                to this process. A daemon that the run has started for itself is not seen here.
        """
        hint = "run without `--host-memory`"
        if device.unfit:
            raise UnfitEnvironment(f"{device.name} {device.unfit}", hint)
        if (daemon := mps.running()) is not None:
            raise UnfitEnvironment(
                f"jobs are clients of the MPS daemon at {daemon.pipes}, and the driver parks no clients of MPS",
                f"end the daemon (`echo quit | {mps.CONTROL}`), or {hint}",
            )
        if reason := cuda_checkpoint.why_not():
            raise UnfitEnvironment(reason, f"update the driver, or {hint}")
        return CudaMemoryTransfer(environment)

    def power_model(self, device: DeviceInfo) -> PowerModel | None:
        """Power model from the present power draw and the default power limit; None if the board lacks either.

        Raises:
            UnfitEnvironment: There is no driver, or no such GPU.
        """
        idle_w = nvml.power_w(str(device.uuid))
        if idle_w is None or device.power_limit_w is None:
            return None
        return meter.gpu_power_model(idle_w, device.power_limit_w)

    def open_knobs(self, key: str) -> GpuKnobs:
        """Open the knobs of the GPU with this UUID.

        Raises:
            UnfitEnvironment: There is no driver, there is no such GPU, or the driver fails.
        """
        return GpuKnobs(key)

    def open(self, device: DeviceInfo) -> NvmlDevice:
        """Open a GPU to read it.

        Raises:
            UnfitEnvironment: There is no driver, or no such GPU.
        """
        return NvmlDevice(str(device.uuid))


VENDOR = Nvidia()


def _visible(found: list[NvmlGpu]) -> list[NvmlGpu]:
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    if names is None:
        return found
    visible: list[NvmlGpu] = []
    for name in names.split(","):
        if name.strip().startswith("MIG-"):
            raise UnfitEnvironment(
                f"CUDA_VISIBLE_DEVICES names a MIG instance ({name.strip()}), and ecoshare shares whole GPUs",
                "name the GPU, or use `--device cpu` without it",
            )
        fits = [gpu for gpu in found if name.strip() == str(gpu.index) or _starts(gpu.uuid, name.strip())]
        if len(fits) != 1:
            break
        visible += fits
    return visible


def _starts(uuid: str, name: str) -> bool:
    return name.startswith("GPU-") and uuid.startswith(name)


def _info(place: int, gpu: NvmlGpu) -> DeviceInfo:
    return DeviceInfo(
        name=f"cuda:{place}",
        kind=Nvidia.kind,
        model=gpu.model,
        uuid=gpu.uuid,
        memory_bytes=int(gpu.free_bytes * SHARE),
        cores=len(os.sched_getaffinity(0)),
        power_limit_w=gpu.default_limit_w,
        driver=gpu.driver,
        cuda=gpu.cuda,
        capability=gpu.capability,
        compute_mode=gpu.compute_mode,
        vendor=Nvidia.name,
        total_bytes=gpu.memory_bytes,
        free_bytes=gpu.free_bytes,
        unfit=gpu.unfit,
    )


def _too_many(device: DeviceInfo, processes: int) -> str:
    """Why MPS does not take so many processes on a GPU, in words; empty if it does."""
    most = mps.most_clients(device.capability)
    return f"MPS takes {most} processes on {device.name}, and there may be {processes}" if processes > most else ""
