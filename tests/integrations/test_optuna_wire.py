"""Sockets between a study and its trials have no files, and refuse other users."""

from __future__ import annotations

import os
import secrets
import socket

import pytest

from ecoshare.integrations.optuna import wire


@pytest.fixture
def name() -> str:
    return f"ecoshare-test-{secrets.token_hex(8)}"


def test_two_processes_of_one_user_hear_each_other(name: str) -> None:
    with wire.listen(name) as listener:
        here = wire.Channel(wire.connect(name))
        accepted = wire.accept(listener)
        assert accepted is not None
        there = wire.Channel(accepted)
        here.tell(ask="number")
        assert there.hear() == {"ask": "number"}
        here.close()
        assert there.hear() is None
        there.close()
    with pytest.raises(ConnectionError):
        wire.connect(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_users_process_is_not_heard_and_not_believed(name: str) -> None:
    with wire.listen(name) as listener:
        pid = os.fork()
        if pid == 0:
            os.setuid(12345)
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(f"\0{name}")
            os._exit(0)
        assert wire.accept(listener) is None
        assert os.waitpid(pid, 0)[1] == 0
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setuid(12345)
        taken = wire.listen(name)
        os.write(told, b"1")
        taken.accept()
        os._exit(0)
    os.read(ready, 1)
    with pytest.raises(ConnectionRefusedError, match="another user's"):
        wire.connect(name)
    assert os.waitpid(pid, 0)[1] == 0
    os.close(ready)
    os.close(told)
