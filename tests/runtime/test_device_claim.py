"""Settings of a claimed device, through the real pynvml and zeus on the fake driver."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from types import SimpleNamespace

import pytest

from ecoshare.base.class_profile import POWER_LIMIT
from ecoshare.devices import registry
from ecoshare.devices.knob import GPU_CLOCK, Reading
from ecoshare.devices.nvidia import nvidia_knobs
from ecoshare.devices.zeus_knobs import ZeusPowerLimit
from ecoshare.errors import UnfitEnvironment
from ecoshare.runtime.measuring.device_claim import AppliedSettings, claim
from ecoshare.runtime.nodes.held_machines import FoundDevices
from ecoshare.runtime.planning.planned_limits import planned_budget
from tests.devices.claims import FOUND_W, limited
from tests.driver import FakeDriver, presets
from tests.runtime.machine import MARKS
from tests.virtual.clock import VirtualClock
from tests.virtual.run import InLoop

STEP_W, LEAST_W = 5.0, 200.0
pytestmark = [each for each in MARKS if each.name != "slow"]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AppliedSettings]:
    """First GPU, claimed for its power limit, which it rounds up to a multiple of `STEP_W`."""
    write = ZeusPowerLimit.write

    def rounds_up(knob: ZeusPowerLimit, values: Reading | None) -> None:
        write(knob, None if values is None else tuple(STEP_W * ceil(each / STEP_W) for each in values))

    monkeypatch.setattr(ZeusPowerLimit, "write", rounds_up)
    with found_at(FOUND_W, tmp_path, monkeypatch), claimed_limit() as made:
        yield made


@contextlib.contextmanager
def found_at(limit_w: float, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Context manager: the driver of this process has one GPU, which is found with this power limit."""
    monkeypatch.setenv("ECOSHARE_STATE", str(folder / "state"))
    with FakeDriver(folder, [presets.H200], virtual=True) as driver:
        limited(driver, limit_w)
        yield


@contextlib.contextmanager
def claimed_limit() -> Iterator[AppliedSettings]:
    """Context manager: the GPU, claimed as a power budget claims it."""
    made = claim(registry.visible_gpus()[0], exact=True, only=(POWER_LIMIT,), keeps=True, or_fixed=True)
    try:
        yield made
    finally:
        made.restore()


@pytest.mark.slow
def test_a_limit_that_the_driver_rounds_up_is_told(settings: AppliedSettings) -> None:
    told = {}
    for asked_w in (300.0, 303.0):
        setting = ((POWER_LIMIT, asked_w),)
        assert not asyncio.run(settings.apply(setting))
        told[asked_w] = asyncio.run(settings.other_limit_w(setting))
    assert told == {300.0: None, 303.0: 305.0}
    assert asyncio.run(settings.other_limit_w(())) is None, "no limit was asked for"


@pytest.mark.slow
def test_a_gpu_that_is_found_at_its_least_limit_takes_part_in_a_budget_with_that_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with found_at(LEAST_W, tmp_path, monkeypatch):
        gpu = registry.visible_gpus()[0]
        assert planned_budget(LEAST_W, "limits", FoundDevices((gpu,)), may_set=True).limits_w == {gpu.name: (LEAST_W,)}
        with claimed_limit(), pytest.raises(UnfitEnvironment, match="is being set by"), claimed_limit():
            pass


@pytest.mark.slow
def test_a_run_waits_once_to_be_told_whether_a_clock_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each setting of a board that never tells costs two minutes."""
    monkeypatch.setattr(nvidia_knobs, "time", SimpleNamespace(sleep=lambda _: None))
    clock, waited_s = VirtualClock(), []
    with found_at(FOUND_W, tmp_path, monkeypatch):
        made = claim(registry.visible_gpus()[0], exact=True)
        made._calls = InLoop(0.0)
        for clock_mhz in (1200.0, 1500.0):
            began_s = clock.now_s
            assert "the GPU is idle" in clock.run(made.apply(((GPU_CLOCK, clock_mhz),)))
            waited_s.append(clock.now_s - began_s)
        made.restore()
    assert waited_s[0] >= 120.0 and waited_s[1] < 2.0
