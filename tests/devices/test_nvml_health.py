"""Health of GPUs, by the real nvidia-ml-py on the fake driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from ecoshare.devices.nvidia import nvml
from ecoshare.devices.nvidia.nvml import NvmlDevice
from ecoshare.devices.vendor import DeviceHealth
from ecoshare.errors import UnfitEnvironment
from tests.driver import COMPILER, FakeDriver, Fault, presets

pytestmark = pytest.mark.skipif(COMPILER is None, reason="the fake driver is compiled, and there is no C compiler")


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[FakeDriver]:
    with FakeDriver(tmp_path, [presets.H200, presets.A4000], virtual=True) as driver:
        driver.gpu(0).ecc_errors(3)
        yield driver


@pytest.fixture
def gpu(driver: FakeDriver) -> Iterator[NvmlDevice]:
    gpu = NvmlDevice(driver.gpu(0).uuid)
    yield gpu
    gpu.close()


def test_a_gpu_that_works_is_healthy_with_the_errors_that_it_had(driver: FakeDriver, gpu: NvmlDevice) -> None:
    driver.gpu(0).temperature(presets.SHUTDOWN_C - 1)
    driver.gpu(0).ceiling(600)  # a slowdown
    assert gpu.health() == DeviceHealth()


@pytest.mark.parametrize(
    ("fault", "said"),
    [(Fault.GPU_LOST, "the driver says: GPU is lost"), (Fault.RESET_REQUIRED, "the driver says: GPU requires restart")],
)
def test_a_lost_gpu_has_failed(driver: FakeDriver, gpu: NvmlDevice, fault: Fault, said: str) -> None:
    driver.gpu(1).fault(fault)
    assert gpu.health() == DeviceHealth(), "another GPU"
    driver.gpu(0).fault(fault)
    assert gpu.health() == DeviceHealth(said)


def test_a_gpu_that_the_driver_no_longer_finds_has_failed(driver: FakeDriver, gpu: NvmlDevice) -> None:
    driver.gpu(0).fault(Fault.NOT_FOUND, functions="nvmlDeviceGetHandleByUUID")
    assert gpu.health() == DeviceHealth("the driver does not show it any more")


@pytest.mark.parametrize("fault", [Fault.TIMEOUT, Fault.UNKNOWN, Fault.NOT_SUPPORTED])
def test_no_answer_is_no_failure(driver: FakeDriver, gpu: NvmlDevice, fault: Fault) -> None:
    driver.gpu(0).fault(fault)
    assert gpu.health() == DeviceHealth()


def test_new_uncorrected_memory_errors_are_a_failure_and_rows_to_remap_a_note(
    driver: FakeDriver, gpu: NvmlDevice
) -> None:
    driver.gpu(0).ecc_errors(3, remapping=1)
    assert gpu.health() == DeviceHealth(note="a row of its memory is remapped when the GPU is reset next")
    driver.gpu(0).ecc_errors(3, remapping=2)
    assert gpu.health().note == "a row of its memory could not be remapped: the GPU should be replaced"
    driver.gpu(0).ecc_errors(5)
    assert gpu.health() == DeviceHealth("2 uncorrected memory errors (ECC)")


def test_the_temperature_of_the_shutdown_is_a_failure_on_a_board_without_ecc_too(driver: FakeDriver) -> None:
    gpu = NvmlDevice(driver.gpu(1).uuid)
    driver.gpu(1).ecc_errors(9)
    assert gpu.health() == DeviceHealth()
    driver.gpu(1).temperature(presets.SHUTDOWN_C)
    assert gpu.health() == DeviceHealth("it is at 95 °C, and turns itself off at 95 °C")
    gpu.close()


def test_the_other_gpus_are_found_beside_a_lost_one(driver: FakeDriver) -> None:
    driver.gpu(0).fault(Fault.GPU_LOST)
    assert [each.uuid for each in nvml.gpus()] == [driver.gpu(1).uuid]


def test_a_lookup_that_fails_for_the_loss_of_another_gpu_is_no_failure(driver: FakeDriver, gpu: NvmlDevice) -> None:
    """NVML: the look-up by a UUID ends with "GPU is lost" if any GPU has fallen off the bus."""
    driver.gpu(1).fault(Fault.GPU_LOST)
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        pynvml.nvmlDeviceGetHandleByUUID(driver.gpu(0).uuid)
    assert gpu.health() == DeviceHealth()
    driver.gpu(0).fault(Fault.GPU_LOST)
    assert gpu.health() == DeviceHealth("the driver says: GPU is lost")


@pytest.mark.parametrize("lost", [0, 1])
def test_a_gpu_is_opened_beside_a_lost_one(driver: FakeDriver, lost: int) -> None:
    driver.gpu(lost).fault(Fault.GPU_LOST)
    opened = NvmlDevice(driver.gpu(1 - lost).uuid)
    assert opened.health() == DeviceHealth() and opened.state().power_w is not None
    assert nvml.power_w(driver.gpu(1 - lost).uuid) is not None
    opened.close()
    with pytest.raises(UnfitEnvironment, match="GPU is lost"):
        NvmlDevice(driver.gpu(lost).uuid)
    with pytest.raises(UnfitEnvironment):
        NvmlDevice("GPU-of-another-machine")


def test_a_query_that_finds_nothing_is_no_failure(driver: FakeDriver, gpu: NvmlDevice) -> None:
    driver.gpu(0).fault(Fault.NOT_FOUND)
    assert gpu.health() == DeviceHealth()
