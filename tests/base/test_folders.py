"""The folder for shared tables and sockets is in memory if possible."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from ecoshare.base import disk as module
from ecoshare.base.disk import memory_folder


def test_a_folder_in_memory_is_taken_where_it_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the tables of lanes, which change at each turn, would be written to a disk."""
    monkeypatch.setattr(module, "SHARED_MEMORY", tmp_path)
    assert memory_folder() == tmp_path


@pytest.mark.parametrize("reason", ["missing", "read-only"])
def test_else_the_temporary_folder_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    """Else a run would fail in a container without it, or with a read-only one."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(module, "SHARED_MEMORY", tmp_path / "shm")
    if reason == "read-only":
        (tmp_path / "shm").mkdir()
        # Root may write whatever the mode says; a read-only mount says no to root, too.
        monkeypatch.setattr(os, "access", lambda path, mode: not (path == tmp_path / "shm" and mode & os.W_OK))
    assert memory_folder() == tmp_path / "tmp"
