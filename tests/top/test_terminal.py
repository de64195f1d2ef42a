"""`ecoshare top` in a real terminal: it draws, quits, and leaves the terminal as it was."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.queue.queues import Served, served_alone
from tests.runtime.running import SCRIPTS, run
from tests.warm import Started, ecoshare

_WITHIN_S = 60.0


class Terminal:
    """Pseudo-terminal of 80 columns with a command in it."""

    def __init__(self, *words: str, cwd: Path, term: str = "xterm-256color") -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self._theirs = theirs
        self.before = termios.tcgetattr(theirs)
        self.written = b""
        environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self.process = Started(
            *words, cwd=cwd, environment={**environment, "TERM": term}, stdin=theirs, stdout=theirs, stderr=theirs
        )

    def read(self) -> None:
        """Read what there is, for a tenth of a second at most."""
        if select.select([self._ours], [], [], 0.1)[0]:
            self.written += os.read(self._ours, 1 << 16)

    def until(self, *words: str) -> None:
        """Read until all of these words have come."""
        end_s = time.monotonic() + _WITHIN_S
        while not all(word.encode() in self.written for word in words):
            assert time.monotonic() < end_s, self.written
            self.read()

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._ours, keys.encode())

    def end(self) -> int:
        """Wait for the end of the command; returns its exit code."""
        end_s = time.monotonic() + _WITHIN_S
        while self.process.poll() is None:
            assert time.monotonic() < end_s, self.written
            self.read()
        self.read()
        return self.process.wait()

    def check_restored(self) -> None:
        """Check that the terminal is as before."""
        assert termios.tcgetattr(self._theirs) == self.before
        assert self.written.rfind(b"\x1b[?1049l") > self.written.rfind(b"\x1b[?1049h") >= 0, "the other screen was left"
        assert self.written.rfind(b"\x1b[?25h") > self.written.rfind(b"\x1b[?25l") >= 0, "the cursor is visible"
        assert self.written.rfind(b"\x1b[?1000l") >= self.written.rfind(b"\x1b[?1000h"), "the mouse is free"
        assert b"Traceback" not in self.written


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("terminal")
    with served_alone(folder) as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize(("keys", "code"), [("q", 0), ("\x03", 0)])
def test_it_draws_and_quits(up: Served, keys: str, code: int) -> None:
    terminal = Terminal("top", "--queue", "test", cwd=up.folder)
    terminal.until("queue test", "device", "quit")
    terminal.press(keys)
    assert terminal.end() == code
    terminal.check_restored()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_restores_the_terminal(up: Served, number: int) -> None:
    terminal = Terminal("top", "--queue", "test", cwd=up.folder)
    terminal.until("queue test", "quit")
    terminal.process.send_signal(number)
    assert terminal.end() == 130
    terminal.check_restored()


@pytest.mark.nightly
def test_a_recorded_run_is_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECOSHARE_STATE", str(tmp_path / "state"))  # the queue of the other tests has the processors
    run(tmp_path, {"name": "a", "script": str(SCRIPTS / "no_torch.py")})
    terminal = Terminal("top", "ecoshare-runs/latest", "--speed", "1000", cwd=tmp_path)
    terminal.until("completed", "x1000")
    terminal.press("q")
    assert terminal.end() == 0
    terminal.check_restored()


@pytest.mark.parametrize("words", [(), ("ecoshare-runs/latest",)])
def test_without_a_terminal_one_line_names_other_commands(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = ecoshare("top", *words, cwd=tmp_path)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.splitlines()[0] == "error: `ecoshare top` needs a terminal for its input and output"
    assert "`ecoshare status`" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "term", "code", "said"),
    [
        (("--queue", "nowhere"), "xterm", 4, "the queue 'nowhere' is not up"),
        (("--queue", "nowhere"), "dumb", 2, "cannot draw on a terminal of type 'dumb'"),
        (("nowhere",), "xterm", 2, "nowhere is not a run folder"),
        (("nowhere", "--speed", "0"), "xterm", 2, "--speed 0: expected a number above 0"),
        (("nowhere", "--from", "soon"), "xterm", 2, "--from soon: expected a duration"),
        (("--speed", "2"), "xterm", 2, "--speed and --from are for a recorded run"),
    ],
)
def test_wrong_use_is_told_before_the_view_opens(
    tmp_path: Path, words: tuple[str, ...], term: str, code: int, said: str
) -> None:
    terminal = Terminal("top", *words, cwd=tmp_path, term=term)
    assert terminal.end() == code
    assert said.encode() in b" ".join(terminal.written.split()), terminal.written
    assert b"\x1b[?1049h" not in terminal.written and b"Traceback" not in terminal.written
