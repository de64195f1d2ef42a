"""The parts of gpu_check.py without a GPU: its mix repeats, its ways fail with a reason, and no process is left."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ecoshare.base.joules import MODELLED
from ecoshare.devices import registry
from ecoshare.devices.meter import MeterInfo, Reading
from ecoshare.devices.nvidia import mps
from ecoshare.errors import UnfitEnvironment
from ecoshare.runtime.nodes import cleanup
from scripts.bench.benchmarking import Figure
from scripts.bench.gpu import check as gpu_check
from scripts.bench.jobs import mix_job
from scripts.bench.mix import bench as mix_bench
from scripts.bench.mix.bench import Bench, Job, Way, WayFailed, private_daemon
from scripts.bench.mix.figures import same_losses
from scripts.bench.mix.ways import at_once, metered, one_after_the_other

CONTROL = """#!/bin/sh
[ -e "$CUDA_MPS_PIPE_DIRECTORY/control" ] && exit {asked}
touch "$CUDA_MPS_PIPE_DIRECTORY/control"
sleep 1000 > /dev/null 2>&1 &
"""
"""Stand-in for NVIDIA's daemon, which starts and does not end when it is told to."""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    found = Bench(registry.processors(), tmp_path, f"test-{os.getpid()}-{time.monotonic_ns()}", lambda: 60.0)
    yield found
    left = cleanup.members(found.token)
    cleanup.end_all(found.token)
    assert not left, "processes of a way outlived it"


@pytest.mark.slow
@pytest.mark.parametrize("kind", mix_job.KINDS)
def test_a_job_of_the_mix_gives_the_same_losses_each_time(kind: str) -> None:
    threads = torch.get_num_threads()
    try:
        runs = []
        for _ in range(2):
            mix_job.repeatable()
            step = mix_job.trainer(kind, torch.device("cpu"))
            runs.append([step().item() for _ in range(4)])
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(threads)
    assert runs[0] == runs[1]
    assert len(set(runs[0])) > 1, "it learns something, else the same losses say nothing"


@pytest.mark.nightly
def test_jobs_print_the_same_beside_each_other_as_one_after_the_other(bench: Bench) -> None:
    jobs = [Job("mlp", 30), Job("loader", 3)]
    alone = one_after_the_other(bench, jobs, 100.0)
    beside = at_once(bench, jobs, bench.environment, 100.0)
    assert alone.time_s == max(alone.jcts_s)
    assert alone.printed["mlp"].count(b"loss") == mix_job.LINES
    found = same_losses({"alone": alone, "beside": beside})
    assert (found.value, found.met) == (2, True)


@pytest.mark.nightly
def test_a_way_in_which_a_job_fails_has_its_reason(bench: Bench) -> None:
    with pytest.raises(WayFailed, match=r"sorted: .*invalid choice"):
        at_once(bench, [Job("mlp", 10**9), Job("sorted", 1)], bench.environment, 60.0)


@pytest.mark.slow
def test_a_way_that_takes_too_long_is_ended(bench: Bench) -> None:
    with pytest.raises(WayFailed, match="not done after 1 s"):
        at_once(bench, [Job("mlp", 10**9)], bench.environment, 1.0)


def test_losses_that_differ_in_one_way_are_not_counted() -> None:
    one = Way(1.0, [1.0], {"a": b"1", "b": b"2", "silent": b""})
    other = Way(1.0, [1.0], {"a": b"1", "b": b"3", "silent": b""})
    found = same_losses({"one": one, "failed": "why", "other": other})
    assert (found.value, found.met) == (1, False)
    assert found.note == "of 3, in 2 ways; not b, silent"
    assert same_losses({"one": one, "failed": "why"}).value is None


class Counter:
    """Meter that adds 10 J at each reading."""

    info = MeterInfo("made", MODELLED, "gpu", "", 0.0)

    def __init__(self) -> None:
        self._reads = 0

    def read(self) -> Reading:
        self._reads += 1
        return Reading(time.monotonic(), 10.0 * self._reads)


def test_joules_are_those_from_the_beginning_to_the_end_of_a_way(tmp_path: Path) -> None:
    counter = Counter()
    bench = Bench(registry.processors(), tmp_path, "unused", lambda: 1.0, counter)

    def run() -> Way:
        counter.read()
        return Way(1.0, [1.0], {})

    assert metered(bench, run).energy_j == 20.0


@pytest.mark.parametrize("asked", [0, 1])
def test_no_daemon_is_left_that_was_started_for_the_mix(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, asked: int
) -> None:
    """No daemon is left, neither one that does not obey nor one that started and did not answer."""
    program = bench.folder / mps.CONTROL
    program.write_text(CONTROL.format(asked=asked))
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{bench.folder}:{os.environ['PATH']}")
    monkeypatch.setattr(mix_bench, "START_S", 0.1)
    with pytest.raises(UnfitEnvironment if asked else KeyboardInterrupt), private_daemon(bench):
        assert cleanup.members(bench.token), "the daemon runs"
        raise KeyboardInterrupt
    assert not cleanup.members(bench.token)


def test_what_takes_longer_than_the_check_may_is_left_out_and_the_rest_goes_on() -> None:
    clock = gpu_check.Clock(0.2)

    def slow() -> list[Figure]:
        time.sleep(30.0)
        return []

    began_s = time.monotonic()
    (found,) = clock.take("slow", slow)
    assert found.value is None and "not done within" in found.note
    assert time.monotonic() - began_s < 20.0
    (failed,) = gpu_check.Clock(60.0).take("bad", lambda: [Figure("bad", 1 / 0, "")])
    assert failed.note.startswith("ZeroDivisionError")


def test_one_program_is_hidden_and_those_beside_it_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, the whole folder left the path, and with it `sh` and `nvidia-smi`."""
    (programs := tmp_path / "bin").mkdir()
    for name in ("nvidia-cuda-mps-control", "nvidia-smi"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    path = gpu_check.without_program("nvidia-cuda-mps-control", tmp_path / "links")["PATH"]
    assert shutil.which("nvidia-cuda-mps-control", path=path) is None
    assert shutil.which("nvidia-smi", path=path) and shutil.which("sh", path=path) == shutil.which("sh")


def test_a_knob_without_numbers_has_no_range() -> None:
    profile = {"lowest": None, "highest": None, "unit": "", "present": "compute"}
    assert gpu_check._range(profile) == "now compute"
    assert gpu_check._range({"lowest": 210.0, "highest": 1980.0, "unit": "MHz", "present": 1980.0}) == (
        "210 to 1980 MHz, now 1980.0"
    )
