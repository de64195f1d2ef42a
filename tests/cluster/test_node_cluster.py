"""Machines that a run cannot begin with."""

from __future__ import annotations

import sys

import pytest

from ecoshare.cluster.links import NodeStart, ProcessLink
from ecoshare.cluster.node_cluster import held
from ecoshare.errors import UnfitEnvironment

_FINDS = """
import sys
from dataclasses import replace
import ecoshare
from ecoshare.cluster.agent_calls import PROTOCOL, AgentCalls, NodeFound, answer
from ecoshare.devices.registry import find
device = replace(find("cpu"), model=sys.argv[1])
found = NodeFound(PROTOCOL, sys.argv[2] or ecoshare.__version__, "token", (device,), {"cpu": None}, False)
answer(lambda line, _: print(line.decode(), end="", flush=True), AgentCalls.found, found)
sys.stdin.read()
"""
"""An agent with one device of a model, and a version of ecoshare."""


def start(name: str, model: str = "NVIDIA H100", version: str = "") -> NodeStart:
    return NodeStart(name, "127.0.0.1", lambda: ProcessLink([sys.executable, "-c", _FINDS, model, version]))


@pytest.mark.nightly
def test_devices_of_different_models_are_refused() -> None:
    """If it failed, settings and times of one model would be used on another one."""
    said = "b/cpu is AMD EPYC, and a/cpu is NVIDIA H100: all devices of a run are of one model"
    with pytest.raises(UnfitEnvironment, match=said), held([start("a"), start("b", "AMD EPYC")]):
        pass
    with held([start("a"), start("b")]) as cluster:
        assert [each.name for each in cluster.devices] == ["a/cpu", "b/cpu"]


@pytest.mark.slow
def test_another_version_of_ecoshare_is_refused() -> None:
    with (
        pytest.raises(UnfitEnvironment, match="the node b has ecoshare older, and"),
        held([start("b", version="older")]),
    ):
        pass
