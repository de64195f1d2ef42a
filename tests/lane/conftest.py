"""Lanes between which jobs move."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lane.moving import Lanes


@pytest.fixture
def lanes(tmp_path: Path) -> Iterator[Lanes]:
    made = Lanes(tmp_path)
    yield made
    for name in list(made.attempts):
        made.kill(name)
