"""Comparison of policies on many traces."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import ecoshare
from ecoshare.api.simulate_trace import SimulateRequest
from ecoshare.errors import UsageError
from ecoshare.reporting.tables.comparison_table import print_comparison
from ecoshare.simulation.result import ComparedRun, Comparison
from tests.warm import COLD, Started, wait_for

REQUEST = SimulateRequest(generate="philly", jobs=20, gpus=4, seed=5, policies=["fifo", "srtf"])


@pytest.mark.nightly
def test_each_policy_is_simulated_on_each_trace_as_by_itself() -> None:
    ended = []
    found = ecoshare.compare(REQUEST, seeds=3, watch=lambda done, of: ended.append((done, of)))
    assert ended == [(number, 6) for number in range(1, 7)]
    assert [(run.policy, run.seed) for run in found.runs] == [
        (name, seed) for name in found.policies for seed in (5, 6, 7)
    ]
    for seed in found.seeds:
        alone = ecoshare.simulate(generate="philly", jobs=20, gpus=4, seed=seed, policies=["fifo", "srtf"])
        both = [run.figures for run in found.runs if run.seed == seed]
        assert both == [result.as_dict() for result in alone.results]


@pytest.mark.nightly
def test_the_command_prints_one_object() -> None:
    words = (
        "simulate",
        "--generate",
        "philly",
        "--jobs",
        "10",
        "--gpus",
        "4",
        "--policy",
        "fifo,srtf",
        "--compare",
        "2",
    )
    done = Started(*words, "--json").done()
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert [(run["policy"], run["seed"]) for run in json.loads(done.stdout)["runs"]] == [
        ("fifo", 0),
        ("fifo", 1),
        ("srtf", 0),
        ("srtf", 1),
    ]


@pytest.mark.slow
def test_ctrl_c_ends_all_processes_and_is_told_in_one_line(tmp_path: Path) -> None:
    words = ("simulate", "--generate", "philly", "--jobs", "3000", "--gpus", "32", "--compare", "50")
    run = subprocess.Popen([*COLD, *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    workers = Path(f"/proc/{run.pid}/task/{run.pid}/children")
    wait_for(lambda: len(workers.read_text().split()) > 2)  # joblib's trackers are the first ones
    os.killpg(run.pid, signal.SIGINT)
    _, errors = run.communicate(timeout=30)
    assert (run.returncode, errors) == (130, "error: interrupted\n")
    wait_for(lambda: not any(psid(path) == run.pid for path in Path("/proc").glob("[0-9]*")))


def psid(path: Path) -> int:
    """Session of a process."""
    try:
        return int((path / "stat").read_text().rpartition(")")[2].split()[3])
    except OSError:
        return 0


def test_mistakes_are_told_before_any_process_starts() -> None:
    with pytest.raises(UsageError, match="a trace from a file has no seeds"):
        ecoshare.compare(SimulateRequest(trace="jobs.csv"), seeds=2)
    with pytest.raises(UsageError, match="seeds=0: expected at least 1"):
        ecoshare.compare(REQUEST, seeds=0)
    with pytest.raises(UsageError, match="expected one of"):
        ecoshare.compare(SimulateRequest(generate="philly", policies=["none"]), seeds=2)


def made(*mean_jcts_s: list[float | None]) -> Comparison:
    """Comparison with a mean JCT (s) of each policy on each trace."""
    policies = ("first", "second")[: len(mean_jcts_s)]
    figures = {"p99_jct_s": 9.0, "makespan_s": 60.0, "energy_j": 0.0}
    runs = tuple(
        ComparedRun(policy, seed, {"mean_jct_s": value, **figures}, 1.0)
        for policy, values in zip(policies, mean_jcts_s, strict=True)
        for seed, value in enumerate(values)
    )
    return Comparison(policies, tuple(range(len(mean_jcts_s[0]))), runs, "joules: made")


def shown(found: Comparison, width: int) -> str:
    out = StringIO()
    print_comparison(found, Console(file=out, width=width, force_terminal=True, color_system=None, highlight=False))
    return out.getvalue()


def test_ratios_are_of_the_same_trace() -> None:
    found = made([2.0, 8.0, 4.0], [4.0, 4.0, 4.0])
    assert found.ratios("second", "mean_jct_s") == [2.0, 0.5, 1.0]
    assert found.ratios("second", "energy_j") is None, "nothing is a part of 0 J"
    lines = shown(found, 120).splitlines()
    assert lines[2].split()[:3] == ["first", "4", "s"] and "1 (0.6 to 1.8)" in lines[3]
    assert "Medians of 3 traces, with seeds 0 to 2." in lines


def test_a_figure_that_is_not_known_of_each_trace_is_left_open() -> None:
    found = made([2.0, None], [1.0, 2.0])
    assert found.values("first", "mean_jct_s") is None and found.ratios("second", "mean_jct_s") is None
    assert shown(found, 120).splitlines()[2].split()[:3] == ["first", "-", "1"]


def test_a_narrow_terminal_gets_several_tables() -> None:
    text = shown(made([2.0, 8.0], [4.0, 4.0]), 50)
    assert max(map(len, text.splitlines())) <= 50
    assert text.count("first") == text.count("policy") + 1 > 2, "each table has the names; a line below names the first"
