"""Whether this build of torch can use a GPU. A build is made for one version of CUDA, and has kernels for some GPUs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ecoshare.base.device import DeviceInfo
from ecoshare.errors import UnfitEnvironment


@dataclass(frozen=True, slots=True)
class TorchBuild:
    """Build of torch.

    Attributes:
        version: Version, such as `2.13.0+cu130`.
        cuda: Version of CUDA for which it was made, such as `13.0`; empty for a build without CUDA.
        hip: Version of HIP for which it was made; empty for a build without HIP.
        architectures: GPUs for which it has kernels, separated by spaces: `sm_90` for those of compute capability 9.0,
            `compute_90` for code that the driver compiles for these and newer ones. Empty if it does not tell.
    """

    version: str
    cuda: str
    hip: str
    architectures: str


_OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}
"""First branch of the driver that runs programs made for a major version of CUDA (NVIDIA, "CUDA Compatibility")."""

_BUILD_FOR_OLD = {11: "11.8 (cu118)", 12: "12.6 (cu126)"}
"""Builds of torch for the major versions of CUDA before the present one."""

_OLD_BUILD = "12.6 (cu126)"
"""Build that has kernels for all GPUs from Maxwell to Hopper; later ones leave out those before Turing."""

_TURING = (7, 5)


def check_cuda(build: TorchBuild, gpu: DeviceInfo) -> None:
    """Check that torch can use an NVIDIA GPU. A fact that is not known is no reason against it.

    A script with a fall-back would go to the processors, and take no turn. Within a major version of CUDA, an older
    driver runs newer programs.

    Args:
        build: The build of torch that jobs load.
        gpu: The GPU that the driver shows.

    Raises:
        UnfitEnvironment: The build is made without CUDA, for a newer CUDA than that of the driver, or without kernels
            for this GPU.
    """
    torch, which = f"torch {build.version}", f"{gpu.name} ({gpu.model})"
    if not build.cuda:
        if gpu.cuda is None:
            return
        wanted = _BUILD_FOR_OLD.get(gpu.cuda[0], "")
        raise UnfitEnvironment(
            f"{torch} is built without CUDA, so no job could use {which}",
            f"install a build of torch for CUDA{wanted and f' {wanted}'}, or run with `--device cpu`",
        )
    major = int(build.cuda.partition(".")[0])
    if gpu.cuda is not None and major > gpu.cuda[0]:
        most = ".".join(map(str, gpu.cuda))
        raise UnfitEnvironment(
            f"{torch} is built for CUDA {build.cuda}, and driver {gpu.driver} of {which} runs CUDA {most} at most",
            _remedy(major, gpu.cuda[0]),
        )
    if gpu.capability is not None and not _has_kernels(build.architectures, gpu.capability):
        found = ".".join(map(str, gpu.capability))
        older = f"install a build of torch for CUDA {_OLD_BUILD}"
        raise UnfitEnvironment(
            f"{torch} has no kernels for {which}, of compute capability {found}: it has {build.architectures}",
            older if gpu.capability < _TURING else "install a newer torch",
        )


def _remedy(built: int, runs: int) -> str:
    remedies = [f"driver {_OLDEST_DRIVER[built]} or newer"] if built in _OLDEST_DRIVER else ["a newer driver"]
    if runs in _BUILD_FOR_OLD:
        remedies.append(f"a build of torch for CUDA {_BUILD_FOR_OLD[runs]}")
    return f"install {', or '.join(remedies)}"


def _has_kernels(architectures: str, capability: tuple[int, int]) -> bool:
    """Whether there is code for a GPU: of its major version and no later minor one, or to be compiled by the driver."""
    found = re.findall(r"\b(sm|compute)_(\d+)(\d)([a-z]?)\b", architectures)
    return not found or any(
        (int(major), int(minor)) == capability
        or (kind == "compute" and not only and (int(major), int(minor)) <= capability)
        or (kind == "sm" and not only and int(major) == capability[0] and int(minor) <= capability[1])
        for kind, major, minor, only in found
    )
