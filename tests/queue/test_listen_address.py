"""Addresses that a queue may listen at, and the token of each session."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ecoshare.errors import UsageError
from ecoshare.queue import opening
from ecoshare.queue.queue_folder import QueueFolder
from ecoshare.queue.tcp_entry import ListenAddress, is_in_journal, page_of, tcp_entry


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:0", "127.0.0.1", 0), ("localhost:80", "127.0.0.1", 80), ("[::1]:65535", "::1", 65535)],
)
def test_addresses_are_read(text: str, host: str, port: int) -> None:
    assert ListenAddress.parse(text) == ListenAddress(host, port)


@pytest.mark.parametrize(
    "text",
    ["", "8265", ":8265", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "::1:80", "a:b:1", "[::1]"],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected HOST:PORT"):
        ListenAddress.parse(text)


@pytest.mark.parametrize("text", ["0.0.0.0:80", "[::]:80", "192.168.0.1:80", "example.com:80", "127.0.0.1.evil:80"])
def test_addresses_that_other_machines_reach_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="loopback addresses only"):
        ListenAddress.parse(text)


def test_the_journal_gets_no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it failed, users of the group `adm` could steer queues that are units of systemd."""
    with (tmp_path / "journal").open("w") as journal, (tmp_path / "other").open("w") as other:
        made = os.fstat(journal.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{made.st_dev}:{made.st_ino}")
        assert is_in_journal(journal.fileno()) and not is_in_journal(other.fileno())
    monkeypatch.setenv("ECOSHARE_STATE", str(tmp_path / "state"))
    folder = QueueFolder.of("unit")
    with folder.locked(), tcp_entry(folder, ListenAddress("127.0.0.1", 0)) as entry:
        assert entry is not None
        monkeypatch.setattr(opening, "is_in_journal", lambda _descriptor: True)
        assert entry.address in opening.page_note(entry) and entry.token not in opening.page_note(entry)
        monkeypatch.setattr(opening, "is_in_journal", lambda _descriptor: False)
        assert entry.page in opening.page_note(entry)


def test_each_session_has_a_token_of_its_own_and_a_link_in_its_place_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ECOSHARE_STATE", str(tmp_path))
    folder = QueueFolder.of("tokens")
    tokens = []
    for _ in range(2):
        with folder.locked(), tcp_entry(folder, ListenAddress("127.0.0.1", 0)) as entry:
            assert entry is not None and page_of(folder) == entry.page and entry.token not in repr(entry)
            tokens.append(entry.token)
    assert tokens[0] != tokens[1] and page_of(folder) is None
    target = folder.path / "target"
    target.write_text("kept")
    folder.token.symlink_to(target)
    with folder.locked(), tcp_entry(folder, ListenAddress("127.0.0.1", 0)):
        assert target.read_text() == "kept" and not folder.token.is_symlink()
    with folder.locked(), tcp_entry(folder, None) as none:
        assert none is None and page_of(folder) is None
