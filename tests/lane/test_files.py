"""Appends go to a file of ours, never to the target of a link."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ecoshare.lane.files import make_folder, open_outputs, open_to_append
from ecoshare.lane.own_file import OwnFile


def test_links_are_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    (tmp_path / "stdout.log").symlink_to(target)
    for open_it in (
        lambda: open_outputs(tmp_path, 1),
        lambda: open_to_append(tmp_path / "stdout.log"),
        lambda: OwnFile(tmp_path / "stdout.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND),
    ):
        with pytest.raises(OSError, match="symbolic links"):
            open_it()
    assert target.read_text() == "mine"


def test_folders_that_are_made_are_their_owners_alone(tmp_path: Path) -> None:
    make_folder(tmp_path / "a/b")
    make_folder(tmp_path / "a/b")
    assert [(tmp_path / each).stat().st_mode & 0o777 for each in ("a", "a/b")] == [0o700, 0o700]
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="exists"):
        make_folder(tmp_path / "file")
