"""Jobs that are calls of a function, in a server forked from this process after its OpenMP threads have worked."""

from __future__ import annotations

import atexit
import contextlib
import decimal
import importlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ecoshare.base.clock import REAL
from ecoshare.devices import registry
from ecoshare.errors import UnfitEnvironment
from ecoshare.jobs.load import LoadedJobs
from ecoshare.jobs.schema import JobConfig
from ecoshare.reporting.progress import Silent
from ecoshare.runtime import run_opening
from ecoshare.runtime.nodes import cleanup
from ecoshare.runtime.nodes.forked_client import ForkedServer
from ecoshare.runtime.nodes.run_host import WarmServer
from ecoshare.runtime.run_lifecycle import FinishedRun
from tests.planning import planned


class Here:
    """Host without signals that has its server in this process."""

    clock = REAL

    def __init__(self, server: ForkedServer) -> None:
        self._server = server

    @contextlib.contextmanager
    def heard(self, asked_to_stop: Callable[[], None]) -> Iterator[None]:
        yield

    async def server(self, token: str, log: Path) -> WarmServer:
        return await self._server.start(token, log)

    def over(self) -> None:
        pass


def call(function: Callable[[str], None], names: list[str], folder: Path) -> FinishedRun:
    """Run one call for each name."""
    jobs = tuple(JobConfig(name=name, script=Path(__file__), cwd=folder) for name in names)
    plan = planned(LoadedJobs(folder / "calls", "", "", jobs), (registry.find("cpu"),), policy="fair", jobs_per_lane=2)
    plan = replace(plan, jobs=tuple(replace(job, called=True) for job in plan.jobs))
    server = ForkedServer(function)
    try:
        return run_opening.start(plan, "{}", folder / "ecoshare-runs", Silent(), host=Here(server))
    finally:
        server.end()


def said(result: FinishedRun, name: str, stream: str = "stdout") -> str:
    return (result.folder.job(name) / f"{stream}.log").read_text()


def job(result: FinishedRun, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in result.data.summary.as_dict()["jobs"] if each["name"] == name)
    return found


def parallel_work() -> float:
    """Parallel work of torch: a product of matrices, a convolution and its backward pass."""
    torch.manual_seed(0)
    product = torch.randn(600, 600) @ torch.randn(600, 600)
    loss = torch.nn.Conv2d(8, 32, 3)(torch.randn(8, 8, 64, 64)).square().mean()
    loss.backward()
    return float(product.sum() + loss.detach())


@pytest.fixture(autouse=True)
def _dynamo() -> None:
    """Load it here: each server that is forked from here would load it, for a second."""
    importlib.import_module("torch._dynamo")


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
def test_calls_find_what_this_process_has(tmp_path: Path, two_threads: None) -> None:
    here = parallel_work()  # libgomp has threads of its own now: a plain fork would wait for them for ever
    mark = tmp_path / "handled"
    atexit.register(mark.touch)
    data = torch.arange(5)

    def function(word: str) -> None:
        assert threading.current_thread() is threading.main_thread()
        print(word, torch.get_num_threads(), data.sum().item(), parallel_work() == here)
        data.zero_()
        print(os.environ["ECOSHARE_JOB"], Path.cwd())

    result = call(function, ["a", "b", "c"], tmp_path)
    assert result.data.summary.state == "completed", said(result, "a", "stderr")
    for name in "abc":
        assert said(result, name) == f"{name} 2 10 True\n{name} {tmp_path}\n"
    assert data.sum() == 10, "what a job changes is its own"
    atexit.unregister(mark.touch)
    assert not mark.exists(), "what this process does at its exit is not for its jobs to do"


def test_calls_have_the_settings_of_the_thread_that_hands_them_over(tmp_path: Path) -> None:
    """If it failed, trials of a study would run otherwise than the objective that its user calls."""
    with torch.inference_mode(), torch.device("meta"), decimal.localcontext(decimal.Context(prec=3)):
        result = call(
            lambda _: print(torch.ones(1).is_inference(), torch.ones(1).device, decimal.Decimal(1) / 3), ["a"], tmp_path
        )
    assert said(result, "a") == "True meta 0.333\n", said(result, "a", "stderr")


@pytest.mark.nightly
def test_unseeded_calls_draw_different_numbers(tmp_path: Path) -> None:
    torch.manual_seed(1)
    result = call(lambda word: print(torch.rand(1).item()), ["a", "b"], tmp_path)
    assert said(result, "a") != said(result, "b")


@pytest.mark.slow
def test_a_call_that_raises_fails_alone_and_says_why(tmp_path: Path) -> None:
    def function(word: str) -> None:
        if word == "b":
            raise ValueError("not with b")

    result = call(function, ["a", "b"], tmp_path)
    assert [job(result, name)["state"] for name in "ab"] == ["completed", "failed"]
    assert job(result, "b")["error"] == "ValueError: not with b"
    assert 'raise ValueError("not with b")' in said(result, "b", "stderr")


@pytest.mark.slow
def test_a_call_that_gives_up_is_pruned(tmp_path: Path) -> None:
    def function(word: str) -> None:
        raise SystemExit(86)

    result = call(function, ["a"], tmp_path)
    assert job(result, "a")["state"] == "pruned"


@pytest.mark.nightly
def test_children_of_this_process_are_not_the_jobs(tmp_path: Path) -> None:
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,), daemon=True)
    child.start()

    def function(word: str) -> None:
        print(multiprocessing.active_children())
        own = multiprocessing.get_context("fork").Process(target=print, args=("mine",))
        own.start()
        own.join()

    result = call(function, ["a"], tmp_path)
    assert said(result, "a") == "[]\nmine\n"
    assert child.is_alive(), "it was ended by a job that was forked from its parent"
    child.terminate()
    child.join()


@pytest.mark.slow
def test_all_of_a_run_can_be_found_from_outside(tmp_path: Path) -> None:
    """The guard finds the remaining processes by the environment that the kernel shows, and ends them."""

    def function(word: str) -> None:
        token = os.environ[cleanup.TOKEN]
        print(os.getpid() in cleanup.members(token + "x"), len(cleanup.members(token)))  # itself is not counted
        shown = Path("/proc/self/environ").read_bytes().split(b"\0")
        print(f"{cleanup.TOKEN}={token}".encode() in shown)
        os.system("true")  # libc's own environment is whole

    result = call(function, ["a"], tmp_path)
    assert said(result, "a") == "False 1\nTrue\n"


@pytest.mark.slow
def test_a_run_does_not_go_on_without_its_server(tmp_path: Path) -> None:
    def function(word: str) -> None:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)

    with pytest.raises(UnfitEnvironment, match="the server of the lanes has died"):
        call(function, ["a"], tmp_path)
