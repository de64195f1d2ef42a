"""What holds for all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def _profiles_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the profiles of who runs it, nor what was set on this machine."""
    own = {"ECOSHARE_PROFILES": "profiles", "ECOSHARE_STATE": "state"}
    for name, folder in own.items():
        os.environ[name] = str(tmp_path_factory.mktemp(folder))
    yield
    for name in own:
        del os.environ[name]


@pytest.fixture(autouse=True)
def _own_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test finds what another has measured."""
    monkeypatch.setenv("ECOSHARE_PROFILES", str(tmp_path / "own-profiles"))
