"""Machines with a torch that cannot use their GPUs: real agents and the real run, with lines in memory between them."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import ecoshare
from ecoshare.base.device import DeviceInfo
from ecoshare.cluster.agent_calls import PROTOCOL, AgentCalls, NodeFound, answer
from ecoshare.cluster.joined_nodes import NodeJoining
from ecoshare.cluster.links import BegunAgent, NodeLink, NodeStart, ProcessLink
from ecoshare.cluster.node_agent import Agent, RunGone
from ecoshare.cluster.node_cluster import held
from ecoshare.errors import UnfitEnvironment
from ecoshare.lane.messages import Ready
from ecoshare.runtime.nodes.run_host import LocalHost
from ecoshare.runtime.signals import CommandSignals
from tests.cluster.agents import agent
from tests.driver import COMPILER, FakeDriver

NEW, OLD = "13.0", "12.6"
"""Versions of CUDA for which a torch is built: the driver of every machine here runs the second one only."""

GPU = DeviceInfo("cuda:0", "cuda", "nvidia", "NVIDIA H100", "GPU-0", 1, 1, driver="550.54.14", cuda=(12, 4))

WHY = (
    r"torch 2\.14\.1 is built for CUDA 13\.0, and driver 550\.54\.14 of cuda:0 \(NVIDIA H100\) runs CUDA 12\.4 at "
    r"most: install driver 580 or newer, or a build of torch for CUDA 12\.6 \(cu126\)"
)


@dataclass
class Machine:
    """Machine with a GPU; `ready` is the start message of its server, None if torch cannot be loaded there."""

    name: str
    ready: Ready | None
    devices: tuple[DeviceInfo, ...] = (GPU,)
    asked: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def start(self) -> NodeStart:
        return NodeStart(self.name, "127.0.0.1", lambda: cast(NodeLink, Link(self)))


class Link:
    """Link to the real agent of a machine, in a thread."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._loop = machine, asyncio.new_event_loop()

    def listen(self, heard: Callable[[bytes], None], lost: Callable[[str], None]) -> None:
        machine = self._machine

        async def ready() -> Ready | None:
            machine.asked.append("torch")
            return machine.ready

        def send(line: bytes, _can_wait: bool) -> None:
            heard(line)

        host: Any = SimpleNamespace(clock=SimpleNamespace(monotonic_s=time.monotonic), ready=ready)
        occupancy: Any = SimpleNamespace(devices=machine.devices)
        self._agent = Agent(BegunAgent(machine.name, "token", Path(), Path(), host, False), send, occupancy, {})
        names = [each.name for each in machine.devices]
        found = NodeFound(PROTOCOL, ecoshare.__version__, "token", machine.devices, dict.fromkeys(names), False)
        answer(send, AgentCalls.found, found)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        async def serve() -> None:
            with pytest.raises(RunGone):
                await self._agent.serve()

        self._loop.run_until_complete(serve())
        self._loop.close()
        self._machine.ended.set()

    def send(self, line: bytes, can_wait: bool = False) -> None:
        self._loop.call_soon_threadsafe(self._agent.hear, line)

    def close(self) -> None:
        if not self._machine.ended.is_set():
            self._loop.call_soon_threadsafe(self._agent.hear, None)
            assert self._machine.ended.wait(30.0)


def loaded(cuda: str) -> Ready:
    return Ready(7, "2.14.1", 1, 1.0, cuda)


def test_a_machine_whose_torch_cannot_use_its_gpu_is_left_out_with_one_line() -> None:
    """Else jobs begin there, and begin again elsewhere; or go to the processors without a word."""
    machines = [Machine("n0", loaded(OLD)), Machine("n1", loaded(NEW)), Machine("n2", None)]
    said: list[str] = []
    with held([each.start for each in machines], say=said.append) as cluster:
        assert [each.name for each in cluster.devices] == ["n0/cuda:0"], "no plan has the devices of the others"
        assert [each.ended.is_set() for each in machines] == [False, True, True], "their GPUs are free again"
    driver, load = said
    assert driver.startswith("the node n1 is left out: ") and "lost" not in driver
    assert re.fullmatch("the node n1 is left out: " + WHY, driver)
    assert load == "the node n2 is left out: torch cannot be loaded: see `ecoshare doctor` there"


def test_a_run_without_a_machine_that_fits_is_refused_with_the_reason() -> None:
    machines = [Machine("n0", loaded(NEW)), Machine("n1", loaded(NEW))]
    with (
        pytest.raises(UnfitEnvironment, match=f"(?s)^the node n0 is left out: {WHY}\nthe node n1 is left out: {WHY}$"),
        held([each.start for each in machines]),
    ):
        pytest.fail("a run on machines that no job can use")
    assert all(each.ended.is_set() for each in machines), "an agent is left"


def test_processors_are_not_asked_for_the_torch_of_their_jobs() -> None:
    """Else a run begins only when torch is loaded, which takes seconds."""
    cpu = replace(GPU, name="cpu", kind="cpu", vendor="cpu", cuda=None)
    machine = Machine("n0", loaded(""), (cpu,))
    with held([machine.start]) as cluster:
        assert [each.name for each in cluster.devices] == ["n0/cpu"]
    assert not machine.asked


@pytest.mark.parametrize(("cuda", "joins"), [(NEW, False), (OLD, True)])
def test_a_machine_that_comes_is_refused_with_the_same_reason(cuda: str, joins: bool) -> None:
    """Else its jobs fail there, one after another."""
    machine, notes = Machine("n1", loaded(cuda)), list[str]()
    plan = SimpleNamespace(devices=[replace(GPU, name="n0/cuda:0")], host_bytes=0)
    run = SimpleNamespace(profiler=SimpleNamespace(notes=notes), plan=plan)

    def after(*_: object) -> None:
        raise UnfitEnvironment("it is asked for more")

    setups: Any = SimpleNamespace(run=run, ask=after)
    joining = NodeJoining(cast(Any, None), None, ["n0"], setups, lambda _node: None, [], False)
    assert joining._opened(machine.start) is None
    (note,) = notes
    pattern = "it is asked for more" if joins else WHY
    assert re.fullmatch(f"the node n1 has come and cannot join: {pattern}", note)
    assert machine.ended.is_set(), "its agent is left"


def test_a_machine_that_was_left_out_does_not_come_later() -> None:
    """Else it is tried again every minute, and told again."""
    machines = [Machine("n0", loaded(OLD)), Machine("n1", loaded(NEW))]
    with held([each.start for each in machines]) as cluster:
        assert list(cluster._names) == ["n0", "n1"]


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="the pretended driver is compiled with a C compiler")
def test_the_server_of_an_agent_is_asked_for_its_torch(tmp_path: Path) -> None:
    """Two real agents, one with an old driver."""
    drivers = {}
    for name, version in {"n0": "", "n1": "470.82.01"}.items():
        (tmp_path / name).mkdir()
        drivers[name] = FakeDriver(tmp_path / name, version=version).environment
    links: dict[str, ProcessLink] = {}
    starts = [
        NodeStart(name, "127.0.0.1", partial(agent, tmp_path, name, links, "cuda:0", variables))
        for name, variables in drivers.items()
    ]
    said: list[str] = []
    with held(starts, say=said.append) as cluster:
        assert [each.name for each in cluster.devices] == ["n0/cuda:0"]
    (line,) = said
    assert (
        line.startswith("the node n1 is left out: torch ")
        and "driver 470.82.01 of cuda:0 (NVIDIA H200) runs CUDA 11" in line
    )


@pytest.mark.slow
def test_a_server_that_was_asked_for_its_torch_serves_the_run_and_tells_it_once_more(tmp_path: Path) -> None:
    """Else torch is loaded twice, or the run waits for ever for a server that is ready."""
    token = "asked-" + tmp_path.name
    host = LocalHost(token, tmp_path / "log", CommandSignals())

    async def asked() -> None:
        ready = await host.ready()
        server = await host.server(token, tmp_path / "log")
        try:
            async with asyncio.timeout(60.0):
                assert ready is not None and await anext(aiter(server.messages())) == ready
            assert server.pid == ready.pid
        finally:
            await server.close()

    try:
        asyncio.run(asked())
    finally:
        host.close()
