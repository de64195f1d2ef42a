"""Which nodes of a Ray cluster a run takes, and how it tells that it gets none."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ecoshare.cluster import ray_nodes
from ecoshare.cluster.nodes_request import NodesRequest
from ecoshare.cluster.ray_nodes import RayNodes, await_gpus, on_ray
from ecoshare.errors import UnfitEnvironment, UsageError
from tests.runtime.running import job_file, slow_steps
from tests.warm import ROOT

pytest.importorskip("ray", reason="the extra `ray` is not installed")

ANY = NodesRequest()


def node(name: str, gpus: int = 0, alive: bool = True, host: str = "") -> dict[str, Any]:
    """A node as `ray.nodes` tells it."""
    return {
        "NodeID": f"{name}-id-of-the-node",
        "Alive": alive,
        "NodeName": name,
        "NodeManagerHostname": host or name,
        "NodeManagerAddress": f"address of {name}",
        "Resources": {"CPU": 8.0, **({"GPU": float(gpus)} if gpus else {})},
    }


def taken(request: NodesRequest, *nodes: dict[str, Any]) -> tuple[list[str], int]:
    """Names of the nodes that a run begins with, and the number of GPUs that it holds."""
    found = RayNodes(request, stays=False)
    return [each.name for each in found.first(nodes)], found.gpus


def test_all_nodes_that_are_alive_are_taken_in_the_order_of_their_names() -> None:
    assert taken(ANY, node("b"), node("dead", alive=False), node("a")) == (["a", "b"], 0)
    assert taken(ANY, node("b", 2), node("a", 4)) == (["a", "b"], 6)


def test_a_head_without_gpus_is_left_out_unless_the_run_names_its_devices() -> None:
    """If it failed, a run of two models would be refused on each usual cluster."""
    nodes = (node("head"), node("w1", 4), node("w2", 4))
    assert taken(ANY, *nodes) == (["w1", "w2"], 8)
    assert taken(replace(ANY, device="cpu"), *nodes) == (["head", "w1", "w2"], 0)


def test_a_run_on_processors_stays_one_when_a_machine_with_gpus_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it failed, machines with processors that come after it would not be used."""
    import ray

    found = RayNodes(ANY, stays=False)
    found.first([node("a")])
    monkeypatch.setattr(ray, "nodes", lambda: [node("a"), node("b", 4), node("c")])
    assert [each.name for each in found.present()] == ["a", "b", "c"]


def test_a_run_may_take_less() -> None:
    nodes = (node("a", 1), node("b", 4), node("c", 4))
    assert taken(replace(ANY, nodes=1), *nodes) == (["a"], 1)
    assert taken(replace(ANY, gpus_per_node=2), *nodes) == (["b", "c"], 4)
    assert taken(replace(ANY, nodes=1, gpus_per_node=2), *nodes) == (["b"], 2)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (replace(ANY, nodes=3), "--nodes 3: the Ray cluster has 2 nodes for the run"),
        (replace(ANY, gpus_per_node=8), "no node of the Ray cluster has 8 GPUs"),
    ],
)
def test_too_few_nodes_are_told(request_: NodesRequest, said: str) -> None:
    with pytest.raises(UnfitEnvironment, match=said):
        taken(request_, node("a", 4), node("b", 4))


def test_nodes_of_one_host_have_names_of_their_own() -> None:
    names, _ = taken(ANY, node("127.0.0.2", host="box"), node("127.0.0.3", host="box"), node("c d", host="c d"))
    assert names == ["127.0.0.2", "127.0.0.3", "c-d"]


def test_gpus_that_other_work_of_ray_holds_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it failed, the run would wait for its agents and say that a node does not answer."""
    monkeypatch.setattr(ray_nodes, "_LOOK_S", 0.001)
    free = iter((2.0, 5.0, 8.0))
    await_gpus(8, lambda: next(free))  # those of work that has just ended come back
    await_gpus(0, lambda: 0.0)
    monkeypatch.setattr(ray_nodes, "_FREE_WITHIN_S", 0.01)
    with pytest.raises(UnfitEnvironment, match="needs 8 GPUs of the Ray cluster, and 3 are free: other work of Ray"):
        await_gpus(8, lambda: 3.0)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.40.0\n    Python: 3.10.4\nThis"),
            "Ray at auto refuses: Version mismatch: The cluster was started with:; Ray: 2.40.0; Python: 3.10.4; This",
        ),
        (ConnectionError("Could not find any running Ray instance."), "no Ray cluster answers at auto: Could not find"),
    ],
)
def test_a_cluster_that_refuses_is_told_in_one_line(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    def init(**_options: object) -> None:
        raise error

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(UnfitEnvironment) as raised, on_ray(ANY, "auto", print):
        pass
    assert str(raised.value).startswith(said) and "\n" not in str(raised.value)


def test_an_error_of_ray_itself_is_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another token is one. If it failed, the user would see a traceback."""
    import ray
    from ray.exceptions import RayError

    def init(**_options: object) -> None:
        raise RayError("the token is wrong")

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(UnfitEnvironment, match="Ray at auto refuses: the token is wrong"), on_ray(ANY, "auto", print):
        pass


@pytest.mark.parametrize("address", ["first", ":6379", "ray://first:10001", "first:port"])
def test_an_address_of_another_form_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="expected HOST:PORT or auto"), on_ray(ANY, address, print):
        pass


def ecoshare(folder: Path, *words: str, path: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [path, str(ROOT)]))}
    command = [sys.executable, "-m", "ecoshare", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.nightly
def test_mistakes_are_told_in_one_line(tmp_path: Path) -> None:
    job_file(tmp_path, slow_steps("j", 1, 1))
    (hidden := tmp_path / "hidden").mkdir()
    (hidden / "ray.py").write_text("raise ModuleNotFoundError(\"No module named 'ray'\")\n")
    for words, path, code, said in (
        (("--address", "127.0.0.1:1"), "", 4, "no Ray cluster answers at 127.0.0.1:1: [Errno 111] Connection refused"),
        (("--address", "127.0.0.1:1"), str(hidden), 4, "Ray is not installed"),
        (("--node-timeout", "0"), "", 2, "--node-timeout 0: expected 5 s or more"),
        (("--node-timeout", "nan"), "", 2, "--node-timeout nan: expected 5 s or more"),
    ):
        done = ecoshare(tmp_path, "run", "jobs.yaml", "--on", "ray", *words, path=path)
        assert done.returncode == code and said in done.stderr and "Traceback" not in done.stderr, done.stderr
