"""GPUs that a real Slurm allocates, with fake GPUs behind them: which are set, and what a killed job leaves."""

from __future__ import annotations

import contextlib
import getpass
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ecoshare.core.commands import ApplySetting
from ecoshare.core.events import Done, IterationsDone
from ecoshare.record import event_log
from tests.cluster.slurm_cluster import is_installed, processes_on, slurm
from tests.cluster.test_slurm_run import asked, ecoshare, is_over, output, state
from tests.driver.training import COMPUTES
from tests.runtime.machine import BEFORE, MARKS, Machine
from tests.warm import ROOT, wait_for

pytestmark = [
    *MARKS,
    pytest.mark.skipif(not is_installed(), reason="Slurm is not installed: apt-get install slurm-wlm"),
]


class Allocation:
    """Machine with a GPU, and a Slurm that allocates it.

    Attributes:
        until: The job ends when this file exists.
        epilog: Script that Slurm runs at the end of a job.
    """

    def __init__(self, machine: Machine, conf: Path, epilog: Path) -> None:
        self.machine, self.until, self.epilog = machine, machine.folder / "until", epilog
        self.environment = {**machine.environment, "SLURM_CONF": str(conf), "PYTHONPATH": str(ROOT)}
        machine.jobs(COMPUTES, until=self.until)

    def submit(self, *asks: str) -> tuple[int, str]:
        """Submit the job; its ID, and the notes of the command."""
        options = ("--profiles", "profiles", "--objective", "energy", "--no-report")
        words = ("slurm", "submit", "jobs.yaml", "--gpus-per-node", "1", *asks, "--", *options)
        done = ecoshare(self.machine.folder, self.environment, *words)
        assert done.returncode == 0, done.stderr
        return int(done.stdout.split()[2].rstrip(":")), done.stderr

    def entries(self, job: int) -> list[object]:
        log = self.machine.folder / "ecoshare-runs" / f"slurm-{job}" / "latest" / "events.jsonl"
        return list(event_log.read(log)) if log.exists() else []

    def settings(self, job: int) -> int:
        """Number of settings that were applied, other than the one that was found."""
        entries = self.entries(job)
        done = {each.command for each in entries if isinstance(each, Done)}
        return sum(isinstance(each, ApplySetting) and bool(each.setting) and each.id in done for each in entries)

    def output(self, job: int) -> str:
        return output(self.machine.folder, job)


@pytest.fixture
def allocation(tmp_path: Path) -> Iterator[Allocation]:
    (epilog := tmp_path / "epilog").write_text("#!/bin/sh\n")
    epilog.chmod(0o755)
    with slurm(1, gpus=1, epilog=epilog) as conf:
        made = Allocation(Machine(tmp_path), conf, epilog)
        yield made
        asked(made.environment, "scancel", f"--user={getpass.getuser()}", "--signal=KILL")


@pytest.mark.nightly
def test_a_gpu_is_set_and_the_printed_epilog_puts_it_back(allocation: Allocation) -> None:
    """SIGKILL reaches the guard, too."""
    job, notes = allocation.submit()
    line = " ".join(notes.split()).partition("puts clocks and power back: ")[2].partition(" note: ")[0]
    own = {name: value for name, value in allocation.environment.items() if os.environ.get(name) != value}
    exports = "".join(f"export {name}='{value}'\n" for name, value in own.items() if name != "SLURM_CONF")
    log = allocation.machine.folder / "epilog.log"
    allocation.epilog.write_text(f"#!/bin/sh\n{exports}({line}) > {log} 2>&1\n")
    wait_for(lambda: allocation.settings(job) >= 2, otherwise=lambda: allocation.output(job))
    assert allocation.machine.driver.gpu(0).settings() != BEFORE
    processes = processes_on("n1", job, allocation.machine.folder)
    assert processes
    for blow in (signal.SIGSTOP, signal.SIGKILL):  # else the guard would put the GPU back before its turn comes
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, blow)
    wait_for(lambda: log.exists() and "gpu_clock is unlocked" in log.read_text())
    assert allocation.machine.driver.gpu(0).settings() == BEFORE


@pytest.mark.nightly
def test_nothing_is_set_where_slurm_sets_the_clocks(allocation: Allocation) -> None:
    job, _ = allocation.submit("--sbatch=--gpu-freq=low")
    wait_for(
        lambda: any(isinstance(each, IterationsDone) for each in allocation.entries(job)),
        otherwise=lambda: (state(job, allocation.environment), allocation.output(job)),
    )
    allocation.until.touch()
    wait_for(lambda: is_over(job, allocation.environment))
    words = "clocks and power stay as they are: Slurm sets the clocks of this allocation (--gpu-freq=low)"
    assert words in " ".join(allocation.output(job).split())
    assert not allocation.settings(job) and allocation.machine.driver.gpu(0).settings() == BEFORE
