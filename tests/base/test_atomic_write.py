"""A file is replaced as a whole, despite readers, a full disk, a kill or another writer at the same time."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ecoshare.base.disk import atomic_write

LENGTH = 1 << 20


def contents(path: Path) -> set[str]:
    return {each.name for each in path.iterdir()}


@pytest.fixture
def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("concurrent", [False, True])
@pytest.mark.parametrize("sync", [False, True])
def test_it_writes_text_and_bytes(tmp_path: Path, sync: bool, concurrent: bool) -> None:
    path = tmp_path / "ünï cödé.json"
    atomic_write(path, "grün\r\n", sync=sync, concurrent=concurrent)
    assert path.read_bytes() == "grün\r\n".encode()
    atomic_write(path, b"\xff\x00", sync=sync, concurrent=concurrent)
    assert path.read_bytes() == b"\xff\x00"
    assert contents(tmp_path) == {path.name}


def write_again_and_again(path: Path, letter: bytes, concurrent: bool) -> None:
    while True:
        atomic_write(path, letter * LENGTH, concurrent=concurrent)


@pytest.mark.slow
@pytest.mark.parametrize(("letters", "concurrent"), [((b"b",), False), ((b"b", b"c"), True)])
def test_a_reader_sees_one_whole_content(tmp_path: Path, letters: tuple[bytes, ...], concurrent: bool) -> None:
    """Else a report would be cut off, or a profile hold parts of two. The writers are killed in the end."""
    path = tmp_path / "file"
    path.write_bytes(b"a" * LENGTH)
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_again_and_again, args=(path, each, concurrent)) for each in letters]
    seen: set[bytes] = set()
    reads = 0
    for writer in writers:
        writer.start()
    try:
        end_s = time.monotonic() + 30
        while (len(seen) < 1 + len(letters) or reads < 300) and time.monotonic() < end_s:
            data = path.read_bytes()
            assert len(data) == LENGTH
            assert data == data[:1] * LENGTH
            seen.add(data[:1])
            reads += 1
    finally:
        for writer in writers:
            writer.kill()
            writer.join()
    assert seen == {b"a", *letters}, "no write was seen"
    data = path.read_bytes()
    assert data == data[:1] * LENGTH, "a killed writer"


def no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("concurrent", [False, True])
@pytest.mark.parametrize("fault", [no_room, interrupted])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, fault: Callable[..., None], concurrent: bool
) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    if call == "fsync":
        monkeypatch.setattr(os, "fsync", fault)
    else:
        monkeypatch.setattr(Path, "replace", fault)
    with pytest.raises((OSError, KeyboardInterrupt)):
        atomic_write(path, "new", sync=True, concurrent=concurrent)
    assert path.read_text() == "old"
    assert contents(tmp_path) == {"file"}


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    """The kernel itself refuses the write: the limit on the size of a file is reached."""
    path = tmp_path / "file"
    path.write_text("old")
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            atomic_write(path, b"x" * (1 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert path.read_text() == "old"
    assert contents(tmp_path) == {"file"}


def test_text_that_cannot_be_encoded_touches_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(UnicodeEncodeError):
        atomic_write(path, "\udcff")
    assert not contents(tmp_path)


def test_a_target_that_is_a_folder_is_an_error_without_litter(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        atomic_write(tmp_path / "folder", "text")
    assert contents(tmp_path) == {"folder"}


@pytest.mark.parametrize("concurrent", [False, True])
@pytest.mark.parametrize("mode", [0o666, 0o644, 0o600])
def test_the_mode_is_that_given_less_the_umask(tmp_path: Path, umask: int, mode: int, concurrent: bool) -> None:
    """Else other users could read the profile of a private job, or write a journal."""
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o777)
    atomic_write(path, "new", mode=mode, concurrent=concurrent)
    assert stat.S_IMODE(path.stat().st_mode) == mode & ~umask


def test_the_default_mode_is_that_of_a_file_written_plainly(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    atomic_write(tmp_path / "file", "")
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_what_a_killed_writer_left_is_overwritten(tmp_path: Path) -> None:
    """Else each kill would leave a file in a folder that nothing cleans."""
    (tmp_path / "file.new").write_text("half of a longer content")
    atomic_write(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "new"
    assert contents(tmp_path) == {"file"}


def test_a_link_with_the_temporary_name_is_not_followed(tmp_path: Path) -> None:
    """Else another user could have a journal of root's written over a file of root's."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "file.new").symlink_to(victim)
    atomic_write(tmp_path / "file", "new")
    assert victim.read_text() == "precious"
    assert (tmp_path / "file").read_text() == "new" and not (tmp_path / "file").is_symlink()
    assert contents(tmp_path) == {"file", "victim"}
    (tmp_path / "file.new").mkdir()
    with pytest.raises(OSError):
        atomic_write(tmp_path / "file", "newer")
    assert (tmp_path / "file").read_text() == "new"


def test_a_link_at_the_target_is_replaced_and_its_file_is_kept(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("kept")
    (tmp_path / "file").symlink_to(elsewhere)
    atomic_write(tmp_path / "file", "new")
    assert elsewhere.read_text() == "kept"
    assert not (tmp_path / "file").is_symlink()


def test_sync_is_done_before_the_rename_and_only_if_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a power cut could leave an empty journal in the place of a good one."""
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def noted_sync(descriptor: int) -> None:
        assert os.fstat(descriptor).st_size == len("new"), "synced before it was written"
        done.append("sync")
        fsync(descriptor)

    def noted_rename(old: Path, new: Path) -> Path:
        done.append("rename")
        return replace(old, new)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(Path, "replace", noted_rename)
    atomic_write(tmp_path / "file", "new", sync=True)
    assert done == ["sync", "rename"]
    done.clear()
    atomic_write(tmp_path / "file", "new")
    assert done == ["rename"]


@pytest.mark.nightly
def test_threads_that_write_one_file_do_not_mix(tmp_path: Path) -> None:
    """Each writer has a temporary name of its own: with one name, a write would fail or hold parts of two."""
    path = tmp_path / "file"
    errors: list[BaseException] = []

    def write(letter: bytes) -> None:
        try:
            for _ in range(50):
                atomic_write(path, letter * LENGTH, concurrent=True)
                data = path.read_bytes()
                assert data == data[:1] * LENGTH
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert contents(tmp_path) == {"file"}
