"""Runs on two nodes of a real Ray cluster, which listen on two loopback addresses."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ecoshare.base.attempt import Outcome
from ecoshare.core.events import DeviceFailed, JobExited, RunOpened
from ecoshare.record import event_log
from tests import warm
from tests.cluster.agents import check_alike, lasting, members, starts
from tests.cluster.ray_cluster import RayCluster, ray_cluster
from tests.runtime.running import job_file, slow_steps
from tests.warm import ROOT, wait_for

pytest.importorskip("ray", reason="the extra `ray` is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HEAD, OTHER = "127.0.0.2", "127.0.0.3"


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """A cluster of two nodes."""
    with ray_cluster(2) as started:
        assert started.nodes == [HEAD, OTHER]
        yield started


def ecoshare(folder: Path, *words: str) -> subprocess.Popen[str]:
    """Start the real command, and all that it starts elsewhere, from this source."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-m", "ecoshare", *words],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def on(address: str) -> list[str]:
    """Options of a run on the cluster. The agents lie on one machine here, so each has to share the processors."""
    return ["--on", "ray", "--address", address, "--share-device"]


def command(folder: Path, address: str) -> subprocess.Popen[str]:
    """Start a run of `jobs.yaml`."""
    options = ("--device", "cpu", "--policy", "fair", "--no-profiles", "--no-report")
    return ecoshare(folder, "run", "jobs.yaml", *on(address), *options)


def test_jobs_run_on_both_nodes(cluster: RayCluster, tmp_path: Path) -> None:
    job_file(tmp_path, *(slow_steps(f"j{number}", 60, 4) for number in range(2)))
    out, errors = (run := command(tmp_path, cluster.address)).communicate()
    assert run.returncode == 0, errors
    assert f"{HEAD}/cpu: 1 job" in out and f"{OTHER}/cpu: 1 job" in out
    check_alike(tmp_path / "ecoshare-runs" / "latest", ["j0", "j1"], 60, 4)


@pytest.mark.nightly
def test_ctrl_c_ends_the_jobs_of_all_nodes(cluster: RayCluster, tmp_path: Path) -> None:
    job_file(tmp_path, *(slow_steps(f"j{number}", 100_000, 4) for number in range(2)))
    run, log = command(tmp_path, cluster.address), tmp_path / "ecoshare-runs" / "latest" / "events.jsonl"
    wait_for(lambda: log.exists() and log.read_bytes().count(b'"IterationsDone"') >= 2)
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate()
    assert run.returncode == 130, errors
    assert "Traceback" not in errors
    assert not members(log.parent)


@pytest.mark.nightly
def test_scripts_are_shipped_and_a_resumed_run_finds_what_they_wrote(cluster: RayCluster, tmp_path: Path) -> None:
    (shipped := tmp_path / "project").mkdir()
    (shipped / "values.txt").write_text("1 2 3")
    (shipped / "saves.py").write_text(_SAVES)
    keys = {"script": "project/saves.py", "cwd": "project"}
    job_file(tmp_path, *({"name": f"j{number}", "args": [number], **keys} for number in (0, 1)))
    ships = ("--ship", "project", "--no-report", *on(cluster.address))
    run = ecoshare(tmp_path, "run", "jobs.yaml", "--device", "cpu", "--policy", "fair", "--no-profiles", *ships)
    log = tmp_path / "ecoshare-runs" / "latest" / "events.jsonl"
    outputs = [log.parent / "jobs" / f"j{number}" / "stdout.log" for number in (0, 1)]
    wait_for(lambda: all(each.exists() and "saved" in each.read_text() for each in outputs))  # while they run
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate()
    assert run.returncode == 130, errors
    _, errors = (again := ecoshare(tmp_path, "run", "--resume", "ecoshare-runs/latest", *ships)).communicate()
    assert again.returncode == 0, errors
    for output in outputs:
        words = output.read_text().split()
        assert words[0] == "found" and "/shipped/" in words[1]
    assert not (shipped / "saved-0").exists() and not members(log.parent)


_SAVES = """
import os, pathlib, sys, time
from torch import nn
assert pathlib.Path("values.txt").read_text() == "1 2 3"
if (saved := pathlib.Path(f"saved-{sys.argv[1]}")).exists():
    print("found", os.getcwd())
else:
    saved.touch()
    print("saved", flush=True)
    time.sleep(1000)
"""


def answers(folder: Path) -> bool:
    """Whether the queue answers: it is up before it has connected to the cluster."""
    return warm.ecoshare("status", "--queue", "wide", cwd=folder).returncode == 0


def devices(folder: Path) -> list[str]:
    """Names of the devices of the queue."""
    shown = warm.ecoshare("status", "--queue", "wide", "--json", cwd=folder).stdout
    return [each["name"] for each in json.loads(shown)["devices"]]


@pytest.mark.nightly
def test_a_queue_gives_a_node_back_and_takes_it_again(cluster: RayCluster, tmp_path: Path) -> None:
    job_file(tmp_path, *lasting(tmp_path))
    options = ("--device", "cpu", "--policy", "fair", "--no-profiles", "--jobs-per-lane", "1", "--name", "wide")
    up = ecoshare(tmp_path, "up", *options, "--release-idle", "1s", *on(cluster.address))
    try:
        wait_for(lambda: answers(tmp_path) or up.poll() is not None)
        wait_for(lambda: devices(tmp_path) == [f"{HEAD}/cpu"])
        assert warm.ecoshare("submit", "jobs.yaml", "--queue", "wide", cwd=tmp_path).returncode == 0
        wait_for(lambda: len(devices(tmp_path)) == 2)
        kept, again = devices(tmp_path)
        assert kept == f"{HEAD}/cpu"
        assert re.fullmatch(rf"{OTHER}-[0-9a-f]{{6}}/cpu", again), "the name of before has left the run"
        (tmp_path / "go").touch()
        assert warm.ecoshare("wait", "j0", "j1", "--queue", "wide", cwd=tmp_path).returncode == 0
        assert warm.ecoshare("down", "--queue", "wide", cwd=tmp_path).returncode == 0
        out, errors = up.communicate(timeout=60)
        assert up.returncode == 0 and "Traceback" not in errors, errors
        assert f"the node {OTHER} was given back at" in out + errors and "is not asked" not in out + errors
    finally:
        if up.poll() is None:
            up.kill()
            up.communicate()


@pytest.mark.nightly
def test_jobs_of_a_node_that_dies_run_again_on_the_other_and_the_node_may_come_back(
    cluster: RayCluster, tmp_path: Path
) -> None:
    """The last test of the cluster: the second node has begun anew afterwards."""
    job_file(tmp_path, *lasting(tmp_path))
    run, log = command(tmp_path, cluster.address), tmp_path / "ecoshare-runs" / "latest" / "events.jsonl"
    wait_for(lambda: log.exists() and starts(log) == 2)
    os.kill(cluster.raylet(OTHER), signal.SIGKILL)
    wait_for(lambda: starts(log) == 3)
    cluster.start()
    wait_for(lambda: len([each for each in event_log.read(log) if isinstance(each, RunOpened)]) == 2)
    (tmp_path / "go").touch()
    out, errors = run.communicate()
    assert run.returncode == 0, errors
    assert "Traceback" not in errors and f"{OTHER}-" in out + errors and "joins the run" in out + errors
    entries = list(event_log.read(log))
    (failed,) = [each for each in entries if isinstance(each, DeviceFailed)]
    assert failed.device == f"{OTHER}/cpu"
    ends = [each for each in entries if isinstance(each, JobExited)]
    assert sorted((each.outcome, each.attempt) for each in ends if each.outcome is Outcome.COMPLETED) == [
        (Outcome.COMPLETED, 1),
        (Outcome.COMPLETED, 2),
    ]
    (lost,) = [each for each in ends if each.outcome is Outcome.DEVICE_FAILED]
    assert lost.at_s - failed.at_s > 15.0, "the job has surely ended there"
    last = [each for each in entries if isinstance(each, RunOpened)][-1]
    assert len(last.devices) == 2
    assert not members(log.parent)
