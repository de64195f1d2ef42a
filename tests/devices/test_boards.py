"""Boards that differ from those of a data centre: what they do not tell, and how their clocks move, is no mistake."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.devices import knob_survey, registry
from ecoshare.devices.control.state_folder import StateFolder
from ecoshare.devices.knob import GPU_CLOCK, MEMORY_CLOCK, Cause, KnobFault
from ecoshare.devices.nvidia import nvidia_knobs
from ecoshare.devices.nvidia.nvidia_knobs import GpuKnobs
from tests.driver import COMPILER, FakeDriver, presets
from tests.driver.faults import Fault

pytestmark = pytest.mark.skipif(COMPILER is None, reason="the fake driver is compiled, and there is no C compiler")

BOARDS = st.sampled_from(presets.ALL)
ANSWERS = st.sampled_from(
    [Fault.NOT_SUPPORTED, Fault.NO_PERMISSION, Fault.UNKNOWN, Fault.TIMEOUT, Fault.GPU_LOST, Fault.RESET_REQUIRED]
)
QUESTIONS = st.sampled_from(
    [
        "nvmlDeviceGetMemoryInfo*",
        "nvmlDeviceGetComputeMode",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetPower*",
        "nvmlDeviceGetSupported*Clocks",
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetCurrentClocks*",
        "nvmlDeviceGetCompute*Processes*",
        "nvmlDeviceGetCudaComputeCapability",
        "nvmlDeviceGetArchitecture",
        "nvmlDeviceGetName",
        "nvmlDeviceGetTemperature*",
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetTotalEnergyConsumption",
        "nvmlDeviceGetTopology*",
        "nvmlDeviceGetNvLink*",
        "nvmlDeviceGetPersistenceMode",
    ]
)
_number = itertools.count()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("boards")


@contextlib.contextmanager
def machine(folder: Path, *boards: presets.Preset) -> Iterator[FakeDriver]:
    """Context manager: the driver of this process, with these boards."""
    (own := folder / str(next(_number))).mkdir()
    with FakeDriver(own, boards, virtual=True) as driver:
        yield driver


@pytest.mark.slow
@given(boards=st.lists(BOARDS, min_size=1, max_size=3), faults=st.lists(st.tuples(ANSWERS, QUESTIONS), max_size=4))
def test_what_a_board_does_not_tell_costs_at_most_this_board(
    folder: Path, boards: list[presets.Preset], faults: list[tuple[Fault, str]]
) -> None:
    """The first board has the faults; the others are surveyed as if it were not there."""
    with machine(folder, *boards) as driver:
        for fault, functions in faults:
            driver.gpu(0).fault(fault, functions=functions)
        others = {driver.gpu(index).uuid for index in range(1, len(boards))}
        seen = {gpu.uuid: gpu for gpu in registry.visible_gpus()}
        assert others <= seen.keys() and not any(seen[uuid].unfit for uuid in others)
        found = {each.key: each for each in knob_survey.survey(StateFolder(folder, folder))}
        assert others <= found.keys() and not any(found[uuid].trouble for uuid in others)


@pytest.mark.parametrize(
    "board",
    [
        pytest.param(board, id=board.name, marks=pytest.mark.slow if number % 3 else ())
        for number, board in enumerate(presets.ALL)
    ],
)
@given(
    compute=st.floats(0.05, 1.0),
    memory=st.floats(0.0, 1.0),
    limit=st.floats(0.0, 1.0),
    others=st.booleans(),
)
def test_no_board_looks_locked_that_nothing_has_locked(
    folder: Path, board: presets.Preset, compute: float, memory: float, limit: float, others: bool
) -> None:
    """At any load, and under any power limit. Else no search of its clocks would begin."""
    with machine(folder, board) as driver, pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvidia_knobs, "time", SimpleNamespace(sleep=driver.advance))
        gpu = driver.gpu(0)
        gpu.load(1, compute=compute, memory=memory)
        if others:
            gpu.load(2, compute=compute / 2)
        lowest_w, _, highest_w = board.limits_w
        gpu.limit_power(lowest_w + limit * (highest_w - lowest_w))
        knobs = GpuKnobs(gpu.uuid)
        try:
            for knob in {each.spec.name for each in knobs.knobs} & {GPU_CLOCK, MEMORY_CLOCK}:
                try:
                    knobs.looks_unlocked(knob)
                except KnobFault as fault:
                    assert fault.cause is Cause.UNTOLD, str(fault)
        finally:
            knobs.close()
