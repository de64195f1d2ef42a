"""The end of a command by a signal, or without a reader of its results."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ecoshare.cli import background
from ecoshare.errors import Interrupted
from ecoshare.queue.queue_folder import QueueFolder
from tests.warm import wait_for

_COMMAND = """
import os, sys, time, weakref
from ecoshare.cli import entry

def command(**_):
    class Lock:
        pass

    lock = Lock()
    kept = weakref.ref(lock, lambda _: os.kill(os.getpid(), int(sys.argv.pop())))
    del lock
    time.sleep(30)

entry.app = command
sys.argv[1:] = ["-", *sys.argv[1:]]
entry.main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_where_python_drops_exceptions_ends_the_command_all_the_same(number: signal.Signals) -> None:
    """The callback of the lock of an import is such a place. A run once went on as if nothing had come."""
    line = [sys.executable, "-c", _COMMAND, str(int(number))]
    done = subprocess.run(line, capture_output=True, text=True, timeout=25, check=False)
    assert (done.returncode, done.stderr) == (130, "error: interrupted\n")


@pytest.mark.parametrize("prints", ["print", "Console().print"])
def test_a_command_goes_on_if_its_reader_has_enough(prints: str) -> None:
    """`ecoshare run jobs.yaml | head -1` drew no report, and its exit code was that of a failed job."""
    program = f"""
import sys
from rich.console import Console
from ecoshare.cli.output import while_read

sys.stdin.read()
for _ in range(2):
    with while_read():
        {prints}("words")
print("went on", file=sys.stderr)
"""
    line, pipe = [sys.executable, "-c", program], subprocess.PIPE
    process = subprocess.Popen(line, text=True, stdin=pipe, stdout=pipe, stderr=pipe)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    assert process.communicate()[1] == "went on\n" and process.returncode == 0


@pytest.mark.slow
def test_the_first_moments_of_a_command_end_with_it_and_without_a_word() -> None:
    """Ctrl-C gave a traceback while the commands were loaded."""
    program = """
import builtins, os, signal
from ecoshare.cli import main

load = builtins.__import__

def interrupted(name, *more):
    if name == "typer":
        os.kill(os.getpid(), signal.SIGINT)
    return load(name, *more)

builtins.__import__ = interrupted
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=25, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.slow
def test_a_queue_in_the_background_that_is_not_waited_for_is_down(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """After Ctrl-C in `ecoshare up --detach` the queue came up all the same."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder, note = QueueFolder.of("q"), tmp_path / "pid"
    program = f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(60)"

    def interrupted(*_: object) -> None:
        wait_for(lambda: note.exists() and bool(note.read_text()))
        raise Interrupted("interrupted")

    monkeypatch.setattr(background, "_wait_for", interrupted)
    with pytest.raises(Interrupted):
        background.detached([sys.executable, "-c", program], folder)
    assert not Path(f"/proc/{note.read_text()}").exists()
