"""Documents with unknown content: any bytes, types and sizes."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from ecoshare.base import documents
from ecoshare.base.attempt import Outcome, Usage
from ecoshare.errors import EcoshareError
from ecoshare.record.run_documents import read_records


def test_a_file_without_an_end_is_read_to_the_limit() -> None:
    assert documents.read_begin(Path("/dev/zero"), 1 << 20) == bytes((1 << 20) + 1)


def test_a_pipe_that_the_user_names_is_read_to_its_end(tmp_path: Path) -> None:
    """A pipe is readable, such as from `ecoshare run <(generate)`."""
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


def test_fields_of_a_newer_version_are_left_out(tmp_path: Path) -> None:
    (folder := tmp_path / "a").mkdir()
    usage = {"iterations": 3, "held_s": 0.5, "new": 1}
    fields = {"job": "a", "attempt": 1, "outcome": "completed", "exit_code": 0, "reason": "", "usage": usage, "new": 2}
    (folder / "exit-1.json").write_text(json.dumps(fields))
    (record,) = read_records(folder)
    assert Outcome(record.outcome) is Outcome.COMPLETED
    assert Usage(**record.usage) == Usage(iterations=3, held_s=0.5)


def test_what_an_error_quotes_moves_no_cursor_and_fills_no_screen() -> None:
    message = str(EcoshareError(f"no sweep is named {'x' * 200_000}\x1b[2J\nand so on"))
    assert len(message) < 2_500 and message.startswith("no sweep is named xxx")
    assert message.endswith("xxx\\x1b[2J\nand so on")
