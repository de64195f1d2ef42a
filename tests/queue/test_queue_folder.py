"""The lock of a queue, and looks at it."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ecoshare.errors import UnfitEnvironment, UsageError
from ecoshare.queue.client import QueueConnection, found_in, left_in
from ecoshare.queue.job_store import JobStore
from ecoshare.queue.queue_folder import QueueFolder
from ecoshare.queue.tcp_entry import page_of


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


@pytest.mark.parametrize("put", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_another_kind_of_file_in_the_place_of_the_lock_makes_no_client_wait(
    put: Callable[[Path], object], tmp_path: Path
) -> None:
    """Before, each look at a queue waited for the other end of a pipe."""
    folder = QueueFolder("test", tmp_path / "test")
    folder.make()
    put(folder.path / "lock")
    assert not folder.is_up()
    with pytest.raises(UnfitEnvironment), folder.locked():
        pass


def test_a_lock_that_is_another_file_too_is_not_written(tmp_path: Path) -> None:
    """Another user could have put the name of a file of this user there: opening the queue emptied that file."""
    (own := tmp_path / "own").write_text("kept")
    folder = QueueFolder("test", tmp_path / "test")
    folder.make()
    (folder.path / "lock").hardlink_to(own)
    with pytest.raises(UnfitEnvironment, match="has another name, too"), folder.locked():
        pass
    assert own.read_text() == "kept"


def test_a_folder_made_by_hand_is_closed_to_others_and_a_queue_that_is_down_names_no_process(tmp_path: Path) -> None:
    folder = QueueFolder("test", tmp_path / "test")
    folder.path.mkdir(mode=0o755)
    with folder.locked():
        assert folder.path.stat().st_mode & 0o777 == 0o700
        assert (folder.path / "lock").read_text() == str(os.getpid())
    assert (folder.path / "lock").read_text() == ""


def _given_away(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(path, 12345, -1)


def _behind_a_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")
    path.chmod(0o755)  # the folder that it leads to


def _open_to_others(path: Path) -> None:
    path.chmod(0o770)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_given_away, "belongs to user 12345"),
        (_behind_a_link, "is a link, which can lead anywhere"),
        (_open_to_others, "other users can write to"),
    ],
)
def test_a_queue_that_another_user_may_have_made_is_told_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None], why: str
) -> None:
    """A client sends its whole environment with a job."""
    monkeypatch.setenv("ECOSHARE_STATE", str(tmp_path))
    folder = QueueFolder.of("test")
    with folder.locked(), socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder.socket))
        listener.listen()
        listener.setblocking(False)
        for path in (folder.address, folder.token, folder.database):
            path.touch()
        change(folder.path)
        for act in (lambda: QueueConnection("test").__enter__(), lambda: page_of(folder), lambda: left_in(folder)):
            with pytest.raises(UnfitEnvironment, match=why):
                act()
        with pytest.raises(BlockingIOError):
            listener.accept()
    mode = folder.path.stat().st_mode
    if change is _open_to_others:  # it is this user's, so `up` mends it
        folder.make()
    else:
        with pytest.raises(UnfitEnvironment, match=why):
            folder.make()
        assert folder.path.stat().st_mode == mode, "the folder of another user was changed"


def test_bytes_that_are_no_text_name_no_job(tmp_path: Path) -> None:
    folder = QueueFolder("test", tmp_path / "test")
    with folder.locked():
        JobStore(folder.database).close()
        assert found_in(folder, "\udcff") is None
