"""Memory in huge pages: it keeps its content, and a process that was forked copies single pages as before."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

LOOKS = """
import json
import os
import re
from pathlib import Path
from ecoshare.lane import own_memory

def kib(name):
    return int(re.search(rf"^{name}: *(\\d+) kB", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE)[1])

def copied_kib():
    readable, writable = os.pipe()
    if os.fork() == 0:
        data[5_000][0] = 1
        os.write(writable, str(kib("Private_Dirty")).encode())
        os._exit(0)
    os.wait()
    return int(os.read(readable, 100))

data = [bytearray([number % 251]) * 4096 for number in range(16_384)]
before = kib("AnonHugePages")
made = own_memory.use_huge_pages()
print(json.dumps({
    "made": made,
    "more_kib": kib("AnonHugePages") - before,
    "copied_kib": copied_kib(),
    "same": all(each == bytes([number % 251]) * 4096 for number, each in enumerate(data)),
}))
"""


def test_memory_keeps_its_content_and_a_forked_process_copies_little() -> None:
    done = subprocess.run([sys.executable, "-c", LOOKS], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["same"]
    if not found["made"]:
        pytest.skip("this kernel makes no huge pages on request: Linux 6.1 does")
    assert found["more_kib"] >= 48 << 10 and 0 < found["copied_kib"] < 2 << 10


SERVES = """
import socket
import sys
from ecoshare.lane.messages import PrepareForks
from ecoshare.lane.supervisor.server import JobSupervisor

def huge_kib():
    lines = open("/proc/self/smaps_rollup").read().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages:"))

data = [bytearray(4096) for _ in range(16_384)]
before = huge_kib()
JobSupervisor(socket.socket(), is_forked=sys.argv[1] == "forked")._obey(PrepareForks())
print(huge_kib() - before)
"""


@pytest.mark.nightly
def test_a_server_that_was_forked_from_the_users_process_does_not_copy_its_memory() -> None:
    """The user's data may fill half of the machine's memory, and would be there twice."""

    def more_kib(way: str) -> int:
        line = [sys.executable, "-c", SERVES, way]
        return int(subprocess.run(line, capture_output=True, text=True, check=True).stdout)

    assert more_kib("forked") == 0
    if not more_kib("spawned"):
        pytest.skip("this kernel makes no huge pages on request: Linux 6.1 does")
