"""Two runs on one device: the second waits, is refused with the name of the first, or shares it on purpose."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ecoshare.devices.choice import find_one
from ecoshare.devices.control.state_folder import StateFolder
from ecoshare.devices.occupancy import DeviceAdmission, Occupancy, occupants, occupied
from ecoshare.devices.registry import find, processors
from ecoshare.errors import UnfitEnvironment, UsageError
from tests.runtime.running import job_file, slow_steps, start
from tests.warm import wait_for


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateFolder:
    monkeypatch.setenv("ECOSHARE_STATE", str(tmp_path / "state"))
    return StateFolder.of_this_user()


CPU = partial(find_one, "cpu")


def silent(_words: str) -> None:
    pass


class Holder:
    """Another process that uses the processors until `leave`."""

    def __init__(self, admission: str = "refuse", run: str = "/somewhere/runs/first", on: int | None = None) -> None:
        """Fork the process, on one processor alone if one is named."""
        here, there = socket.socketpair()
        self.pid = os.fork()
        if not self.pid:
            here.close()
            if on is not None:
                os.sched_setaffinity(0, {on})
            try:
                with occupied(
                    CPU, DeviceAdmission(admission), lambda words: there.sendall(f"{words}\n".encode())
                ) as own:
                    own.tell(Path(run))
                    there.sendall(b"in\n")
                    there.recv(1)
            finally:
                os._exit(0)
        there.close()
        self._channel = here
        self._lines = here.makefile()

    def says(self) -> str:
        return self._lines.readline().strip()

    def let_go(self) -> None:
        """Let the process leave the device, and wait for that."""
        if not self.is_gone:
            with contextlib.suppress(OSError):  # it was killed
                self._channel.sendall(b"x")
            self._lines.close()
            self._channel.close()
            os.waitpid(self.pid, 0)
            self.pid = 0

    def kill(self) -> None:
        if not self.is_gone:
            os.kill(self.pid, signal.SIGKILL)
        self.let_go()

    @property
    def is_gone(self) -> bool:
        return not self.pid


@pytest.fixture
def first() -> Iterator[Holder]:
    holder = Holder()
    assert holder.says() == "in"
    yield holder
    holder.kill()


def test_a_second_run_is_refused_with_the_name_of_the_first(first: Holder) -> None:
    with (
        pytest.raises(
            UnfitEnvironment, match=r"cpu is used by the run /somewhere/runs/first \(.*'s process \d+"
        ) as raised,
        occupied(CPU, DeviceAdmission.REFUSE, silent),
    ):
        pass
    assert "--wait" in raised.value.hint and "--share-device" in raised.value.hint
    first.let_go()
    with occupied(CPU, DeviceAdmission.REFUSE, silent) as occupancy:
        assert occupancy.devices[0] == processors() or occupancy.devices[0].memory_bytes


def test_a_run_that_was_killed_uses_nothing(first: Holder, state: StateFolder) -> None:
    """The file of a dead run is still there, but only the lock counts, and it ended with the run."""
    first.kill()
    assert list(state.locks.glob("*.run"))
    with occupied(CPU, DeviceAdmission.REFUSE, silent):
        assert len(list(state.locks.glob("*.run"))) == 1
    assert not list(state.locks.glob("*.run"))


@pytest.mark.slow
def test_the_next_run_waits_for_the_ending_jobs_of_the_last(state: StateFolder) -> None:
    """A process that was forked from a killed one holds the lock until it has ended, too."""
    device = processors()
    killed = Occupancy((device,), state)
    (path,) = state.locks.glob("*.run")
    no_process = 1 << 22  # above the largest number that Linux gives by default
    path.write_text(json.dumps({"pid": no_process, "run": "/killed", "processors": []}))
    timer = threading.Timer(0.5, killed.end)
    timer.start()
    with occupied(CPU, DeviceAdmission.REFUSE, silent):
        assert not timer.is_alive()
    timer.join()


@pytest.mark.slow
def test_one_that_waits_is_let_in_when_the_first_has_ended(first: Holder) -> None:
    told: list[str] = []
    timer = threading.Timer(0.5, first.let_go)
    timer.start()
    with occupied(CPU, DeviceAdmission.WAIT, told.append):
        timer.join()
        assert first.is_gone
    (words,) = told
    assert re.fullmatch(r"waits for the run /somewhere/runs/first \(.*\), which uses cpu; `--no-wait` .* it", words)


@pytest.mark.slow
def test_those_that_wait_form_a_line(first: Holder) -> None:
    second = Holder("wait", "/somewhere/runs/second")
    assert second.says().startswith("waits for the run /somewhere/runs/first")
    third = Holder("wait", "/somewhere/runs/third")
    assert third.says() == "another run waits for cpu already: this one is behind it"
    first.let_go()
    assert second.says() == "in"
    assert third.says().startswith("waits for the run /somewhere/runs/second")
    second.let_go()
    assert third.says() == "in"
    third.let_go()


def test_one_that_shares_runs_at_once_and_counts_as_a_user(first: Holder, state: StateFolder) -> None:
    told: list[str] = []
    with occupied(CPU, DeviceAdmission.SHARE, told.append) as occupancy:
        assert told[0].startswith("cpu is shared with the run /somewhere/runs/first")
        assert len(occupants(occupancy.devices[0], state)) == 2
        first.let_go()
        with pytest.raises(UnfitEnvironment, match="cpu is used by"), occupied(CPU, DeviceAdmission.REFUSE, silent):
            pass


def test_runs_on_other_processors_are_in_nobodys_way(first: Holder) -> None:
    """Each run has half of the processors, as with `taskset`."""
    mine = os.sched_getaffinity(0)
    if len(mine) < 2:
        pytest.skip("there is one processor")
    first.let_go()
    one, *others = sorted(mine)
    holder = Holder(on=one)
    assert holder.says() == "in"
    os.sched_setaffinity(0, others)
    try:
        with occupied(CPU, DeviceAdmission.REFUSE, silent):
            pass
    finally:
        os.sched_setaffinity(0, mine)
        holder.let_go()


def test_a_file_of_another_kind_keeps_no_run_out(state: StateFolder) -> None:
    """All users share the folder: a FIFO or a link there must not hang or mislead a run."""
    state.locks.mkdir()
    os.mkfifo(state.place("cpu", "fifo"))
    state.place("cpu", "link").symlink_to("/etc/passwd")
    with occupied(CPU, DeviceAdmission.REFUSE, silent):
        pass


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "another run"),
        (b"[" * 60_000, "another run"),
        (b'{"pid": 1e999, "run": "x", "processors": []}', "another run"),
        (b'{"pid": -1, "run": "x", "processors": []}', "another run"),
        (b'{"pid": 1, "run": "x", "processors": [1e999]}', "another run"),
        (b'{"pid": 0, "run": "' + b"x" * 5_000 + b'", "processors": []}', "another run"),
        (b'{"pid": 0, "run": "\\u001b[2J\\n", "processors": []}', r"the run \x1b[2J\n"),
    ],
)
def test_a_record_of_another_user_is_not_believed(state: StateFolder, content: bytes, told: str) -> None:
    path = state.place("cpu", "0123")
    path.parent.mkdir()
    path.write_bytes(content)
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        (occupant,) = occupants(find("cpu"), state)
    assert str(occupant) == told


def test_to_wait_and_to_share_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        DeviceAdmission.of(wait=True, share_device=True)


@pytest.mark.nightly
def test_the_line_of_one_that_waits_for_a_queue_says_how_that_ends() -> None:
    """A queue does not end by itself, so a run that only waits for it would never begin."""
    told: list[str] = []
    holder = Holder(run="/state/queues/night/runs/20260101-100000-night")
    assert holder.says() == "in"
    timer = threading.Timer(0.5, holder.let_go)
    timer.start()
    with occupied(CPU, DeviceAdmission.WAIT, told.append):
        timer.join()
    assert "until `ecoshare down --queue night`; `ecoshare submit --queue night` gives it jobs" in told[0]


def test_a_run_beside_a_queue_is_told_how_to_give_that_its_jobs(state: StateFolder) -> None:
    told: list[str] = []
    with occupied(CPU, DeviceAdmission.TURNS, told.append, takes_turns=True) as queue:
        queue.tell(Path("/state/queues/night/runs/20260101-100000-night"))
        with occupied(CPU, DeviceAdmission.TURNS, told.append, takes_turns=True) as second:
            assert second.is_shared
    (line,) = told
    assert line.startswith("takes turns on cpu with the run /state/queues/night/runs/")
    assert line.endswith("for 2 s each; `ecoshare submit --queue night` gives that queue the jobs instead")


@pytest.mark.slow
def test_real_runs_wait_for_each_other_or_are_refused(tmp_path: Path) -> None:
    """The second run names the folder of the first; the third runs when the first has ended."""
    folders = [tmp_path / name for name in ("one", "two", "three")]
    for folder in folders:
        folder.mkdir()
    one = start(job_file(folders[0], slow_steps("a", 150, 10)))
    wait_for(lambda: (folders[0] / "ecoshare-runs/latest/events.jsonl").exists())
    two = start(job_file(folders[1], slow_steps("a", 3)), "--no-wait")
    assert two.wait(timeout=60) == 4
    assert f"error: cpu is used by the run {(folders[0] / 'ecoshare-runs').resolve()}/" in two.stderr
    assert not (folders[1] / "ecoshare-runs").exists()
    three = start(job_file(folders[2], slow_steps("a", 3)), "--wait")
    wait_for(lambda: "note: waits for the run" in three.stderr)
    assert one.wait(timeout=60) == 0
    assert three.wait(timeout=60) == 0
    first, last = (
        (folder / "ecoshare-runs/latest/summary.json").stat().st_mtime for folder in (folders[0], folders[2])
    )
    assert first < last
