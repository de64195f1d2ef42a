"""Kills (SIGKILL) on a real Ray of three nodes: no job is lost, none runs twice, and nothing stays.

::

    run --on ray ──► two nodes are hit: a raylet, an actor or an agent ──► the run ends on the third node
    run --on ray ──► the run's process is hit ──► nothing is left ──► run --resume --on ray ──► two nodes are hit ...

Each moment is drawn by chance. Every fifth round draws it from the start of the command on, while nodes are opened; the
others from the start of the first job on. A run that loses a node before it has opened its nodes ends with one line,
and is gone on with like one that was killed. Each job locks a file, so that two attempts at one time are seen, and adds
a line to it at its end. Raylets that were hit are started again for the next round.

All nodes are this machine. The devices are the processors, which have no settings to put back.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ecoshare.base.disk import RUNS
from ecoshare.errors import UnfitEnvironment
from ecoshare.runtime.nodes import cleanup
from scripts.bench.benchmarking import JOBS, ROOT, Figure, percentile, say
from scripts.bench.kills import is_locked
from scripts.fuzz.commands import ended, judge
from scripts.fuzz.rounds import Lost
from tests.cluster.ray_cluster import RayCluster, ray_cluster
from tests.runtime.running import check, job_file
from tests.warm import Started, wait_for

KILLS, QUICK = 30, 1
"""Number of kills of each process."""

NODES = 3
OF_NODES = (("raylet", "actor"), ("raylet", "agent"), ("actor", "agent"))
"""Processes that are hit in one round, each on a node of its own."""

RUN = "run"
EARLY_EVERY = 5
LASTS_S, EARLY_LASTS_S = 6.0, 12.0
"""Time (s) from the first job, and from the start of the command, within which a process is hit."""

STEPS, PER_NODE = 250, 2
ENDS_WITHIN_S, LEFT_WITHIN_S = 180.0, 10.0
"""Time limit of a command; time (s) for all to be gone after its end, on nodes that have lost it, too."""

_MARK = "ECOSHARE_BENCH_ROUND"
"""Variable that marks the run of a round, its agents, and all that they start."""


Hit = tuple[float, str, str]
"""Moment (s) of a kill, the process, and its node."""


@dataclass
class ClusterRound:
    """One round.

    Attributes:
        story: Process and moment of each hit.
        hits: Processes that were hit; one that had ended before is not.
        again: Whether the run was gone on with.
        left_s: Time (s) from the end of a command until nothing of it was left; the longest.
        survived: Words on what stayed; empty if nothing did.
        lost: Jobs that did not complete.
        twice: Jobs that ran to their end twice, or two attempts of which ran at one time.
        differ: Jobs that did not print what they print alone.
        fault: Any other promise that did not hold.
    """

    story: str = ""
    hits: list[str] = field(default_factory=list)
    again: bool = False
    left_s: float = 0.0
    survived: str = ""
    lost: Sequence[str] = ()
    twice: Sequence[str] = ()
    differ: Sequence[str] = ()
    fault: str = ""

    @property
    def is_good(self) -> bool:
        """Whether all promises held."""
        return not (self.survived or self.lost or self.twice or self.differ or self.fault)


@dataclass
class ClusterKills:
    """Rounds on one cluster.

    Attributes:
        cluster: The cluster.
        folder: Folder of all rounds.
        state: State folder of the nodes.
        alone: Output of each job alone, by its name.
    """

    cluster: RayCluster
    folder: Path
    state: Path
    alone: Mapping[str, bytes]

    def play(self, number: int, sessions: Sequence[Sequence[str]]) -> ClusterRound:
        """Play one round.

        Args:
            number: Seed of all that the round draws.
            sessions: Processes that are hit in the first session of the run, and in later ones if it is gone on with.
        """
        dice, one = random.Random(number), ClusterRound()
        is_early = number % EARLY_EVERY == EARLY_EVERY - 1
        (folder := self.folder / f"round-{number}").mkdir()
        jobs = [{"name": name, **self._job(folder, name), "retries": 1} for name in self.alone]
        words: list[str] = ["run", str(job_file(folder, *jobs)), "--device", "cpu", "--policy", "fair", "--no-profiles"]
        try:
            for roles in (*sessions, ()):
                self.cluster.start()
                if self._session(one, folder, words, self._hits(dice, roles, is_early), is_early):
                    break
                one.again = True
                words = ["run", "--resume", str((folder / RUNS / "latest").resolve())]
            self._check(one, folder)
        except (Lost, AssertionError) as fault:
            one.fault = f"{fault}: {getattr(fault, 'detail', '')[-1500:]}"
        return one

    def _hits(self, dice: random.Random, roles: Sequence[str], is_early: bool) -> list[Hit]:
        """Moments of the kills of a session, in their order, each on a node of its own."""
        nodes = self.cluster.nodes[1:] if "raylet" in roles else self.cluster.nodes  # the head holds the cluster
        within_s = EARLY_LASTS_S if is_early else LASTS_S
        places = zip(roles, dice.sample(nodes, len(roles)), strict=True)
        return sorted((dice.uniform(0.0, within_s), role, node) for role, node in places)

    def _session(
        self, one: ClusterRound, folder: Path, words: Sequence[str], hits: Sequence[Hit], is_early: bool
    ) -> bool:
        """Play one session of the run. Return whether it has ended the run, which had begun.

        Raises:
            Lost: The command does not end, or not as it should.
        """
        environment = {**os.environ, "ECOSHARE_STATE": str(self.state), "PYTHONPATH": str(ROOT), _MARK: folder.name}
        options = ("--on", "ray", "--address", self.cluster.address, "--share-device", "--no-report")
        process = Started(*words, *options, cwd=folder, environment=environment, cold=True, new_session=True)
        try:
            is_killed = RUN in self._strike(one, process, folder, hits, is_early)
            done = ended(process, ENDS_WITHIN_S)
        finally:
            if process.poll() is None:
                process.kill()
        if not is_killed:
            judge(done, codes=(0, UnfitEnvironment.exit_code) if is_early and hits else (0,))
        self._look(one, folder)
        return done.code == 0 or not (folder / RUNS / "latest" / "plan.json").is_file()  # which is written last

    def _job(self, folder: Path, name: str) -> dict[str, Any]:
        told = folder / f"{name}.told"
        return {"script": str(JOBS / "lone_job.py"), "args": [str(told), str(STEPS), name.removeprefix("j")]}

    def _strike(
        self, one: ClusterRound, process: Started, folder: Path, hits: Sequence[Hit], is_early: bool
    ) -> list[str]:
        """Kill each process at its time, and return which were killed. One that is not there yet is waited for."""
        began_s, killed, whence = time.monotonic(), list[str](), "the command" if is_early else "the first job"
        if hits and not is_early:
            starts = _starts(log := folder / RUNS / "latest" / "events.jsonl")
            wait_for(lambda: process.poll() is not None or _starts(log) > starts, ENDS_WITHIN_S)
            began_s = time.monotonic()
        for at_s, role, node in hits:
            victim = 0
            while process.poll() is None and not victim:
                time.sleep(0.02)
                if time.monotonic() - began_s >= at_s:
                    victim = self._victim(process, folder, role, node)
            with contextlib.suppress(ProcessLookupError):
                if victim:
                    os.kill(victim, signal.SIGKILL)
                    killed.append(role)
                    one.story += f"{role if role == RUN else f'{role} of {node}'} {at_s:.2f} s after {whence}; "
        one.hits += killed
        return killed

    def _victim(self, process: Started, folder: Path, role: str, node: str) -> int:
        """Process with a role; 0 if it is not there."""
        match role:
            case "raylet":
                return self.cluster.raylet(node)
            case "actor":
                return next(iter(self.cluster.actors(node)), 0)
            case "agent":
                words = f"ecoshare\0agent\0{node}\0".encode()
                marked = [pid for pid in _marked(folder) if words in _line(pid)]
                return next(iter(marked), 0)
        return process.pid

    def _check(self, one: ClusterRound, folder: Path) -> None:
        """Look at what the jobs of a run that is over have done."""
        if not (run := folder / RUNS / "latest" / "plan.json").is_file():
            return  # it was killed before it had begun
        check(run := run.parent)
        states = {job["name"]: job["state"] for job in json.loads((run / "summary.json").read_text())["jobs"]}
        one.lost = [name for name in self.alone if states.get(name) != "completed"]
        one.twice = [name for name in self.alone if (folder / f"{name}.told").read_text() != "done\n"]
        outputs = {name: (run / "jobs" / name / "stdout.log").read_bytes() for name in self.alone}
        one.differ = [name for name, alone in self.alone.items() if outputs[name] != alone]

    def _look(self, one: ClusterRound, folder: Path) -> None:
        """Wait until nothing is left of a command that has ended."""
        ended_s = time.monotonic()
        while left := self._left(folder):
            if time.monotonic() - ended_s > LEFT_WITHIN_S:
                one.survived = one.survived or left
                for pid in _marked(folder):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                return
            time.sleep(0.05)
        one.left_s = max(one.left_s, time.monotonic() - ended_s)

    def _left(self, folder: Path) -> str:
        """Words on what is there of the commands of a round: processes, shared memory, claims."""
        found = [f"{pid} {_line(pid)[:200]!r}" for pid in _marked(folder)]
        found += [f"actor {pid}" for pid in self.cluster.actors()]
        with contextlib.suppress(OSError, ValueError):
            nodes = json.loads((folder / RUNS / "latest" / "environment.json").read_text()).get("nodes", {})
            tokens = [node["token"] for node in nodes.values()]
            found += [f"folder of {token}" for token in tokens if cleanup.shared_path(token).exists()]
        held = [path.name for path in self.state.glob("*.run") if is_locked(path)]
        return "; ".join([*found, *(f"claim {name}" for name in held)])


def _starts(log: Path) -> int:
    return log.read_bytes().count(b'"StartJob"') if log.exists() else 0


def _marked(folder: Path) -> list[int]:
    """Processes that began with the mark of this folder in their environment."""
    wanted, found = f"{_MARK}={folder.name}".encode(), []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # gone
                if wanted in Path(entry.path, "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def _line(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def outputs_alone(folder: Path) -> dict[str, bytes]:
    """Output of each job alone, by its name."""
    found = {}
    for number in range(NODES * PER_NODE):
        script = [str(JOBS / "lone_job.py"), str(folder / f"alone-{number}"), str(STEPS), str(number)]
        found[f"j{number}"] = subprocess.run([sys.executable, *script], capture_output=True, check=True).stdout
    return found


class Rounds:
    """Rounds until each process was hit often enough. Clusters beside each other share it.

    Attributes:
        rounds: Rounds that are over.
    """

    def __init__(self, count: int, first: int, within_s: float = math.inf) -> None:
        """No round yet.

        Args:
            count: Number of kills of each process.
            first: Number of the first round.
            within_s: Time (s) after which no round begins.
        """
        self.rounds: list[ClusterRound] = []
        self._until_s = time.monotonic() + within_s
        self._count, self._first, self._most = count, first, first + 5 * count
        self._number, self._hit = itertools.count(first), Counter[str]()

    def next(self) -> tuple[int, list[Sequence[str]]] | None:
        """Number and sessions of the next round; None if there is none, or if the time is over."""
        pairs = [roles for roles in OF_NODES if any(self._hit[role] < self._count for role in roles)]
        is_run_left = self._hit[RUN] < self._count
        number = next(self._number)
        if not (pairs or is_run_left) or number >= self._most or time.monotonic() > self._until_s:
            return None
        pair: list[Sequence[str]] = [pairs[number % len(pairs)]] if pairs else []
        return number, [(RUN,), *pair] if is_run_left else pair

    def over(self, one: ClusterRound) -> None:
        """Take the result of a round."""
        self.rounds.append(one)
        self._hit.update(one.hits)
        say(f"{len(self.rounds)}: {one.story}{'' if one.is_good else f'  {one}'}")


def kills(folder: Path, count: int, seed: int = 0, clusters: int = 1, within_s: float = math.inf) -> list[Figure]:
    """Figures of kills of each process.

    Args:
        folder: Folder for all rounds.
        count: Number of kills of each process.
        seed: Number of the first round.
        clusters: Number of clusters beside each other, each with rounds of its own.
        within_s: Time (s) after which no round begins.
    """
    alone, plan, began_s = outputs_alone(folder), Rounds(count, seed, within_s), time.monotonic()

    def play_on(network: int) -> None:
        (state := folder / f"state-{network}").mkdir()
        with ray_cluster(NODES, network) as cluster:
            while (what := plan.next()) is not None:
                plan.over(ClusterKills(cluster, folder, state, alone).play(*what))

    with ThreadPoolExecutor(clusters) as pool:
        list(pool.map(play_on, range(clusters)))
    return figures(plan.rounds, time.monotonic() - began_s)


def figures(rounds: Sequence[ClusterRound], wall_s: float) -> list[Figure]:
    hit = Counter(role for one in rounds for role in one.hits)
    again = sum(one.again for one in rounds)
    faults = [one.fault.partition("\n")[0] for one in rounds if one.fault]
    good = (
        f"{sum(one.is_good for one in rounds)} of {len(rounds)} rounds kept all promises; "
        f"{again} runs were gone on with; {wall_s / len(rounds):.0f} s a round"
    )
    return [
        *(Figure(f"{role}: kills", hit[role], "") for role in ("raylet", "actor", "agent", RUN)),
        Figure("rounds with a broken promise", sum(not one.is_good for one in rounds), "", "<= 0", good),
        Figure("jobs lost", sum(len(one.lost) for one in rounds), "", "<= 0"),
        Figure("jobs run twice", sum(len(one.twice) for one in rounds), "", "<= 0"),
        Figure("outputs that differ from those alone", sum(len(one.differ) for one in rounds), "", "<= 0"),
        Figure("rounds of which something stayed", sum(bool(one.survived) for one in rounds), "", "<= 0"),
        Figure("longest time until nothing was left", max(one.left_s for one in rounds), "s", "<= 5"),
        Figure("the same, median", percentile([one.left_s for one in rounds], 0.5), "s"),
        Figure("commands that ended wrongly", len(faults), "", "<= 0", "; ".join(sorted(set(faults)))[:300]),
    ]
