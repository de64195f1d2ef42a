"""Runs in allocations of a real Slurm: submitted, requeued and cancelled."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ecoshare.core.commands import StartJob
from ecoshare.core.events import JobExited
from ecoshare.record import event_log
from ecoshare.values.attempt import Outcome
from tests.cluster.agents import check_alike, members
from tests.cluster.slurm_cluster import is_installed, slurm
from tests.runtime.running import job_file, slow_steps
from tests.warm import ROOT, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not is_installed(), reason="Slurm is not installed: apt-get install slurm-wlm"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, str]]:
    """Environment of commands on a cluster of two nodes."""
    with slurm(2) as conf:
        yield {**os.environ, "SLURM_CONF": str(conf), "PYTHONPATH": str(ROOT)}


def ecoshare(folder: Path, environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ecoshare", *words], cwd=folder, env=environment, capture_output=True, text=True
    )


def submitted(folder: Path, environment: dict[str, str], *more: str) -> tuple[int, Path]:
    """Submit `jobs.yaml` for both nodes; the ID of the Slurm job, and the path of the log that its run will have.

    Args:
        folder: Folder with the file.
        environment: Environment of the command.
        more: Further options of the run.
    """
    # The nodes are one machine here, so each agent has to share the processors.
    options = ("--", "--policy", "fair", "--no-profiles", "--no-report", "--share-device", *more)
    done = ecoshare(folder, environment, "slurm", "submit", "jobs.yaml", "--nodes", "2", "--time", "20:00", *options)
    assert done.returncode == 0, done.stderr
    job = int(done.stdout.split()[2].rstrip(":"))
    return job, folder / "ecoshare-runs" / f"slurm-{job}" / "latest" / "events.jsonl"


def state(job: int, environment: dict[str, str]) -> str:
    said = subprocess.run(["scontrol", "-o", "show", "job", str(job)], env=environment, capture_output=True, text=True)
    return next((word.partition("=")[2] for word in said.stdout.split() if word.startswith("JobState=")), "")


def asked(environment: dict[str, str], *words: str) -> None:
    subprocess.run(words, env=environment, check=True, capture_output=True)


def output(folder: Path, job: int) -> str:
    return (folder / "ecoshare-runs" / f"slurm-{job}.out").read_text()


def ends(log: Path) -> list[tuple[str, Outcome, int]]:
    return [(each.job, each.outcome, each.attempt) for each in event_log.read(log) if isinstance(each, JobExited)]


def test_a_job_file_runs_on_the_nodes_of_its_allocation(cluster: dict[str, str], tmp_path: Path) -> None:
    job_file(tmp_path, *(slow_steps(f"j{number}", 60, 4) for number in range(2)))
    job, log = submitted(tmp_path, cluster)
    wait_for(lambda: state(job, cluster) not in ("PENDING", "RUNNING", "COMPLETING"))
    assert state(job, cluster) == "COMPLETED", output(tmp_path, job)
    starts = [each for each in event_log.read(log) if isinstance(each, StartJob)]
    assert {lane for each in starts for lane in each.lanes} == {0, 1}, "both nodes have a job"
    check_alike(log.parent, ["j0", "j1"], 60, 4)


def test_a_requeued_job_goes_on_with_its_run(cluster: dict[str, str], tmp_path: Path) -> None:
    """Slurm sends SIGTERM to every process of the job then."""
    job_file(tmp_path, slow_steps("short", 30, 4), *(slow_steps(f"j{number}", 500, 4) for number in range(2)))
    job, log = submitted(tmp_path, cluster)
    wait_for(lambda: log.exists() and any(name == "short" for name, _, _ in ends(log)))
    asked(cluster, "scontrol", "requeue", str(job))
    wait_for(lambda: state(job, cluster) in ("COMPLETED", "FAILED"), within_s=120.0)
    assert state(job, cluster) == "COMPLETED", output(tmp_path, job)
    found = ends(log)
    completed = sorted((name, attempt) for name, outcome, attempt in found if outcome is Outcome.COMPLETED)
    assert completed == [("j0", 2), ("j1", 2), ("short", 1)], "what had ended did not run again"
    assert "Traceback" not in output(tmp_path, job) and not members(log.parent)
    assert len(list(log.parent.parent.glob("*/plan.json"))) == 2, "one run, and the link to it"


def test_a_node_without_a_job_is_given_back(cluster: dict[str, str], tmp_path: Path) -> None:
    def held() -> str:
        words = ("squeue", "--noheader", "--jobs", str(job), "--Format=NodeList")
        return subprocess.run(words, env=cluster, capture_output=True, text=True).stdout.strip()

    job_file(tmp_path, slow_steps("long", 700, 10), slow_steps("short", 30, 4))
    job, log = submitted(tmp_path, cluster, "--release-idle", "1s")
    wait_for(lambda: held() == "n[1-2]")
    wait_for(lambda: held() == "n1", within_s=120.0)
    assert [name for name, _, _ in ends(log)] == ["short"]
    wait_for(lambda: state(job, cluster) in ("COMPLETED", "FAILED"))
    assert state(job, cluster) == "COMPLETED", output(tmp_path, job)
    assert "the node n2 was given back at" in output(tmp_path, job) and not members(log.parent)
    assert not list(tmp_path.glob("slurm_job_*")), "scontrol has left no script"


def test_a_cancelled_job_leaves_nothing(cluster: dict[str, str], tmp_path: Path) -> None:
    job_file(tmp_path, *(slow_steps(f"j{number}", 100_000, 4) for number in range(2)))
    job, log = submitted(tmp_path, cluster)
    wait_for(lambda: log.exists() and log.read_bytes().count(b'"IterationsDone"') >= 2)
    asked(cluster, "scancel", str(job))
    wait_for(lambda: state(job, cluster) == "CANCELLED" and not members(log.parent))
    assert "Traceback" not in output(tmp_path, job)
    assert (log.parent / "summary.json").exists(), "the run has come to its end"


def test_mistakes_are_told_in_one_line(cluster: dict[str, str], tmp_path: Path) -> None:
    job_file(tmp_path, slow_steps("j", 1, 1))
    for words, code, said in (
        (("run", "jobs.yaml", "--on", "slurm"), 4, "this process is in none"),
        (("slurm", "submit", "jobs.yaml", "--partition", "nowhere"), 4, "sbatch: Batch job submission failed"),
        (("slurm", "submit", "jobs.yaml", "--time", "1min"), 2, "leaves no time for the jobs"),
        (("slurm", "submit", "jobs.yaml", "--time", "soon"), 2, "--time soon: expected"),
        (("slurm", "submit", "nothing.yaml"), 2, "no job file"),
    ):
        done = ecoshare(tmp_path, cluster, *words)
        assert done.returncode == code and said in done.stderr and "Traceback" not in done.stderr, done.stderr
    bare = {**cluster, "PATH": "/nowhere"}
    done = ecoshare(tmp_path, bare, "slurm", "submit", "jobs.yaml")
    assert done.returncode == 4 and "Slurm is not installed" in done.stderr
