"""The end of a command by a signal, wherever Python is when it comes."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

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
