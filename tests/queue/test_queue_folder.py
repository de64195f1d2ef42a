"""The lock of a queue, and looks at it."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

from ecoshare.errors import UsageError
from ecoshare.queue.queue_folder import QueueFolder


def test_a_client_that_looks_at_the_lock_does_not_keep_a_queue_from_opening(tmp_path: Path) -> None:
    folder = QueueFolder("test", tmp_path / "test")
    with folder.locked():
        assert folder.is_up()
    looks = threading.Event()

    def look() -> None:
        with (folder.path / "lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            looks.set()
            time.sleep(0.05)  # a look holds it for some microseconds

    looking = threading.Thread(target=look)
    looking.start()
    assert looks.wait(10)
    with folder.locked():
        assert folder.is_up()
        with pytest.raises(UsageError, match="the queue 'test' is up already"), folder.locked():
            pass
    looking.join()
    assert not folder.is_up()


def test_a_folder_made_by_hand_is_closed_to_others_and_a_queue_that_is_down_names_no_process(tmp_path: Path) -> None:
    folder = QueueFolder("test", tmp_path / "test")
    folder.path.mkdir(mode=0o755)
    with folder.locked():
        assert folder.path.stat().st_mode & 0o777 == 0o700
        assert (folder.path / "lock").read_text() == str(os.getpid())
    assert (folder.path / "lock").read_text() == ""
