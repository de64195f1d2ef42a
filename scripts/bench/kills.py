"""Kills (SIGKILL) of any process in a run on two devices with a gang: nothing stays, and no job is lost.

::

    run ──► a kill at a random moment ──► the end of the run, at once or when it is done
                                          ├─ no process, no shared memory, no claim of a device is left
                                          └─ `ecoshare run --resume` ──► each job printed what it prints alone

The devices are two partitions of the processors. Each job may start once more; the ranks of the gang end together.
Most runs are forked from a process that has loaded everything. Every tenth is a command as a user starts it, and the
kill may then meet a server that loads.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ecoshare.lane.supervisor.gang import folder_of
from scripts.bench.benchmarking import JOBS, Figure, Options, keep_to, percentile, run_benchmark, say
from scripts.fuzz.commands import ended, judge, nothing_left, started, token_of
from scripts.fuzz.processes import processes
from scripts.fuzz.rounds import Lost
from tests.runtime.running import job_file, slow_steps, words
from tests.warm import Started, wait_for

KILLS, QUICK = 100, 4
ROLES = ("controller", "guard", "server", "job", "rank 0", "rank 1")
DEVICES = ("--device", "cpu/2")
LASTS_S, COLD_LASTS_S = 1.5, 6.0
"""Time (s) after the start of a run within which a process is killed; of a command that loads everything."""

COLD_EVERY = 10
LEFT_WITHIN_S, ENDS_WITHIN_S = 5.0, 90.0
"""Time (s) for all to be gone after the end of the controller; time limit of a command."""

Outputs = Mapping[str, bytes]
"""Output by job, and by rank of the gang."""


@dataclass
class Kill:
    """One round.

    Attributes:
        role: Process that was killed; empty if it had ended before.
        left_s: Time (s) from the end of the controller until nothing of the run was left.
        survived: Words on what stayed; empty if nothing did.
        lost: Jobs that were not completed after a resume.
        differ: Outputs that are not those of the jobs alone.
        fault: Any other promise that did not hold.
        story: Moment and process of the kill.
    """

    role: str = ""
    left_s: float = 0.0
    survived: str = ""
    lost: Sequence[str] = ()
    differ: Sequence[str] = ()
    fault: str = ""
    story: str = ""

    @property
    def is_good(self) -> bool:
        """Whether all promises held."""
        return not (self.survived or self.lost or self.differ or self.fault)


@dataclass
class Bench:
    """Folder of all rounds, and what each job prints alone."""

    folder: Path
    alone: dict[str, bytes] = field(default_factory=dict)

    def jobs(self) -> list[dict[str, Any]]:
        """A gang of two ranks and a job for each device, with a retry each."""
        gang = {"name": "gang", "script": str(JOBS / "gang_job.py"), "args": ["300"], "gpus": 2, "launch": "ranks"}
        return [{**gang, "retries": 1}, *(slow_steps(name, 60, 5, retries=1) for name in ("left", "right"))]

    def learn(self) -> None:
        """Run each job alone on the devices.

        Raises:
            RuntimeError: A job fails alone.
        """
        for job in self.jobs():
            (folder := self.folder / f"alone-{job['name']}").mkdir()
            done = started(*words(job_file(folder, job), *DEVICES), limit_s=ENDS_WITHIN_S)
            if done.code:
                raise RuntimeError(done.stderr[-2000:])
            self.alone.update(outputs(folder / "ecoshare-runs" / "latest", [job]))

    def kill(self, number: int) -> Kill:
        """Play one round; the number is the seed of all that it draws."""
        dice, one = random.Random(number), Kill()
        cold = number % COLD_EVERY == COLD_EVERY - 1
        at_s, role = dice.uniform(0.0, COLD_LASTS_S if cold else LASTS_S), ROLES[number % len(ROLES)]
        (folder := self.folder / f"round-{number}").mkdir()
        run = folder / "ecoshare-runs" / "latest"
        process = Started(*words(job_file(folder, *self.jobs()), *DEVICES), new_session=True, cold=cold)
        try:
            self._play(one, process, run, role, at_s)
        except Lost as lost:
            one.fault = f"{lost.finding}: {lost.detail[-1500:]}"
        finally:
            if process.poll() is None:
                process.kill()
        one.story = f"SIGKILL to the {role} after {at_s:.2f} s{', cold' if cold else ''}"
        return one

    def _play(self, one: Kill, process: Started, run: Path, role: str, at_s: float) -> None:
        began_s = time.monotonic()
        if role != "controller":  # else many kills would find no process yet
            with contextlib.suppress(AssertionError):
                wait_for(lambda: process.poll() is not None or victim(process.pid, run, role), ENDS_WITHIN_S)
            began_s = time.monotonic()
        while time.monotonic() - began_s < at_s and process.poll() is None:
            time.sleep(0.01)
        pid = victim(process.pid, run, role) if process.poll() is None else 0
        with contextlib.suppress(ProcessLookupError):
            if pid:
                os.kill(pid, signal.SIGKILL)
                one.role = role
        done = ended(process, ENDS_WITHIN_S)
        ended_s = time.monotonic()
        if done.code != -signal.SIGKILL or one.role != "controller":
            judge(done, codes=(0,))
        if (run / "environment.json").is_file():
            one.survived = still_there(token_of(run))
            one.left_s = time.monotonic() - ended_s
        if not (run / "plan.json").is_file():
            return  # the run had not begun: the plan is written last
        if one.role == "controller":
            resumed = started("run", "--resume", run.resolve(), "--json", "--no-report", limit_s=ENDS_WITHIN_S)
            judge(resumed, codes=(0,))
            one.survived = one.survived or still_there(token_of(run))
        found = outputs(run, self.jobs())
        one.lost = [name for name in self.alone if not found[name]]
        one.differ = [name for name in self.alone if found[name] and found[name] != self.alone[name]]


def victim(controller: int, run: Path, role: str) -> int:
    """Process with this role; 0 if it is not there."""
    if role == "controller":
        return controller
    found = processes(controller, run)
    if role in found and role != "job":
        return found[role][0]
    for pid in found.get("job", []):
        with contextlib.suppress(OSError):
            if _role(Path(f"/proc/{pid}/fd/1").readlink(), run.resolve() / "jobs") == role:
                return pid
    return 0


def _role(output: Path, jobs: Path) -> str:
    """Role of the process with this output."""
    gang = jobs / "gang"
    ranks = {gang: "rank 0", folder_of(gang, 1): "rank 1"}
    return ranks.get(output.parent, "job" if output.parent.parent == jobs else "")


def still_there(token: str) -> str:
    """Words on what is left of a run that is over: a process, shared memory, or the claim of a device.

    Empty if nothing is left, or if all is gone within some seconds.
    """
    try:
        nothing_left(token, LEFT_WITHIN_S)
    except Lost as lost:
        return f"{lost.finding}: {lost.detail}"
    held = [path.name for path in Path(os.environ["ECOSHARE_STATE"]).glob("*.run") if is_locked(path)]
    return f"a claim stays: {held}" if held else ""


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of a file."""
    with contextlib.suppress(FileNotFoundError), path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def outputs(run: Path, jobs: Sequence[Mapping[str, Any]]) -> Outputs:
    """Output of the last attempt of each job and of the gang's second rank; empty where there is none."""
    places = {str(job["name"]): run / "jobs" / job["name"] for job in jobs}
    places |= {f"{name}, rank 1": folder_of(place, 1) for name, place in places.items() if name == "gang"}
    logs = {name: place / "stdout.log" for name, place in places.items()}
    return {name: log.read_bytes() if log.exists() else b"" for name, log in logs.items()}


def measure(options: Options) -> list[Figure]:
    """All figures."""
    if len(os.sched_getaffinity(0)) < 2:
        return [Figure("kills", None, "", note="two devices take two processors")]
    count = QUICK if options.quick else KILLS
    with tempfile.TemporaryDirectory(prefix="bench-kills-") as name:
        keep_to(Path(name))
        bench = Bench(Path(name))
        bench.learn()
        began_s = time.monotonic()
        kills: list[Kill] = []
        while sum(bool(one.role) for one in kills) < count and len(kills) < 2 * count:
            kills.append(one := bench.kill(len(kills)))
            say(f"{len(kills)}, of {count} or more: {one.story}{'' if one.role else '; it had ended'}")
            if not one.is_good:
                say(f"  {one}")
        return figures(kills, time.monotonic() - began_s)


def figures(kills: Sequence[Kill], wall_s: float) -> list[Figure]:
    """Figures of all rounds."""
    hit = Counter(one.role for one in kills if one.role)
    by_role = ", ".join(f"{role} {number}" for role, number in sorted(hit.items()))
    note = f"{by_role}; in {len(kills)} runs, {wall_s / len(kills):.1f} s each"
    faults = [one.fault.partition("\n")[0] for one in kills if one.fault]
    return [
        Figure("processes killed", hit.total(), "", note=note),
        Figure("runs of which something stayed", sum(bool(one.survived) for one in kills), "", "<= 0"),
        Figure("longest time until nothing was left", max(one.left_s for one in kills), "s", f"<= {LEFT_WITHIN_S:g}"),
        Figure("the same, median", percentile([one.left_s for one in kills], 0.5), "s"),
        Figure("jobs lost after a resume", sum(len(one.lost) for one in kills), "", "<= 0"),
        Figure("outputs that differ from those alone", sum(len(one.differ) for one in kills), "", "<= 0"),
        Figure("runs that ended wrongly", len(faults), "", "<= 0", "; ".join(sorted(set(faults)))[:300]),
    ]


def main() -> None:
    """Run it from the command line."""
    run_benchmark("kills", __doc__, measure, Options)
