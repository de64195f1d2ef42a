"""Fake driver for the tests that need one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.driver import COMPILER, FakeDriver, presets


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[FakeDriver]:
    """Driver of this process: two different GPUs in virtual time."""
    if COMPILER is None:
        pytest.skip("the fake driver is written in C, and there is no compiler")
    with FakeDriver(tmp_path, [presets.H200, presets.A4000], virtual=True) as driver:
        yield driver
