"""What holds for all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def _profiles_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the profiles of who runs it."""
    os.environ["ECOSHARE_PROFILES"] = str(tmp_path_factory.mktemp("profiles"))
    yield
    del os.environ["ECOSHARE_PROFILES"]


@pytest.fixture(autouse=True)
def _own_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test finds what another has measured."""
    monkeypatch.setenv("ECOSHARE_PROFILES", str(tmp_path / "own-profiles"))
