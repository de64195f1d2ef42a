"""Runs in allocations of a real Slurm: submitted, requeued and cancelled."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ecoshare.base.attempt import Outcome
from ecoshare.core.commands import StartJob
from ecoshare.core.events import DeviceFailed, Done, JobExited
from ecoshare.record import event_log
from tests import warm
from tests.cluster.agents import check_alike, members
from tests.cluster.slurm_cluster import is_installed, processes_on, slurm
from tests.runtime.running import job_file, parent, slow_steps
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
    return warm.ecoshare(*words, cwd=folder, environment=environment)


def submitted(
    folder: Path, environment: dict[str, str], *more: str, asks: Sequence[str] = (), time: str = "20:00"
) -> tuple[int, Path]:
    """Submit `jobs.yaml` for both nodes; the ID of the Slurm job, and the path of the log that its run will have.

    Args:
        folder: Folder with the file.
        environment: Environment of the command.
        more: Further options of the run.
        asks: Further options of the allocation.
        time: Time limit of the allocation.
    """
    # The nodes are one machine here, so each agent has to share the processors.
    options = ("--", "--policy", "fair", "--no-profiles", "--no-report", "--share-device", *more)
    asks = ("--nodes", "2", "--time", time, *asks)
    done = ecoshare(folder, environment, "slurm", "submit", "jobs.yaml", *asks, *options)
    assert done.returncode == 0, done.stderr
    job = int(done.stdout.split()[2].rstrip(":"))
    return job, folder / "ecoshare-runs" / f"slurm-{job}" / "latest" / "events.jsonl"


def state(job: int, environment: dict[str, str]) -> str:
    said = subprocess.run(["scontrol", "-o", "show", "job", str(job)], env=environment, capture_output=True, text=True)
    return next((word.partition("=")[2] for word in said.stdout.split() if word.startswith("JobState=")), "")


def is_over(job: int, environment: dict[str, str]) -> bool:
    """Whether Slurm says that a job has ended. On a busy machine it may say nothing for a while."""
    return state(job, environment) not in ("PENDING", "RUNNING", "COMPLETING", "")


def asked(environment: dict[str, str], *words: str) -> str:
    return subprocess.run(words, env=environment, check=True, capture_output=True, text=True).stdout


def output(folder: Path, job: int) -> str:
    return (folder / "ecoshare-runs" / f"slurm-{job}.out").read_text()


def ends(log: Path) -> list[tuple[str, Outcome, int]]:
    return [(each.job, each.outcome, each.attempt) for each in event_log.read(log) if isinstance(each, JobExited)]


def test_a_job_file_runs_on_the_nodes_of_its_allocation(cluster: dict[str, str], tmp_path: Path) -> None:
    job_file(tmp_path, *(slow_steps(f"j{number}", 60, 4) for number in range(2)))
    job, log = submitted(tmp_path, cluster)
    wait_for(lambda: is_over(job, cluster))
    assert state(job, cluster) == "COMPLETED", output(tmp_path, job)
    starts = [each for each in event_log.read(log) if isinstance(each, StartJob)]
    assert {lane for each in starts for lane in each.lanes} == {0, 1}, "both nodes have a job"
    check_alike(log.parent, ["j0", "j1"], 60, 4)


@pytest.mark.nightly
def test_a_preempted_job_is_requeued_and_goes_on_with_its_run(cluster: dict[str, str], tmp_path: Path) -> None:
    """Slurm sends SIGTERM to every process of the job then. A name and a comment have blanks and a `#`."""
    job_file(tmp_path, slow_steps("short", 30, 4), *(slow_steps(f"j{number}", 1000, 4) for number in range(2)))
    job, log = submitted(tmp_path, cluster, asks=("--name", "two of #1", "--sbatch=--comment=a #b"))
    shown = asked(cluster, "scontrol", "-o", "show", "job", str(job))
    assert "JobName=two of #1 " in shown and "Comment=a #b " in shown
    wait_for(lambda: log.exists() and any(name == "short" for name, _, _ in ends(log)))
    asked(cluster, "sbatch", "--partition=first", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 2")
    wait_for(lambda: "Restarts=1" in asked(cluster, "scontrol", "-o", "show", "job", str(job)))
    wait_for(lambda: state(job, cluster) in ("COMPLETED", "FAILED"), within_s=120.0)
    assert state(job, cluster) == "COMPLETED", output(tmp_path, job)
    completed = sorted((name, attempt) for name, outcome, attempt in ends(log) if outcome is Outcome.COMPLETED)
    assert completed == [("j0", 2), ("j1", 2), ("short", 1)], "what had ended did not run again"
    assert "Traceback" not in output(tmp_path, job) and not members(log.parent)
    assert len(list(log.parent.parent.glob("*/plan.json"))) == 2, "one run, and the link to it"


@pytest.mark.nightly
def test_jobs_are_stopped_before_the_limit(cluster: dict[str, str], tmp_path: Path) -> None:
    """Slurm looks once a minute, so this takes one or two."""
    job_file(tmp_path, *(slow_steps(f"j{number}", 100_000, 4) for number in range(2)))
    job, log = submitted(tmp_path, cluster, asks=("--stop-before", "60s"), time="2min")
    wait_for(lambda: is_over(job, cluster), within_s=150.0)
    assert state(job, cluster) != "TIMEOUT", "the run has ended by itself"
    # On a busy machine the minute may be over before a job begins, or while it does.
    entries = list(event_log.read(log))
    answered = {each.command for each in entries if isinstance(each, Done)}
    begun = {each.job for each in entries if isinstance(each, StartJob) and each.id in answered}
    assert {(name, outcome) for name, outcome, _ in ends(log)} == {(name, Outcome.STOPPED) for name in begun}
    assert not members(log.parent)
    assert (log.parent / "summary.json").exists() and "Traceback" not in output(tmp_path, job)


@pytest.mark.nightly
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


@pytest.mark.nightly
def test_a_cancelled_job_leaves_nothing(cluster: dict[str, str], tmp_path: Path) -> None:
    job_file(tmp_path, *(slow_steps(f"j{number}", 100_000, 4) for number in range(2)))
    job, log = submitted(tmp_path, cluster)
    wait_for(lambda: log.exists() and log.read_bytes().count(b'"IterationsDone"') >= 2)
    asked(cluster, "scancel", str(job))
    wait_for(lambda: state(job, cluster) == "CANCELLED" and not members(log.parent))
    assert "Traceback" not in output(tmp_path, job)
    assert (log.parent / "summary.json").exists(), "the run has come to its end"


@pytest.mark.nightly
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
    done = ecoshare(tmp_path, cluster, "slurm", "submit", "jobs.yaml", "--nodes", "2", "--dry-run")
    assert done.returncode == 0 and "#SBATCH --nodes=2\n" in done.stdout
    assert not asked(cluster, "squeue", "--noheader")
    bare = {**cluster, "PATH": "/nowhere"}
    done = ecoshare(tmp_path, bare, "slurm", "submit", "jobs.yaml")
    assert done.returncode == 4 and "Slurm is not installed" in done.stderr


@pytest.mark.nightly
def test_jobs_of_a_machine_that_dies_go_on_with_the_others(cluster: dict[str, str], tmp_path: Path) -> None:
    """The last test of the cluster, of which one machine dies: its daemon, and all that it has started, are killed."""
    job_file(tmp_path, *(slow_steps(f"j{number}", 1000, 4) for number in range(2)))
    job, log = submitted(tmp_path, cluster)
    wait_for(lambda: log.exists() and log.read_bytes().count(b'"IterationsDone"') >= 4)
    daemon = int((Path(cluster["SLURM_CONF"]).parent / "slurmd.n2.pid").read_text())
    processes = processes_on("n2", job, tmp_path)
    assert processes
    for process in [daemon, *{parent(each) for each in processes}, *processes]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    wait_for(lambda: is_over(job, cluster), within_s=120.0)
    assert state(job, cluster) == "COMPLETED", output(tmp_path, job)
    entries = list(event_log.read(log))
    assert [each.device for each in entries if isinstance(each, DeviceFailed)] == ["n2/cpu"]
    completed = {name: attempt for name, outcome, attempt in ends(log) if outcome is Outcome.COMPLETED}
    assert set(completed) == {"j0", "j1"} and sorted(completed.values()) == [1, 2]
    assert "Restarts=0" in asked(cluster, "scontrol", "-o", "show", "job", str(job)) and not members(log.parent)
