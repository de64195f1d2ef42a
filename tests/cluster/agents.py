"""Runs on machines that are agents of this one: each has the processors, and a state folder of its own.

Agents are forked from a process that has loaded all that they load, as are their lane servers (`tests.warm`), unless a
test asks for the real command: one that is about the agent's process does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ecoshare.cluster.links import LineWriter, NodeStart, ProcessLink, agent_command
from ecoshare.cluster.node_cluster import held
from ecoshare.jobs.load import load
from ecoshare.record import run_documents
from ecoshare.record.run_folder import RunFolder
from ecoshare.reporting.progress import Silent
from ecoshare.runtime import run_opening
from ecoshare.runtime.nodes import cleanup
from ecoshare.runtime.run_lifecycle import FinishedRun
from ecoshare.runtime.signals import CommandSignals
from tests.planning import planned
from tests.runtime.running import SCRIPTS, alone, job_file
from tests.warm import Started, wait_for

LEASE_S = 5.0


class Forked:
    """Agent that is forked from a process which has loaded everything, with what a link uses of `subprocess.Popen`."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], said: int) -> None:
        """Start it; its errors go to the descriptor `said`."""
        (theirs, ours), (out, told) = os.pipe(), os.pipe()
        self._lock, self.stdin, self.stdout = threading.Lock(), os.fdopen(ours, "wb"), os.fdopen(out, "rb")
        options: dict[str, Any] = {"environment": environment, "new_session": True}
        self._started = Started("agent", *words, **options, stdin=theirs, stdout=told, stderr=said)
        for each in (theirs, told):
            os.close(each)
        self.pid, self.kill = self._started.pid, self._started.kill

    def wait(self, timeout: float = 180.0) -> int:
        """Exit code; the thread that reads asks for it too."""
        until_s = time.monotonic() + timeout
        while True:
            with self._lock:
                code = self._started.poll()
            if code is not None:
                return code
            if time.monotonic() > until_s:
                raise subprocess.TimeoutExpired("agent", timeout)
            time.sleep(0.005)


class WarmLink(ProcessLink):
    """Link to such an agent."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        process: Any = Forked(words, environment, self._said.fileno())
        self._process, self._reader = process, None
        self._writer = LineWriter(self._write, process.stdin.close)


def agent(
    folder: Path,
    name: str,
    started: dict[str, ProcessLink],
    device: str = "cpu",
    variables: Mapping[str, str] = MappingProxyType({}),
    unpacked: Path | None = None,
    cold: bool = False,
) -> ProcessLink:
    """Start an agent, and put its link into `started`.

    Args:
        folder: Folder that gets the state of the agent.
        name: Name of the node.
        started: Links of the agents.
        device: Device of the node.
        variables: Further variables of its environment.
        unpacked: Folder that was shipped to the node; None if none was.
        cold: Start the real command.
    """
    options = ["--device", device, *(["--unpacked", str(unpacked)] if unpacked is not None else [])]
    environment = {**os.environ, **variables, "ECOSHARE_STATE": str(folder / f"state-{name}")}
    if cold:
        started[name] = ProcessLink(agent_command(name, options), environment)
    else:
        started[name] = WarmLink([name, *options], environment)
    return started[name]


@dataclass(frozen=True)
class Looks:
    """Nodes that come; see `LookForNodes`."""

    names: Callable[[], Sequence[str]]
    start: Callable[[str], NodeStart]
    asked: Callable[[int], None]

    def present(self) -> list[NodeStart]:
        return [self.start(name) for name in self.names()]

    def ask(self, nodes: int) -> None:
        self.asked(nodes)


def run_on(
    folder: Path,
    jobs: Sequence[dict[str, Any]],
    names: Sequence[str] = ("n0", "n1"),
    begun: Callable[[dict[str, ProcessLink]], None] = lambda _started: None,
    policy: str = "fair",
    device: str = "cpu",
    variables: Callable[[str], Mapping[str, str]] = lambda _name: {},
    coming: Callable[[], Sequence[str]] | None = None,
    shipped: Path | None = None,
    idle_s: float | None = None,
    given_back: Callable[[str], None] | None = None,
    asked: Callable[[int], None] = lambda _nodes: None,
    cold: bool = False,
    **options: Any,
) -> FinishedRun:
    """Run jobs on agents.

    Args:
        folder: Folder of the run and of the states of the agents.
        jobs: The jobs.
        names: Names of the nodes.
        begun: Called with the links of the agents before the run begins.
        policy: Name of the policy.
        device: Device of each node.
        variables: Returns further variables of the environment of an agent, by the name of its node.
        coming: Returns the names of nodes that are there after a while; None if none comes.
        shipped: Folder that is shipped to the nodes, of which each gets a copy; None if they share the file system.
        idle_s: Time (s) without a job after which a node is given back; None to keep all.
        given_back: Called with the name of a node that is given back; None if none may be.
        asked: Called with each number of nodes that the run asks for.
        cold: Start real agents, which load everything.
        options: Options of the plan.
    """
    loaded, started = load(job_file(folder, *jobs)), dict[str, ProcessLink]()

    unpacked = shutil.copytree(shipped, folder / "unpacked") if shipped is not None else None

    def start(name: str) -> NodeStart:
        begin = partial(agent, folder, name, started, device, variables(name), unpacked, cold)
        return NodeStart(name, "127.0.0.1", begin, None if given_back is None else partial(given_back, name))

    first = [start(name) for name in names]
    look = None if coming is None else Looks(coming, start, asked)
    with held(first, LEASE_S, LEASE_S, look, ship=shipped, idle_s=idle_s) as cluster:
        plan = planned(loaded, cluster, policy=policy, **options)
        begun(started)
        return run_opening.start(
            plan, loaded.text, folder / "runs", Silent(), machines=cluster, signals=CommandSignals()
        )


def states(done: FinishedRun) -> dict[str, tuple[str, int]]:
    """State and number of iterations of each job."""
    return {job.name: (job.state, job.iterations) for job in done.data.summary.jobs}


def strikes(
    blow: Callable[[ProcessLink], None], name: str, folder: Path, events: int = 4, job: str = ""
) -> Callable[[dict[str, ProcessLink]], None]:
    """Function that strikes the agent of a node in a thread, once the jobs, or a job, have told progress some times."""

    def told(line: bytes) -> bool:
        return b'"IterationsDone"' in line and f'"job": "{job}'.encode() in line

    def begun(started: dict[str, ProcessLink]) -> None:
        threading.Thread(target=strike, args=(started[name],), daemon=True).start()

    def strike(link: ProcessLink) -> None:
        log = folder / "runs" / "latest" / "events.jsonl"
        wait_for(lambda: log.exists() and sum(map(told, log.read_bytes().splitlines())) >= events)
        blow(link)

    return begun


def lasting(folder: Path) -> list[dict[str, Any]]:
    """Two jobs that last until there is a file `go` in the folder."""
    script = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists():\n    time.sleep(0.02)\n"
    (folder / "lasts.py").write_text(script)
    job = {"script": str(folder / "lasts.py"), "args": [str(folder / "go")]}
    return [{"name": f"j{number}", **job} for number in range(2)]


def starts(log: Path) -> int:
    """Number of starts of jobs, by the log of the run."""
    return log.read_bytes().count(b'"StartJob"')


def members(run: Path) -> list[int]:
    """Processes of the nodes of a run that are left, by its run folder."""
    nodes = run_documents.read_environment(RunFolder(run).environment)["nodes"]
    assert nodes, "the run names its nodes"
    return [process for node in nodes.values() for process in cleanup.members(node["token"])]


def check_alike(run: Path, names: Sequence[str], steps: int, ms: int) -> None:
    """Check that jobs of `slow_steps.py` have printed the same bits in a run, by its folder, as alone."""
    code, stdout = alone(SCRIPTS / "slow_steps.py", ("--steps", str(steps), "--ms", str(ms)), run)
    assert code == 0
    for name in names:
        assert (RunFolder(run).job(name) / "stdout.log").read_bytes() == stdout, name
