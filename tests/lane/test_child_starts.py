"""Starts of child processes in the process of a job: those that will use the device are announced before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import multiprocessing, os, pathlib, subprocess, sys

def nothing():
    pass

class Rows:
    def __len__(self):
        return 2

    def __getitem__(self, place):
        return float(place)

class Own(multiprocessing.get_context("spawn").Process):
    def run(self):
        pass

def announced(start):
    said.clear()
    start()
    return list(said)

def finish(process):
    process.start()
    process.join()
    assert process.exitcode == 0

def popen(*args, **options):
    subprocess.Popen(*args, stdout=subprocess.DEVNULL, **options).wait()

if __name__ == "__main__":
    from ecoshare.lane import child_processes
    said = []
    child_processes.watch_child_starts(said.append)  # before torch is loaded, as in an interpreter of its own
    from torch.utils.data import DataLoader

    spawn, fork = multiprocessing.get_context("spawn"), multiprocessing.get_context("fork")
    print("spawn", announced(lambda: finish(spawn.Process(target=nothing))))
    print("class", announced(lambda: finish(Own())))
    print("fork", announced(lambda: finish(fork.Process(target=nothing))))
    print("manager", announced(lambda: spawn.Manager().shutdown()))
    print("loader", announced(lambda: list(DataLoader(Rows(), num_workers=1, multiprocessing_context="spawn"))))
    print("program", announced(lambda: popen(["true", "torchrun"])))
    print("path", announced(lambda: popen(pathlib.Path("/bin/true"))))
    print("launcher", announced(lambda: popen(args=[sys.argv[1] + "/torchrun"])))
    print("shell", announced(lambda: popen("true && torchrun", shell=True, stderr=subprocess.DEVNULL)))
    print("rank", announced(lambda: popen([b"true"], env={**os.environ, "RANK": "0"})))
    multiprocessing.set_start_method("spawn", force=True)
    print("default", announced(lambda: finish(multiprocessing.Process(target=nothing))))
"""

EXPECTED = """\
spawn ['it starts processes with multiprocessing (spawn)']
class ['it starts processes with multiprocessing (spawn)']
fork []
manager []
loader []
program []
path []
launcher ['it starts torchrun']
shell ['it starts torchrun']
rank ['it starts processes with RANK in their environment']
default ['it starts processes with multiprocessing (spawn)']
"""


@pytest.mark.nightly
def test_a_child_that_will_use_the_device_is_announced_before_it_starts(tmp_path: Path) -> None:
    script, launcher = tmp_path / "script.py", tmp_path / "torchrun"
    script.write_text(SCRIPT)
    launcher.write_text("#!/bin/sh\n")
    launcher.chmod(0o755)
    done = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, EXPECTED), done.stderr
