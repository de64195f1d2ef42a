"""Appends go to a file of ours, never to the target of a link."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ecoshare.lane.files import are_outputs_of, keep_outputs, make_folder, open_outputs, open_to_append
from ecoshare.lane.tables.shared_memory import OwnFile


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


def test_the_output_is_that_of_an_attempt_once_it_has_begun(tmp_path: Path) -> None:
    """An attempt that never begins leaves the output of the one before where it is."""
    assert are_outputs_of(tmp_path, 1)
    for attempt in (1, 3):
        for number in open_outputs(tmp_path, attempt):
            os.close(number)
        assert are_outputs_of(tmp_path, attempt) and not are_outputs_of(tmp_path, attempt + 1)
    assert (tmp_path / "stdout.attempt-2.log").exists(), "the first output, under the last number before"


def test_an_attempt_without_a_folder_had_no_output(tmp_path: Path) -> None:
    """A node was lost before anything of the job came back. If this failed, the run of all jobs ended."""
    keep_outputs(tmp_path / "job", 2)
    assert [each.name for each in (tmp_path / "job").iterdir()] == ["stdout.attempt-1.none"]


def test_an_attempt_after_one_without_output_is_known(tmp_path: Path) -> None:
    keep_outputs(tmp_path, 2)
    assert are_outputs_of(tmp_path, 2) and not (tmp_path / "stdout.attempt-1.log").exists()
    (tmp_path / "stdout.log").write_text("second")
    keep_outputs(tmp_path, 3)
    keep_outputs(tmp_path, 3)
    assert (tmp_path / "stdout.attempt-2.log").read_text() == "second"
