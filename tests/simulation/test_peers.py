"""Simulations against the results of the peers' own simulators (their folder in `ECOSHARE_DATA`), job by job.

Traces and results are public and no part of this project: without the folder all of this is skipped, and says so.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from ecoshare.simulation.cluster import Cluster
from ecoshare.simulation.traces.any_trace import read
from scripts.bench import simulate_peers as peers
from scripts.bench.simulate_peers import Bench, Case, Outcome, differing, ours, with_gaps

ROOT = Path(__file__).parents[2]

NOTHING = hashlib.sha256().hexdigest()

pytestmark = pytest.mark.skipif(
    "ECOSHARE_DATA" not in os.environ, reason="ECOSHARE_DATA names no folder with the traces and the peers' results"
)


def data() -> Path:
    return Path(os.environ["ECOSHARE_DATA"])


@cache
def bench(name: str) -> Bench:
    """Trace by its name, or the beginning of the whole Philly trace, which has no published result."""
    if name == "philly":
        trace = read(data() / "philly" / "philly_jobs.csv")
        beginning = replace(trace, jobs=trace.jobs[:15_000])
        return Bench(beginning, Cluster(50, 8, peers.GPU), lambda _policy: Outcome({}))
    return peers.BENCHES[name](data())


def case(of: str, policy: str) -> Case:
    return next(each for each in peers.CASES if (each.bench, each.policy) == (of, policy))


@pytest.mark.parametrize("policy", ["fifo", "smallest", "srtf", "srsf"])
def test_every_job_has_the_jct_that_tiresias_own_simulator_gives_it(policy: str) -> None:
    one, where = case("philly480", policy), bench("philly480")
    found, theirs = ours(one, where, data()), where.theirs(one.theirs)
    assert len(theirs.jcts_s) == len(found.jcts_s) == 480
    assert differing(found, theirs) == []
    assert found.figures["makespan"] == pytest.approx(theirs.figures["makespan"], abs=peers.EXACT_S)


def test_the_mean_jct_under_las_is_near_that_of_tiresias_own_simulator() -> None:
    one, where = case("philly480", "tiresias"), bench("philly480")
    found, theirs = ours(one, where, data()), where.theirs(one.theirs)
    assert found.figures["mean JCT"] == pytest.approx(theirs.figures["mean JCT"], rel=0.02)
    assert differing(found, theirs), "theirs demotes jobs of several GPUs late, and ours must not"


def test_fifo_on_one_gpu_never_lets_it_idle() -> None:
    where = bench("gavel30")
    found = ours(case("gavel30", "fifo"), where, data())
    free_s, jcts_s = 0.0, {}
    for job in where.trace.jobs:
        free_s = max(free_s, job.arrival_s) + job.service_s
        jcts_s[job.name] = free_s - job.arrival_s
    assert found.jcts_s == pytest.approx(jcts_s, abs=1e-5)


def test_gavels_fifo_is_ours_with_its_gaps() -> None:
    where = bench("gavel30")
    found, theirs = with_gaps(where.trace), where.theirs("fifo")
    assert found.figures == pytest.approx(theirs.figures, abs=0.001)


@pytest.mark.nightly
def test_our_own_planner_is_within_what_is_wanted_of_one() -> None:
    figures = peers.own_planner(bench("shockwave120"), data())
    assert len(figures) == 4 and all(figure.met for figure in figures), figures


def digest(of: str, policy: str) -> str:
    """Digests of all events and commands of a case, in their order."""
    found = hashlib.sha256()
    one = next((each for each in peers.CASES if (each.bench, each.policy) == (of, policy)), Case(of, policy, "", ()))
    ours(one, bench(of), data(), lambda event, commands: found.update(repr((event, commands)).encode()))
    return found.hexdigest()


def in_a_fresh_process(of: str, policy: str, hash_seed: str) -> str:
    program = f"from tests.simulation.test_peers import digest; print(digest({of!r}, {policy!r}))"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("policy", ["tiresias"])
def test_decisions_on_a_long_trace_do_not_depend_on_the_process(policy: str) -> None:
    first, second = (in_a_fresh_process("philly", policy, seed) for seed in ("1", "2"))
    assert first == second != NOTHING
