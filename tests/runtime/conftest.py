"""Fixtures of the tests of whole runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.machine import BEFORE, Machine


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Machine with a GPU that must be as before at the end of the test."""
    machine = Machine(tmp_path)
    yield machine
    assert machine.driver.gpu(0).settings() == BEFORE, "whatever happened, the GPU is as it was"
    assert not list((tmp_path / "state").glob("*.json"))
