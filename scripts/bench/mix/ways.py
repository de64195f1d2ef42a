"""Ways in which gpu_check.py runs its mix: plain processes after or beside each other, and ecoshare."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ecoshare.errors import UnfitEnvironment
from scripts.bench.benchmarking import ROOT, say
from scripts.bench.job_file import JobEntry, write_jobs
from scripts.bench.mix.bench import JOB, LOOK_EVERY_S, START_S, Bench, Job, Way, WayFailed, last_line, private_daemon

ECOSHARE = ("--policy", "energy", "--lanes", "3", "--control", "off", "--json", "--no-report")
BASE, OURS, AGAIN = "one after the other", "ecoshare", "ecoshare again"

SLOWER = 1.5
"""Time of a way over the time one after the other, after which it is given up."""

REST_S = 3.0
"""Pause (s) before each way, so that a GPU has left the clocks of the way before."""


def all_ways(bench: Bench, jobs: Sequence[Job], length_s: float) -> dict[str, Way | str]:
    """Result of each way, or the reason why it has none."""
    runs: dict[str, Callable[[float], Way]] = {
        BASE: lambda limit_s: metered(bench, lambda: one_after_the_other(bench, jobs, limit_s)),
        OURS: lambda limit_s: metered(bench, lambda: shared(bench, jobs, limit_s)),
        "MPS": lambda limit_s: with_mps(bench, jobs, limit_s),
        "time slices": lambda limit_s: metered(bench, lambda: at_once(bench, jobs, bench.environment, limit_s)),
    }
    # Ours before the others at once: on a slow GPU there is no time for all.
    usual_s, least_s = len(jobs) * (length_s + START_S), length_s + START_S
    ways: dict[str, Way | str] = {}

    def go(name: str, run: Callable[[float], Way], least_s: float) -> Way | str:
        limit_s = min(SLOWER * usual_s, bench.left_s() - REST_S)
        ways[name] = found = _tried(bench, run, limit_s) if limit_s >= least_s else "no time is left for it"
        say(f"mix, {name}: {found if isinstance(found, str) else f'{found.time_s:.1f} s, {found.energy_j} J'}")
        return found

    for name, run in runs.items():
        found = go(name, run, least_s)
        if name == BASE and isinstance(found, Way):
            usual_s = found.time_s
    if isinstance(ours := ways[OURS], Way):
        go(AGAIN, runs[OURS], ours.time_s)
    return ways


def _tried(bench: Bench, run: Callable[[float], Way], limit_s: float) -> Way | str:
    """Result of a way, or the reason why it fails."""
    try:
        if bench.device.kind != "cpu":
            time.sleep(REST_S)
        return run(limit_s)
    except (WayFailed, UnfitEnvironment) as failed:
        return str(failed)
    except OSError as error:
        return f"it could not be run: {error}"


def metered(bench: Bench, run: Callable[[], Way]) -> Way:
    """Result of a way, with the energy of the device from its beginning to its end.

    Raises:
        MeterFault: The meter gave no number.
    """
    if bench.meter is None:
        return run()
    before = bench.meter.read()
    way = run()
    return replace(way, energy_j=bench.meter.read().energy_j - before.energy_j)


def one_after_the_other(bench: Bench, jobs: Sequence[Job], limit_s: float) -> Way:
    """Run each job alone on the device, in the order of the mix.

    Raises:
        WayFailed: A job fails, or they are not done in time.
    """
    began_s = time.monotonic()
    printed: dict[str, bytes] = {}
    jcts_s = []
    for job in jobs:
        way = at_once(bench, [job], bench.environment, limit_s - (time.monotonic() - began_s))
        printed.update(way.printed)
        jcts_s.append(time.monotonic() - began_s)
    return Way(jcts_s[-1], jcts_s, printed)


def at_once(bench: Bench, jobs: Sequence[Job], environment: Mapping[str, str], limit_s: float) -> Way:
    """Run all jobs beside each other as plain processes.

    Raises:
        WayFailed: A job fails, or they are not done in time; none of them is left.
    """
    began_s = time.monotonic()
    running: dict[str, subprocess.Popen[bytes]] = {}
    jcts_s: dict[str, float] = {}
    try:
        for job in jobs:
            line = [sys.executable, *job.command(bench.device.kind)]
            with bench.written(job.kind, "out").open("wb") as out, bench.written(job.kind, "err").open("wb") as err:
                running[job.kind] = subprocess.Popen(line, stdout=out, stderr=err, env=dict(environment))
        while len(jcts_s) < len(jobs):
            for kind, process in running.items():
                if kind not in jcts_s and process.poll() is not None:
                    jcts_s[kind] = time.monotonic() - began_s
                    if process.returncode:
                        raise WayFailed(f"{kind}: {last_line(bench.written(kind, 'err').read_text())}")
            if time.monotonic() - began_s > limit_s:
                raise WayFailed(f"not done after {limit_s:.0f} s")
            time.sleep(LOOK_EVERY_S)
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    printed = {job.kind: bench.written(job.kind, "out").read_bytes() for job in jobs}
    return Way(max(jcts_s.values()), list(jcts_s.values()), printed)


def with_mps(bench: Bench, jobs: Sequence[Job], limit_s: float) -> Way:
    """Run all jobs beside each other as clients of an MPS daemon of our own; its start and end do not count.

    Raises:
        WayFailed: There is no GPU, or for the causes of `at_once`.
        UnfitEnvironment: The daemon does not come up.
    """
    if bench.device.kind == "cpu":
        raise WayFailed("processors have no MPS")
    with private_daemon(bench) as daemon:
        clients = {name: value or "" for name, value in daemon.environment.items()}
        return metered(bench, lambda: at_once(bench, jobs, {**bench.environment, **clients}, limit_s))


def shared(bench: Bench, jobs: Sequence[Job], limit_s: float) -> Way:
    """Run the real command; its profiles are kept for the next call.

    The JCT of each job includes the command's own start and end.

    Raises:
        WayFailed: The command or a job fails, or it is not done in time.
    """
    listed: list[JobEntry] = [
        {"name": job.kind, "script": str(JOB), "args": job.command(bench.device.kind)[1:], "iterations": job.steps}
        for job in jobs
    ]
    path, runs = write_jobs(bench.folder, listed), bench.folder / "runs"
    line = [sys.executable, "-m", "ecoshare", "run", str(path), *ECOSHARE, "--device", bench.device.name]
    line += ["--runs", str(runs), "--profiles", str(bench.folder / "profiles")]
    began_s = time.monotonic()
    try:
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=limit_s, cwd=ROOT)
    except subprocess.TimeoutExpired:
        raise WayFailed(f"not done after {limit_s:.0f} s") from None
    time_s = time.monotonic() - began_s
    if not done.stdout:
        raise WayFailed(last_line(done.stderr))
    summary = json.loads(done.stdout)
    if bad := [f"{job['name']}: {job['error']}" for job in summary["jobs"] if job["state"] != "completed"]:
        raise WayFailed("; ".join(bad))
    around_s = max(0.0, time_s - summary["makespan_s"])
    jcts_s = [job["jct_s"] + around_s for job in summary["jobs"]]
    printed = {job.kind: (runs / "latest" / "jobs" / job.kind / "stdout.log").read_bytes() for job in jobs}
    own = summary["energy"]
    evidence = json.loads((runs / "latest" / "environment.json").read_text()).get("mps", "")
    own_j = own["value_j"] if own and own["source"] == "measured" else None
    return Way(time_s, jcts_s, printed, own_j=own_j, note=evidence)
