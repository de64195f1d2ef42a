"""Looks at a chain of allocations, and submits its next one when it is time.

::

    the command ──────────┐                        each look holds the lock of the chain's folder: the first one
    allocation 1 (works) ─┼─► look ──► squeue ──►  looks; the others see from the record that it is not time yet
    allocation 2 (idle) ──┘     │
                                ├──► record: "submitting 3" ──► sbatch ──► record: "3 is job 47"
                                └──► record: next look at ...

A process that is killed between the two records leaves a job, and its script tells the number. The next look finds it
in the queue. So no allocation is submitted twice, and no process has to live as long as the chain.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from ecoshare.contrib.chains import chain_steps, slurm_queue
from ecoshare.contrib.chains.allocation_chain import AllocationChain, AllocationEnd, ChainOutcome
from ecoshare.contrib.chains.chain_folder import ChainFolder
from ecoshare.contrib.chains.chain_rule import ChainRule
from ecoshare.contrib.chains.logs.batch_job import BatchJob
from ecoshare.contrib.chains.own_jobs import OwnJob, in_queue
from ecoshare.contrib.chains.provisioner import Decision, Provisioner
from ecoshare.contrib.chains.queue_sight import QueueSight
from ecoshare.errors import EcoshareError, UnfitEnvironment
from ecoshare.record.run_folder import write_text

LOG_AGE_S = 86_400.0
"""Age (s) of the log from which it is read again."""

_REFUSED_S = 60.0
"""Time (s) until the next try after Slurm has refused a job, or did not answer."""


def batch_script(chain: AllocationChain, number: int) -> str:
    """Text of the batch script of an allocation."""
    words = [sys.executable, "-m", "ecoshare", "slurm", "chain-allocation", chain.folder, str(number)]
    comment = "# One allocation of a chain: it runs the jobs, and submits its successor."
    return f"{chain.heading}{comment}\nexec {shlex.join(words)}\n"


def check_s(chain: AllocationChain) -> float:
    """Time (s) between two looks at the chain's own jobs by a process that waits."""
    return min(60.0, max(1.0, chain.limit_s / 60.0))


class ChainKeeper:
    """Keeps a chain going, look by look. Any number of processes may have one for the same chain.

    Attributes:
        folder: Folder of the chain.
    """

    def __init__(self, folder: ChainFolder, say: Callable[[str], None] = lambda _words: None) -> None:
        """Keep the chain in a folder.

        Args:
            folder: The folder.
            say: Shows what was done.
        """
        self.folder = folder
        self._say = say

    def look(self, force: bool = False) -> AllocationChain:
        """Look at the queue if it is time, and submit what is due. Returns the chain as it is then.

        Args:
            force: Whether to look now, whatever the last look said.

        Raises:
            UnfitEnvironment: Slurm refuses the first allocation. Later refusals are notes of the chain, and it is tried
                again.
        """
        chain = self.folder.read()
        if chain.outcome is not None or not (force or time.time() >= chain.look_s):
            return chain
        with self.folder.held():
            chain = self.folder.read()
            if chain.outcome is not None or not (force or time.time() >= chain.look_s):
                return chain
            try:
                return self._looked(chain)
            except EcoshareError as error:
                chain = self.folder.read()
                if not any(each.job is not None for each in chain.allocations):
                    raise
                note = f"{error} ({time.strftime('%Y-%m-%d %H:%M')})"
                self._say(note)
                chain = replace(chain, look_s=time.time() + _REFUSED_S, notes=(*chain.notes[-9:], note))
                self.folder.write(chain)
                return chain

    def reconcile(self) -> AllocationChain:
        """Compare the record with the queue, without a submission. Returns the chain as it is then.

        Raises:
            UnfitEnvironment: Slurm does not answer.
        """
        with self.folder.held():
            chain = self.folder.read()
            if chain.outcome is None:
                chain, _ = self._reconciled(chain)
            return chain

    def _looked(self, chain: AllocationChain) -> AllocationChain:
        """Submit what is due, in a `held` block."""
        while True:
            chain, jobs = self._reconciled(chain)
            if chain.outcome is not None:
                return chain
            decision = self.decision(chain, jobs)
            if decision is None or not decision.submit:
                wait_s = 5.0 * check_s(chain) if decision is None else decision.look_again_s
                chain = replace(chain, look_s=time.time() + wait_s)
                self.folder.write(chain)
                return chain
            chain = self._submitted(chain, decision)

    def _reconciled(self, chain: AllocationChain) -> tuple[AllocationChain, list[OwnJob]]:
        """The chain as the queue has it, with its outcome, and its jobs there."""
        before, jobs = chain, slurm_queue.own(chain.folder)
        states = {job: slurm_queue.job_facts(job).get("JobState") for job in chain_steps.vanished(chain, jobs)}
        chain, strays = chain_steps.reconciled(chain, jobs, time.time(), states)
        slurm_queue.cancel(strays)
        if (stuck := next((each for each in jobs if each.never_starts), None)) is not None:
            chain = replace(chain, notes=(*chain.notes, f"Slurm job {stuck.job} would never start: {stuck.reason}"))
            chain = self.ended(chain, ChainOutcome.FAILED)
        last = chain.allocations[-1] if chain.allocations else None
        state: str | None = None
        if last is not None and last.end is AllocationEnd.TERMINATED:
            if in_queue(jobs, last.job) is not None:  # Slurm has not said yet what becomes of it
                state = "COMPLETING"
            else:
                state = slurm_queue.job_facts(last.job or 0).get("JobState")
        if chain.outcome is None and (outcome := chain_steps.end_of(chain, time.time(), state)) is not None:
            chain = self.ended(chain, outcome)
        if chain != before:
            self.folder.write(chain)
        return chain, jobs

    def ended(self, chain: AllocationChain, outcome: ChainOutcome) -> AllocationChain:
        """The chain with its outcome, after jobs that wait are cancelled. To be called in a `held` block."""
        if outcome in (ChainOutcome.DONE, ChainOutcome.FAILED):
            slurm_queue.cancel([each.job for each in chain.live if each.job is not None and each.started_s is None])
            now_s = time.time()
            for each in chain.live:
                if each.started_s is None:
                    gone = replace(each, end=AllocationEnd.NOT_NEEDED, ended_s=now_s)
                    chain = chain_steps.changed(chain, gone)
        return replace(chain, outcome=outcome)

    def decision(self, chain: AllocationChain, jobs: list[OwnJob]) -> Decision | None:
        """Whether to submit the next allocation now; None if none is wanted now."""
        now_s = time.time()
        if chain_steps.is_limited(chain, now_s):
            return None
        if chain_steps.is_settling(chain, jobs):
            return None  # the next step depends on Slurm once it has ended: cancelled, or preempted
        remaining_s = chain_steps.covered_s(chain, jobs, now_s)
        if remaining_s is None:
            return None
        provisioner, sight = decider(self.folder, chain, jobs)
        if not chain.live:
            wait_s = provisioner.predictor.wait_s(sight, chain.count, chain.limit_s)
            return Decision(True, 0.0, 0.0, wait_s)
        return provisioner.decide(sight, remaining_s, chain.count, chain.limit_s)

    def _submitted(self, chain: AllocationChain, decision: Decision) -> AllocationChain:
        now_s = time.time()
        due_s = now_s + decision.remaining_s if chain.allocations else None
        chain = chain_steps.added(chain, now_s, predicted_wait_s=decision.wait_s, due_s=due_s)
        own = chain.allocations[-1]
        script = self.folder.write_script(own.number, batch_script(chain, own.number))
        self.folder.write(chain)
        try:
            job = slurm_queue.submit(script)
        except UnfitEnvironment:
            self.folder.write(replace(chain, allocations=chain.allocations[:-1]))
            raise
        own = replace(own, job=job)
        chain = chain_steps.changed(chain, own)
        if own.number == 1 and chain.resource == slurm_queue.CPU:
            asked = in_queue(slurm_queue.own(chain.folder), job)
            chain = replace(chain, count=max(chain.count, asked.count(chain.resource) if asked is not None else 0))
        self.folder.write(chain)
        self._say(f"submitted allocation {own.number}: Slurm job {job}")
        return chain


def decider(folder: ChainFolder, chain: AllocationChain, jobs: Sequence[OwnJob]) -> tuple[Provisioner, QueueSight]:
    """Rule of a chain, and the queue that it decides on.

    Args:
        folder: Folder with the log.
        chain: The chain.
        jobs: Jobs of the chain in the queue; those that wait are left out.

    Raises:
        EcoshareError: Slurm does not answer, or the log cannot be used.
    """
    rule = ChainRule(chain.predictor, chain.margin_s, chain.ahead)
    read_s = log_moment_s(folder, chain.partition)
    provisioner, past = _rule(folder.path, rule, read_s, chain.total, chain.limit_s, chain.resource)
    own = {str(each.job) for each in jobs if each.waits}
    return provisioner, slurm_queue.sight(chain.partition, chain.total, chain.resource, past, own)


def log_moment_s(folder: ChainFolder, partition: str) -> float:
    """Moment (s) at which the log was read, after it was read again if it is old; 0 if the cluster has none."""
    try:
        moment_s = folder.log.stat().st_mtime
    except OSError:
        return 0.0
    if time.time() - moment_s <= LOG_AGE_S:
        return moment_s
    try:
        write_text(folder.log, slurm_queue.log_text(partition))
        return folder.log.stat().st_mtime
    except (EcoshareError, OSError):  # the old log is good enough for another day
        with contextlib.suppress(OSError):
            os.utime(folder.log)
        return moment_s


@lru_cache(maxsize=1)
def _rule(
    path: Path, rule: ChainRule, _read_s: float, total: int, limit_s: float, resource: str
) -> tuple[Provisioner, tuple[BatchJob, ...]]:
    """Rule with the log of a moment. A model is fitted once for each log."""
    past = ChainFolder(path).past(resource)
    return rule.provisioner(past, total, limit_s, time.time()), past
