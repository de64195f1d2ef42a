"""Joules of an allocation that waits for its predecessor."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ecoshare.contrib.chains.chain_allocation import IdleEnergy
from ecoshare.devices.registry import power_models, processors
from tests.driver import COMPILER, FakeDriver, presets


def test_processors_are_modelled_at_rest() -> None:
    """A counter of processors would count the predecessor on the same machine, too."""
    idle = IdleEnergy(3, "cpu", None)
    time.sleep(0.2)
    found = idle.end()
    model = power_models([processors()])["cpu"]
    assert found is not None and model is not None and found.source == "modelled"
    assert 3.0 * model.idle_j(0.2) <= found.value_j < 3.0 * model.idle_j(60.0)


def test_devices_that_are_not_there_have_no_joules() -> None:
    assert IdleEnergy(1, "cuda:99", None).end() is None


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="the fake driver is written in C, and there is no compiler")
def test_the_counters_of_gpus_are_read(tmp_path: Path) -> None:
    with FakeDriver(tmp_path, [presets.H200, presets.H200]):
        one, two, far = IdleEnergy(1, None, 1), IdleEnergy(1, None, 2), IdleEnergy(2, None, 1)
        time.sleep(0.6)
        found, both, machines = one.end(), two.end(), far.end()
    assert found is not None and both is not None and machines is not None
    assert (found.source, both.source, machines.source) == ("measured", "measured", "modelled")
    assert found.value_j > 20.0 and both.value_j > 40.0
    assert machines.value_j > 40.0, "the other machine counts as much"
