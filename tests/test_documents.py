"""Documents of which nothing is known yet."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ecoshare import documents


def test_a_file_without_an_end_is_read_to_the_limit() -> None:
    assert documents.read_begin(Path("/dev/zero"), 1 << 20) == bytes((1 << 20) + 1)


def test_a_pipe_that_the_user_names_is_read_to_its_end(tmp_path: Path) -> None:
    """As `ecoshare run <(generate)` gives one."""
    os.mkfifo(path := tmp_path / "pipe")
    writer = threading.Thread(target=path.write_bytes, args=(b"jobs: []\n",))
    writer.start()
    assert documents.read_begin(path, 1 << 20) == b"jobs: []\n"
    writer.join()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_keeps_no_reader_waiting(tmp_path: Path, make: object) -> None:
    assert callable(make)
    make(path := tmp_path / "document")
    with pytest.raises(OSError, match="not a regular file"):
        documents.open_regular(path)
