"""A torch that cannot use a GPU is told before a job starts, with what would help."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from ecoshare.base.device import DeviceInfo
from ecoshare.devices import registry
from ecoshare.devices.torch_build import TorchBuild, check_cuda
from ecoshare.errors import UnfitEnvironment
from tests.driver import COMPILER, FakeDriver
from tests.driver.presets import H200, P100, V100, Preset
from tests.warm import ecoshare

KERNELS = "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120 compute_120"
NEW = TorchBuild("2.14.1+cu130", "13.0", "", KERNELS)
OLD = TorchBuild("2.14.1+cu126", "12.6", "", "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90")
PROCESSORS = TorchBuild("2.13.0+cpu", "", "", "")

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="the pretended driver is compiled with a C compiler")


def refused(
    build: TorchBuild, driver: str, cuda: tuple[int, int] | None, capability: tuple[int, int]
) -> UnfitEnvironment | None:
    gpu = DeviceInfo("cuda:0", "cuda", "nvidia", "Board", "GPU-0", 1, 1, driver=driver)
    try:
        check_cuda(build, replace(gpu, cuda=cuda, capability=capability))
    except UnfitEnvironment as error:
        return error
    return None


@pytest.mark.parametrize(
    ("build", "driver", "cuda", "words", "hint"),
    [
        (NEW, "580.95.05", (13, 0), None, ""),
        (NEW, "570.86.10", (12, 8), "runs CUDA 12.8 at most", "driver 580 or newer, or a build of torch for CUDA 12.6"),
        (OLD, "525.60.13", (12, 0), None, ""),  # an older driver runs newer programs of its major version
        (OLD, "580.95.05", (13, 0), None, ""),
        (OLD, "470.82.01", (11, 4), "built for CUDA 12.6", "driver 525 or newer, or a build of torch for CUDA 11.8"),
        (PROCESSORS, "580.95.05", (13, 0), "is built without CUDA", "--device cpu"),
        (NEW, "580.95.05", None, None, ""),
        (PROCESSORS, "580.95.05", None, None, ""),
    ],
)
def test_the_driver_must_run_what_torch_is_built_for(
    build: TorchBuild, driver: str, cuda: tuple[int, int] | None, words: str | None, hint: str
) -> None:
    error = refused(build, driver, cuda, (9, 0))
    if words is None:
        assert error is None
    else:
        assert error is not None and words in str(error) and hint in (error.hint or "")


@pytest.mark.parametrize(
    ("architectures", "capability", "fits"),
    [
        (KERNELS, (7, 0), False),
        (KERNELS, (7, 5), True),
        (KERNELS, (8, 9), True),  # kernels for 8.6 run on 8.9
        (KERNELS, (10, 3), True),
        (KERNELS, (12, 1), True),
        ("sm_90a", (9, 0), True),
        ("sm_90a", (9, 1), False),  # code for that one architecture alone
        ("compute_90", (10, 0), True),
        ("sm_100", (9, 0), False),
        ("", (3, 0), True),  # not told, so no reason
    ],
)
def test_there_must_be_kernels_for_the_gpu(architectures: str, capability: tuple[int, int], fits: bool) -> None:
    build = TorchBuild("2.14.1", "13.0", "", architectures)
    error = refused(build, "580.95.05", (13, 0), capability)
    assert (error is None) is fits
    if error is not None and capability < (7, 5):
        assert "compute capability 7.0" in str(error) and "cu126" in (error.hint or "")


@needs_compiler
@pytest.mark.parametrize(("preset", "capability"), [(P100, (6, 0)), (V100, (7, 0)), (H200, (9, 0))])
def test_the_driver_is_asked(preset: Preset, capability: tuple[int, int], tmp_path: Path) -> None:
    with FakeDriver(tmp_path, [preset], version="580.95.05"):
        (gpu,) = registry.visible_gpus()
        assert (gpu.cuda, gpu.capability) == ((13, 0), capability)
        registry.check_torch([gpu], OLD)
        if capability < (7, 5):
            with pytest.raises(UnfitEnvironment, match="has no kernels"):
                registry.check_torch([gpu], NEW)


@needs_compiler
def test_no_job_starts_if_the_driver_is_too_old(tmp_path: Path) -> None:
    """Else the script would go on without a GPU: all jobs at once, with the joules of an idle GPU."""
    driver = FakeDriver(tmp_path, [H200], version="470.82.01")
    (tmp_path / "train.py").write_text("open('ran', 'w').close()")
    line = ["run", "train.py", "--device", "cuda", "--no-profiles", "--control", "off", "--runs", "runs"]
    done = ecoshare(*line, cwd=tmp_path, environment={**os.environ, **driver.environment})
    assert done.returncode == 4
    assert "driver 470.82.01 of cuda:0 (NVIDIA H200) runs CUDA 11.4 at most" in done.stderr
    assert "hint: install driver 525 or newer, or a build of torch for CUDA 11.8" in done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "ran").exists()
