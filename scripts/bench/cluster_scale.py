"""A run on 64 nodes with 2,000 jobs: cost of the run's process.

::

    run's process: real core, log, display, one link of Ray to each node ──► real actors of Ray ──► light agents
                   (all that `ecoshare run --on ray` has)                    eight nodes in each    (light_agents.py)

The agents are stand-ins, since two cores bear neither 64 processes of Ray nor 64 of ecoshare: they speak the protocol,
and their jobs are a clock. Lines go through calls of real actors, from a thread for each node, as in a real run.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from ecoshare.cluster.links import NodeStart
from ecoshare.cluster.node_cluster import held
from ecoshare.cluster.ray_nodes import RayLink
from ecoshare.core.commands import StartJob
from ecoshare.core.events import Done, JobExited
from ecoshare.jobs.load import load
from ecoshare.record import event_log
from ecoshare.runtime import run_opening
from ecoshare.runtime.signals import CommandSignals
from scripts.bench.benchmarking import JOBS, ROOT, Figure, percentile, say
from scripts.bench.controller_cost import watched
from scripts.bench.light_agents import ITERATION_S, LightAgents
from tests.cluster.ray_cluster import ray_cluster
from tests.planning import planned
from tests.runtime.running import job_file

SIZE, QUICK_SIZE = (64, 2_000), (8, 8)
"""Number of nodes and of jobs."""

NODES_PER_ACTOR = 8
ITERATIONS = (40, 80, 120)
"""Iterations of the jobs, a tenth of a second each: 8 s on average, alone."""


def scale(folder: Path, nodes: int, jobs: int) -> list[Figure]:
    """Cost of the run's process.

    Args:
        folder: Folder of the run.
        nodes: Number of nodes.
        jobs: Number of jobs.
    """
    entries = [
        {
            "name": f"j{number}",
            "script": str(JOBS / "steady_job.py"),
            "args": [str(ITERATIONS[number % len(ITERATIONS)])],
        }
        for number in range(jobs)
    ]
    job_file(folder, *entries)
    with ray_cluster(1) as cluster, (folder / "said").open("wb") as said:
        words = [sys.executable, "-m", "scripts.bench.cluster_scale", str(folder), cluster.address, str(nodes)]
        process = subprocess.Popen(words, cwd=ROOT, stdout=said, stderr=said)
        cost = watched(process, folder / "runs")
    if process.returncode:
        raise RuntimeError((folder / "said").read_text()[-2000:])
    run = folder / "runs" / "latest"
    states = [job["state"] for job in json.loads((run / "summary.json").read_text())["jobs"]]
    if states != ["completed"] * jobs:
        raise RuntimeError(f"{jobs - states.count('completed')} of {jobs} jobs did not complete")
    opened_unix_s = json.loads((run / "environment.json").read_text())["opened_unix_s"]
    answers_s, began_s, ended_s = _answers(run / "events.jsonl")
    share = cost.share(opened_unix_s + began_s, opened_unix_s + ended_s)
    wall_s = ended_s - began_s
    least_s = ITERATION_S * statistics.mean(ITERATIONS) * jobs / nodes
    note = (
        f"{jobs} jobs on {nodes} nodes in {wall_s:.0f} s, of which the jobs take {least_s:.0f} s; "
        "the agents are light stand-ins in real actors of Ray"
    )
    say(note)
    return [
        Figure("run's process: processor time / wall time", share, "cores", "<= 0.5", note),
        Figure("run's process: processor time by job", 1e3 * share * wall_s / jobs, "ms"),
        Figure("decision to start to its answer, median", 1e3 * statistics.median(answers_s), "ms"),
        Figure("the same, 99 of 100", 1e3 * percentile(answers_s, 0.99), "ms"),
        Figure("run's process: most resident memory", cost.peak_bytes / 1e6, "MB"),
    ]


def _answers(log: Path) -> tuple[list[float], float, float]:
    """Times (s) from the start of a job in the log to its answer; time of the first start, and of the last end."""
    found_s, open_s, began_s, ended_s = list[float](), dict[int, float](), None, 0.0
    for event, commands, _ in event_log.steps(event_log.read(log)):
        if isinstance(event, Done) and event.command in open_s:
            found_s.append(event.at_s - open_s.pop(event.command))
        if isinstance(event, JobExited):
            ended_s = event.at_s
        for each in commands:
            if isinstance(each, StartJob):
                open_s[each.id] = event.at_s
                began_s = event.at_s if began_s is None else began_s
    assert began_s is not None, "no job has begun"
    return found_s, began_s, ended_s


class _Call:
    """Method of an actor of several agents, for one of them."""

    def __init__(self, method: Any, name: str) -> None:
        self._method, self._name = method, name

    def options(self, **options: Any) -> _Call:
        """The same with options of Ray."""
        return _Call(self._method.options(**options), self._name)

    def remote(self, *arguments: Any) -> Any:
        return self._method.remote(self._name, *arguments)


class _OneAgent:
    """Actor of several agents, as an `AgentActor` of one of them."""

    def __init__(self, actor: Any, name: str) -> None:
        self.receive, self.send, self.end = (_Call(getattr(actor, each), name) for each in ("receive", "send", "end"))


class _LightLink(RayLink):
    """Link to one of the agents of an actor, which goes on for the others."""

    def close(self) -> None:
        self._is_over = True
        self._writer.close()


def _run(folder: Path, address: str, nodes: int) -> None:
    """Run the jobs of a folder: the process that is measured."""
    import ray
    from rich.console import Console

    from ecoshare.reporting.progress import PlainProgress

    ray.init(address=address, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}})
    names = [f"n{number}" for number in range(nodes)]
    starts: list[NodeStart] = []
    for first in range(0, nodes, NODES_PER_ACTOR):
        own = names[first : first + NODES_PER_ACTOR]
        kind: Any = ray.remote(num_cpus=0, concurrency_groups={"out": len(own), "in": 1, "end": 1})(LightAgents)
        actor = kind.remote(own)
        starts += [NodeStart(name, name, partial(_LightLink, _OneAgent(actor, name))) for name in own]
    loaded = load(folder / "jobs.yaml")
    with held(starts) as cluster, (folder / "progress").open("w") as shown:
        plan = planned(loaded, cluster.devices, policy="fair")
        progress = PlainProgress(Console(file=shown))
        run_opening.start(plan, loaded.text, folder / "runs", progress, machines=cluster, signals=CommandSignals())


if __name__ == "__main__":  # the run of `scale`
    _run(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
