"""Chains of allocations of a real Slurm: one run goes through several of them, whatever is killed on the way."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.saving_job import saving_job, what_it_wrote
from tests.cluster.slurm_cluster import is_installed, slurm
from tests.cluster.test_slurm_run import asked, ecoshare, state
from tests.warm import ROOT, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not is_installed(), reason="Slurm is not installed: apt-get install slurm-wlm"),
]

# Slurm counts limits in minutes. A successor is submitted after 40 s, and takes over once its predecessor has worked
# for 50 s, which even a busy machine needs to begin.
SHORT = ("--time", "2min", "--stop-before", "20s", "--margin", "1min", "--predictor", "planned")
RUN = ("--", "--policy", "fair", "--no-profiles", "--no-report", "--share-device")


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, str]]:
    """Environment of commands on a cluster of two nodes."""
    with slurm(2) as conf:
        yield {**os.environ, "SLURM_CONF": str(conf), "PYTHONPATH": str(ROOT)}


def record(folder: Path) -> dict[str, Any]:
    path = folder / "ecoshare-runs" / "chain-jobs" / "chain.json"
    return dict(json.loads(path.read_text())) if path.exists() else {"allocations": [], "outcome": None}


def jobs(folder: Path) -> list[int]:
    """Slurm jobs of the allocations, as far as they are known."""
    return [each["job"] for each in record(folder)["allocations"] if each["job"] is not None]


def queued(environment: dict[str, str]) -> list[str]:
    said = subprocess.run(["squeue", "--me", "-h", "-o", "%i"], env=environment, capture_output=True, text=True)
    return said.stdout.split()


def ended(command: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code of a command that ends by itself, and what it wrote to stderr."""
    said = command.communicate()[1]
    return command.returncode, said


def batch_process(folder: Path) -> int:
    """Process that the batch script of the chain in a folder has become."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().decode(errors="replace").split("\0")
            if "chain-allocation" in words and str(folder / "ecoshare-runs" / "chain-jobs") in words:
                return int(path.parent.name)
    raise AssertionError("no allocation of the chain runs")


def check_iterations(folder: Path, sessions: int) -> None:
    """Check that no iteration is missing, or was recorded twice beyond what the checkpoint says."""
    found = what_it_wrote(folder)
    assert (found.sessions, found.beyond, found.missing) == (sessions, 0, 0), found
    # It saves itself every second, at 20 iterations a second at most; a busy machine stops it later than asked.
    assert found.repeated <= 60 * (sessions - 1), found


@pytest.mark.nightly
def test_a_run_goes_through_several_allocations(cluster: dict[str, str], tmp_path: Path) -> None:
    saving_job(tmp_path, 20, sessions=3)
    done = ecoshare(tmp_path, cluster, "slurm", "chain", "jobs.yaml", *SHORT, "--json", *RUN)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["outcome"] == "done" and len(found["allocations"]) >= 3, found["allocations"]
    check_iterations(tmp_path, 3)
    # One that was submitted in the last moment need not have started.
    started = [each["number"] for each in found["allocations"] if each["started_s"] is not None]
    assert [each["number"] for each in found["passages"]] == started[1:]
    assert found["overlap_s"] > 0.0 and found["overlap_j"] > 0.0 and found["overlap_source"] == "modelled"
    wait_for(lambda: all(state(int(each), cluster) == "COMPLETING" for each in queued(cluster)))
    assert len(list((tmp_path / "ecoshare-runs/chain-jobs").glob("*/plan.json"))) == 2, "one run, and the link to it"
    # The same command again does nothing, and tells the same.
    again = ecoshare(tmp_path, cluster, "slurm", "chain", "jobs.yaml", *SHORT, "--json", *RUN)
    assert again.returncode == 0 and json.loads(again.stdout) == found
    shown = ecoshare(tmp_path, cluster, "export", "ecoshare-runs/chain-jobs/latest", "--format", "html").stdout
    assert '<section class="table" id="chain">' in shown and "modelled" in shown


@pytest.mark.nightly
def test_the_command_may_be_killed_and_started_again(cluster: dict[str, str], tmp_path: Path) -> None:
    """An allocation keeps the chain going alone. Neither it nor a second command submits anything twice."""
    saving_job(tmp_path, 100, sessions=2)
    words = [sys.executable, "-m", "ecoshare", "slurm", "chain", "jobs.yaml", *SHORT, *RUN]
    first = subprocess.Popen(words, cwd=tmp_path, env=cluster, stderr=subprocess.DEVNULL)
    wait_for(lambda: any(each["job"] for each in record(tmp_path)["allocations"]))
    first.send_signal(signal.SIGKILL)
    first.wait()
    wait_for(lambda: len(record(tmp_path)["allocations"]) >= 2, within_s=200.0)
    second = subprocess.Popen(words, cwd=tmp_path, env=cluster, stderr=subprocess.PIPE, text=True)
    third = subprocess.Popen(words, cwd=tmp_path, env=cluster, stderr=subprocess.PIPE, text=True)
    wait_for(
        lambda: any(each["number"] == 2 and each["works_from_s"] for each in record(tmp_path)["allocations"]), 200.0
    )
    assert third.stderr is not None and "goes on with the chain" in third.stderr.readline()
    third.send_signal(signal.SIGINT)
    code, said = ended(third)
    assert code == 130 and "goes on without this command" in said and "`scancel " in said, said
    code, said = ended(second)
    assert code == 0, said
    check_iterations(tmp_path, 2)
    found = jobs(tmp_path)
    assert len(set(found)) == len(found)


@pytest.mark.nightly
def test_an_allocation_that_is_killed_is_followed_by_another_one(cluster: dict[str, str], tmp_path: Path) -> None:
    """The record lacks its end. The command sees that it is gone, and the last checkpoint counts."""
    saving_job(tmp_path, 20, sessions=2)
    words = [sys.executable, "-m", "ecoshare", "slurm", "chain", "jobs.yaml", "--time", "5min", "--overlap", "idle"]
    command = subprocess.Popen([*words, *RUN], cwd=tmp_path, env=cluster, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: (tmp_path / "checkpoint.json").exists(), within_s=120.0)
    os.kill(batch_process(tmp_path), signal.SIGKILL)
    code, said = ended(command)
    assert code == 0, said
    assert [each["end"] for each in record(tmp_path)["allocations"]] == ["lost", "finished"]
    check_iterations(tmp_path, 2)


@pytest.mark.nightly
def test_scancel_ends_a_chain(cluster: dict[str, str], tmp_path: Path) -> None:
    saving_job(tmp_path, 20, sessions=100)
    words = [sys.executable, "-m", "ecoshare", "slurm", "chain", "jobs.yaml", "--time", "5min", "--margin", "5min"]
    command = subprocess.Popen([*words, *RUN], cwd=tmp_path, env=cluster, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: (tmp_path / "checkpoint.json").exists() and len(jobs(tmp_path)) == 2, 120.0)
    asked(cluster, "scancel", *map(str, jobs(tmp_path)))
    code, said = ended(command)
    assert code == 130, said
    assert record(tmp_path)["outcome"] == "cancelled"
    wait_for(lambda: not queued(cluster), within_s=60.0)
    bounded = ecoshare(tmp_path, cluster, *words[3:], "--until", "2", *RUN)
    assert bounded.returncode == 1 and "before its work was done" in bounded.stderr, bounded.stderr
    assert len(record(tmp_path)["allocations"]) == 2


@pytest.mark.nightly
def test_a_dry_run_shows_the_script_and_the_decision(cluster: dict[str, str], tmp_path: Path) -> None:
    saving_job(tmp_path, 1, sessions=1)
    done = ecoshare(tmp_path, cluster, "slurm", "chain", "jobs.yaml", "--time", "1h", "--dry-run", *RUN)
    assert done.returncode == 0, done.stderr
    for words in ("#SBATCH --time=0-01:00:00", "chain-allocation", "# predictor planned: ", "would be submitted now"):
        assert words in done.stdout
    assert "Slurm has no accounting" in done.stderr
    assert not (tmp_path / "ecoshare-runs").exists() and not queued(cluster)


@pytest.mark.nightly
def test_mistakes_leave_nothing_queued(cluster: dict[str, str], tmp_path: Path) -> None:
    saving_job(tmp_path, 1, sessions=1)
    chain = ("slurm", "chain", "jobs.yaml")
    for words, code, said in (
        ((), 2, "has no time limit"),
        (("--time", "1h", "--partition", "nowhere"), 4, "no partition nowhere"),
        (("--time", "1min"), 2, "leaves no time for the jobs"),
        (("--time", "1h", "--stop-before", "5s"), 2, "expected 20s or more"),
        (("--time", "90s", "--stop-before", "30s"), 2, "whole minutes"),
        (("--time", "1h", "--until", "never"), 2, "--until never: expected done"),
        (("--time", "1h", "--overlap", "both"), 2, "--overlap both: expected idle, take-over"),
        (("--time", "1h", "--predictor", "boost"), 2, "did you mean 'boosted'?"),
        (("--time", "1h", "--predictor", "boosted"), 4, "Slurm accounting storage is disabled"),
        (("--time", "1h", "--gpus-per-node", "1"), 4, "0 GPUs"),
        (("--time", "1h", "--sbatch=--bogus"), 4, "sbatch: "),
        (("--time", "1h", "--nodes", "9"), 4, "has 2 machines, and 9 are asked for"),
    ):
        done = ecoshare(tmp_path, cluster, *chain, *words)
        assert done.returncode == code and said in done.stderr, f"{words}: {done.returncode}, {done.stderr}"
        assert "Traceback" not in done.stderr
        assert not queued(cluster) and not (tmp_path / "ecoshare-runs/chain-jobs").exists(), words
    bare = {**cluster, "PATH": "/nowhere"}
    done = ecoshare(tmp_path, bare, *chain, "--time", "1h")
    assert done.returncode == 4 and "Slurm is not installed" in done.stderr


@pytest.mark.nightly
def test_a_chain_keeps_its_options(cluster: dict[str, str], tmp_path: Path) -> None:
    saving_job(tmp_path, 1, sessions=1)
    begun = ("slurm", "chain", "jobs.yaml", "--detach", "--time")
    done = ecoshare(tmp_path, cluster, *begun, "5min", "--sbatch=--hold", *RUN)
    assert done.returncode == 0 and "waits" in done.stdout, done.stderr
    (job,) = (each["job"] for each in record(tmp_path)["allocations"])
    for words, said in (
        ([*begun, "6min", "--sbatch=--hold", *RUN], "is a chain with --time 5min"),
        ([*begun, "5min", *RUN], "is a chain with --sbatch --hold"),
    ):
        other = ecoshare(tmp_path, cluster, *words)
        assert other.returncode == 2 and said in other.stderr and "--name" in other.stderr, other.stderr
    (tmp_path / "jobs.yaml").write_text((tmp_path / "jobs.yaml").read_text() + "\n")
    changed = ecoshare(tmp_path, cluster, *begun, "5min", "--sbatch=--hold", *RUN)
    assert changed.returncode == 2 and "has changed since the chain began" in changed.stderr
    assert queued(cluster) == [str(job)]
    asked(cluster, "scancel", str(job))
