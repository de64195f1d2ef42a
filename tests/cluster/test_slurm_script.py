"""The batch script, and times as Slurm writes them."""

from __future__ import annotations

import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from ecoshare.cluster import slurm_nodes
from ecoshare.cluster.slurm_script import AllocationRequest, check, notes, parse_time_s, script, slurm_time
from ecoshare.errors import UsageError
from ecoshare.record.event_log import EventLog
from ecoshare.record.run_data import is_live
from ecoshare.record.run_folder import RunFolder


@pytest.mark.parametrize(
    ("text", "time_s"),
    [
        ("4h", 14_400.0),
        ("30:00", 1_800.0),
        ("4:00:00", 14_400.0),
        ("1-12:00:00", 129_600.0),
        ("1-12:30", 131_400.0),
        ("90 min", 5_400.0),
    ],
)
def test_times_are_those_of_slurm(text: str, time_s: float) -> None:
    assert parse_time_s(text) == time_s
    assert parse_time_s(slurm_time(time_s)) == time_s


@pytest.mark.parametrize("text", ["soon", "1:2:3:4", "-4:00", "x-4:00", "4:xx", ""])
def test_other_texts_are_no_times(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_time_s(text)


def test_the_script_is_one_that_bash_reads_whatever_the_names(tmp_path: Path) -> None:
    folder = tmp_path / "a 'folder' with $(blanks)"
    request = AllocationRequest(
        folder / "jobs.yaml",
        nodes=2,
        gpus_per_node=4,
        cpus_per_node=16,
        time_s=14_400.0,
        partition="gpu",
        runs=folder / "runs",
        folder=folder,
    )
    text = script(request)
    (tmp_path / "script").write_text(text)
    subprocess.run(["bash", "-n", tmp_path / "script"], check=True)
    assert text.startswith("#!/bin/bash\n#SBATCH --job-name=ecoshare\n#SBATCH --nodes=2\n")
    kept = ("--requeue", "--no-kill", "--signal=B:TERM@120")
    for directive in ("--gres=gpu:4", "--cpus-per-task=16", "--time=0-04:00:00", "--partition=gpu", *kept):
        assert f"#SBATCH {directive}\n" in text
    shown = subprocess.run(
        ["bash", "-c", text.replace("exec ", "printf '%s\\n' ")],
        capture_output=True,
        text=True,
        check=True,
        env={"SLURM_JOB_ID": "7"},
    ).stdout.splitlines()
    assert shown[3:] == ["run", f"{folder}/jobs.yaml", "--runs", f"{folder}/runs/slurm-7", "--on", "slurm"]


def test_jobs_without_gpus_use_the_processors(tmp_path: Path) -> None:
    assert "--on slurm --device cpu\n" in script(AllocationRequest(tmp_path / "jobs.yaml"))
    again = script(
        AllocationRequest(tmp_path / "j.yaml", options=("--share-device", "--lanes", "2", "--control", "off"))
    )
    assert '"$runs/latest" --on slurm --share-device --control off\n' in again
    given = script(AllocationRequest(tmp_path / "jobs.yaml", options=("--device", "cpu/2")))
    assert "--on slurm --device cpu/2\n" in given


def test_notes_say_what_the_allocation_lacks(tmp_path: Path) -> None:
    """If it failed, jobs could get one processor of a machine, or clocks could stay as a killed job has set them."""
    bare = AllocationRequest(tmp_path / "jobs.yaml", gpus_per_node=1)
    lacks, sets = notes(bare)
    assert "--cpus-per-node" in lacks and "-m ecoshare restore || true" in sets
    assert notes(replace(bare, cpus_per_node=8, options=("--control", "off"))) == []
    assert notes(replace(bare, gpus_per_node=None, sbatch=("--exclusive",))) == []
    assert notes(replace(bare, gpus_per_node=None, sbatch=("-c 4",))) == []


def test_a_line_break_is_refused(tmp_path: Path) -> None:
    """If it failed, what comes after it would be a command of the batch script."""
    request = AllocationRequest(tmp_path / "jobs.yaml")
    names = [replace(request, name=name) for name in ("a\nrm -rf b", "a\n")]
    for broken in (*names, replace(request, sbatch=("--comment=a\rb",))):
        with pytest.raises(UsageError, match="line break"):
            check(broken)
    with pytest.raises(UsageError, match="--cpus-per-node 0: expected 1 or more"):
        check(replace(request, cpus_per_node=0))


def test_a_job_that_is_started_again_waits_for_its_earlier_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it failed, a requeued job could end at once, since the machine before it still writes the run."""
    log, said = EventLog(RunFolder(tmp_path).events), list[str]()
    slurm_nodes.await_earlier_start(tmp_path, said.append)  # no job of Slurm
    assert not said
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    monkeypatch.setattr(slurm_nodes, "_LOOK_S", 0.01)
    slurm_nodes.await_earlier_start(tmp_path, said.append, within_s=0.05)
    assert len(said) == 1 and "is still going on" in said[0] and is_live(RunFolder(tmp_path))
    threading.Timer(0.2, log.close).start()
    slurm_nodes.await_earlier_start(tmp_path, said.append)
    assert not is_live(RunFolder(tmp_path))
    slurm_nodes.await_earlier_start(tmp_path, said.append)
    assert len(said) == 2
