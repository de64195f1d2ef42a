"""The batch script, and times as Slurm writes them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ecoshare.cluster.slurm_script import AllocationRequest, parse_time_s, script, slurm_time


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
    request = AllocationRequest(folder / "jobs.yaml", 2, 4, 14_400.0, "gpu", runs=folder / "runs", folder=folder)
    text = script(request)
    (tmp_path / "script").write_text(text)
    subprocess.run(["bash", "-n", tmp_path / "script"], check=True)
    assert text.startswith("#!/bin/bash\n#SBATCH --job-name=ecoshare\n#SBATCH --nodes=2\n")
    for directive in ("--gres=gpu:4", "--time=0-04:00:00", "--partition=gpu", "--signal=B:TERM@120", "--requeue"):
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
