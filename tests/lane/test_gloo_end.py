"""Ends of processes in which gloo's threads may still hold tensors."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
import time

import pytest

from ecoshare.lane import interpreter

_SET_NAME = 15  # PR_SET_NAME

REAL = """
import torch
import torch.distributed as dist
from ecoshare.lane import interpreter
waits = []
interpreter.time.sleep = waits.append
interpreter.let_threads_drop()
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
dist.all_reduce(torch.ones(1))  # a thread that has just been made may have no name yet
interpreter.let_threads_drop()
print(waits)
"""


def test_only_a_process_with_threads_of_gloo_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    named, over = threading.Event(), threading.Event()

    def loop() -> None:
        ctypes.CDLL(None).prctl(_SET_NAME, b"pt_gloo_runloop")
        named.set()
        over.wait()

    own, sleep = threading.get_ident(), time.sleep
    monkeypatch.setattr(time, "sleep", lambda s: (waits.append if threading.get_ident() == own else sleep)(s))
    interpreter.let_threads_drop()
    assert not waits
    thread = threading.Thread(target=loop)
    thread.start()
    named.wait()
    interpreter.let_threads_drop()
    over.set()
    thread.join()
    assert waits == [0.05]


@pytest.mark.nightly
def test_the_threads_of_gloo_have_this_name() -> None:
    """If it failed, ranks would now and then end with SIGABRT after their work was done."""
    done = subprocess.run([sys.executable, "-c", REAL], capture_output=True, text=True, check=True)
    assert done.stdout == "[0.05]\n", done.stderr
