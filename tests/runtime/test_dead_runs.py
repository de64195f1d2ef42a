"""Processes of dead runs are ended before settings are put back: the limits that were found may exceed their budget."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ecoshare.base.measurement import Goal
from ecoshare.cli.restore import restore
from ecoshare.devices import registry
from ecoshare.devices.control import restore as restoring
from ecoshare.devices.control.restore import Restored
from ecoshare.devices.control.state_folder import StateFolder
from ecoshare.devices.occupancy import Occupancy
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.reporting.progress import Silent
from ecoshare.runtime.measuring import measuring_runs
from ecoshare.runtime.nodes import cleanup


class Reached(Exception):
    """Settings would be put back now."""


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """Process of a run that was killed together with its guard. Shared memory and state are folders of the test."""
    token = secrets.token_hex(8)
    shared = tmp_path / "shared"
    monkeypatch.setattr(cleanup, "SHARED_MEMORY", shared)
    monkeypatch.setattr(cleanup, "memory_folder", lambda: shared)
    monkeypatch.setenv("ECOSHARE_STATE", str(tmp_path / "state"))
    folder = cleanup.shared_path(token)
    folder.mkdir(parents=True)
    (folder / "lock").write_bytes(b"locked\n")
    (tmp_path / "state").mkdir()
    (tmp_path / "state/GPU-0.json").touch()
    (tmp_path / "train.py").touch()
    left = subprocess.Popen(["sleep", "600"], env={**os.environ, cleanup.TOKEN: token})
    yield left
    left.kill()
    left.wait()


@pytest.fixture
def checked(left: subprocess.Popen[bytes]) -> Callable[..., Any]:
    """Stands for a function that puts settings back."""

    def check(*_: Any, **__: Any) -> list[Restored]:
        assert left.poll() == -9, "a process of the dead run is still at work"
        raise Reached

    return check


@pytest.fixture
def occupancy(left: subprocess.Popen[bytes]) -> Occupancy:
    return Occupancy((registry.processors(),), StateFolder.of_this_user())


def test_before_ecoshare_restore(checked: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restoring, "mend", checked)
    with pytest.raises(Reached):
        restore()


def test_before_a_search(
    checked: Callable[..., Any], occupancy: Occupancy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring_runs, "check_meter", lambda _device: None)
    monkeypatch.setattr(measuring_runs, "claim", checked)
    asked = measuring_runs.TuneRun(tmp_path / "train.py", [], occupancy, Goal("energy", 1.2, 10, 0))
    with pytest.raises(Reached):
        measuring_runs.tune(asked, ProfileStore(tmp_path / "profiles"), tmp_path, Silent(), None, print)


def test_before_a_profile(
    checked: Callable[..., Any], occupancy: Occupancy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring_runs, "leftovers", checked)
    store = ProfileStore(tmp_path / "profiles")
    with pytest.raises(Reached):
        measuring_runs.profile_script(tmp_path / "train.py", [], occupancy, store, tmp_path, Silent(), print)
