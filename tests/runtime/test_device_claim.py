"""Settings of a claimed device, through the real pynvml and zeus on the fake driver."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from math import ceil
from pathlib import Path

import pytest

from ecoshare.devices import registry
from ecoshare.devices.knob import Reading
from ecoshare.devices.zeus_knobs import ZeusPowerLimit
from ecoshare.runtime.device_claim import AppliedSettings, claim
from ecoshare.values.power_response import POWER_LIMIT
from tests.devices.claims import FOUND_W, limited
from tests.driver import FakeDriver, presets
from tests.runtime.machine import MARKS

STEP_W = 5.0
pytestmark = [each for each in MARKS if each.name != "slow"]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AppliedSettings]:
    """First GPU, claimed for its power limit, which it rounds up to a multiple of `STEP_W`."""
    write = ZeusPowerLimit.write

    def rounds_up(knob: ZeusPowerLimit, values: Reading | None) -> None:
        write(knob, None if values is None else tuple(STEP_W * ceil(each / STEP_W) for each in values))

    monkeypatch.setattr(ZeusPowerLimit, "write", rounds_up)
    monkeypatch.setenv("ECOSHARE_STATE", str(tmp_path / "state"))
    with FakeDriver(tmp_path, [presets.H200], virtual=True) as driver:
        limited(driver, FOUND_W)
        made = claim(registry.visible_gpus()[0], exact=True, only=(POWER_LIMIT,), keeps=True)
        yield made
        made.restore()


def test_a_limit_that_the_driver_rounds_up_is_told(settings: AppliedSettings) -> None:
    told = {}
    for asked_w in (300.0, 303.0):
        setting = ((POWER_LIMIT, asked_w),)
        assert not asyncio.run(settings.apply(setting))
        told[asked_w] = asyncio.run(settings.other_limit_w(setting))
    assert told == {300.0: None, 303.0: 305.0}
    assert asyncio.run(settings.other_limit_w(())) is None, "no limit was asked for"
