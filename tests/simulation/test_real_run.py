"""A real run, and its simulation from the record: the same jobs must end at the same times."""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoshare.core.events import Config
from ecoshare.simulation.cluster import Cluster
from ecoshare.simulation.costs import Costs
from ecoshare.simulation.gpus import GPUS
from ecoshare.simulation.simulator import Simulator
from ecoshare.simulation.traces.any_trace import read
from ecoshare.simulation.virtual_lane import TOLD_S
from ecoshare.simulation.world import World
from tests.rounds import nightly
from tests.runtime import running

SCRIPT = """
import sys, torch
steps, width = int(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.randn(256, width)
for _ in range(steps):
    optimizer.zero_grad()
    model(data).square().mean().backward()
    optimizer.step()
"""

JOBS = (("a", 2400, 512, 0), ("b", 1600, 1024, 1), ("c", 1200, 512, 2), ("d", 3600, 512, 3))
"""Name, steps, width and arrival (s) of jobs with clearly different lengths, since srtf decides by few iterations."""

_TRIES = 5
"""Number of tries: the machine may change its speed by more than the simulation may err; one quiet run is enough."""


@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.timeout(600)
@pytest.mark.parametrize("policy", ["fair", *(pytest.param(each, marks=nightly()) for each in ("pack", "srtf"))])
def test_a_simulated_run_takes_as_long_as_the_real_one(tmp_path: Path, policy: str) -> None:
    tried = [_errors(tmp_path / "0", policy)]
    while not _close(tried[-1], policy) and len(tried) < _TRIES:
        tried.append(_errors(tmp_path / str(len(tried)), policy))
    assert _close(tried[-1], policy), f"JCTs, simulated and real: {tried}"


def _close(jcts_s: dict[str, tuple[float, float]], policy: str) -> bool:
    """Times agree within 3 percent; srtf learns speeds once a second, and so may begin with another job's turn."""
    late_s = TOLD_S if policy == "srtf" else 0.0
    return all(abs(simulated - real) <= max(0.03 * real, late_s) for simulated, real in jcts_s.values())


def _errors(folder: Path, policy: str) -> dict[str, tuple[float, float]]:
    """JCT (s) of each job in a simulated run and in the real one."""
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    jobs = [
        {
            "name": name,
            "script": "train.py",
            "args": [str(steps), str(width)],
            "iterations": steps,
            "arrival": f"{at} s",
        }
        for name, steps, width, at in JOBS
    ]
    run = running.run(folder, *jobs, options=("--policy", policy, "--jobs-per-lane", "4"))
    trace = read(run.folder)
    assert len(trace.jobs) == len(JOBS)
    cluster = Cluster(1, 1, GPUS["h200"])
    simulator = Simulator(trace, cluster, Config(policy, 1, 4), World(cluster.gpu), Costs())
    found = {each.name: each.jct_s for each in simulator.run().finished}
    return {name: (found[name], run.job(name)["jct_s"]) for name in found}
