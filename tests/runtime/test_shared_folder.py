"""The next run removes the in-memory folders of dead runs, and leaves others."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ecoshare.errors import UnfitEnvironment
from ecoshare.runtime.nodes import cleanup
from tests.warm import wait_for

DIES = """
import os, sys
from ecoshare.runtime.nodes import cleanup
with cleanup.shared_folder(sys.argv[1]):
    os.kill(os.getpid(), 9)
"""


@pytest.fixture
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Folder of a run, in a place of its own, since other tests clean up meanwhile."""
    monkeypatch.setattr(cleanup, "SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(cleanup, "memory_folder", lambda: tmp_path)
    yield secrets.token_hex(8)


def left_by_a_dead_run(token: str) -> Path:
    path = cleanup.shared_path(token)
    path.mkdir(mode=0o700)
    (path / "lock").write_bytes(b"locked\n")
    return path


def test_the_folder_of_a_killed_run_is_removed_with_its_processes(token: str) -> None:
    path = left_by_a_dead_run(token)
    left = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"],
        env={**os.environ, cleanup.TOKEN: token},
        start_new_session=True,
    )
    wait_for(lambda: cleanup.members(token) == [left.pid])
    cleanup.clear_dead()
    assert left.wait() == -9 and not path.exists()


def test_the_folder_of_a_run_that_goes_on_stays(token: str) -> None:
    with cleanup.shared_folder(token) as path:
        assert path.stat().st_mode & 0o777 == 0o700
        cleanup.clear_dead()
        assert path.exists()
        with pytest.raises(UnfitEnvironment, match="File exists"), cleanup.shared_folder(token):
            pass
    assert not path.exists()


@pytest.mark.parametrize("content", [None, b""])
def test_a_folder_that_is_being_made_stays_for_a_minute(token: str, content: bytes | None) -> None:
    path = cleanup.shared_path(token)
    path.mkdir()
    if content is not None:
        (path / "lock").write_bytes(content)
    cleanup.clear_dead()
    assert path.exists()
    os.utime(path, (0, 0))
    cleanup.clear_dead()
    assert not path.exists()


def test_nothing_else_is_removed(token: str, tmp_path: Path) -> None:
    path = left_by_a_dead_run(token)
    kept = tmp_path / "results"
    path.rename(kept)
    path.symlink_to(kept)
    cleanup.clear_dead()
    assert (kept / "lock").exists()
    path.unlink()
    (tmp_path / "ecoshare-runs").mkdir()
    foreign = left_by_a_dead_run(token)
    if os.geteuid() == 0:
        os.chown(foreign, 12345, 12345)
        cleanup.clear_dead()
        assert foreign.exists()
    assert (tmp_path / "ecoshare-runs").exists()
