"""`chain`: a run that is longer than the limit of its partition goes on through a chain of allocations of Slurm."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ecoshare.api.slurm_submit import allocation_of
from ecoshare.base.plural import listed
from ecoshare.contrib.chains.allocation_chain import AllocationChain, ChainAccount, ChainOutcome
from ecoshare.contrib.chains.new_chain import ChainRequest, new_chain, taken_up
from ecoshare.errors import EcoshareError, Interrupted, JobFailed, LimitNotMet, UnfitEnvironment

if TYPE_CHECKING:
    from ecoshare.cluster.slurm_script import AllocationRequest
    from ecoshare.contrib.chains.chain_folder import ChainFolder
    from ecoshare.contrib.chains.chain_keeper import ChainKeeper
    from ecoshare.contrib.chains.provisioner import Decision


LEAST_STOP_S = 20.0
"""Shortest time (s) before the limit at which jobs stop: their grace of 10 s, and as much for agents and settings."""

_POLL_S = 1.0
_LAST_WITHIN_S = 30.0
"""Longest time (s) to wait for the last words of allocations after the end of a chain."""

_SETTLES_WITHIN_S = 5.0
"""Time (s) within which Slurm says that a job can never start."""


@dataclass(frozen=True, slots=True)
class PlannedChain:
    """Decision of this moment about a chain.

    Attributes:
        chain: The chain, which may have no allocation yet.
        script: Batch script of its next allocation.
        decision: Decision about the next allocation; None if none is wanted now.
        is_new: Whether the chain does not exist yet.
        predicted_wait_s: Predicted wait (s) of a job that would be submitted now.
    """

    chain: AllocationChain
    script: str
    decision: Decision | None
    is_new: bool
    predicted_wait_s: float


@dataclass(frozen=True, slots=True)
class ChainReport:
    """Chain with the cost of its passages.

    Attributes:
        folder: Folder of the chain.
        chain: Record of the chain.
        account: Interruption, overlap and joules.
    """

    folder: Path
    chain: AllocationChain
    account: ChainAccount

    @property
    def run(self) -> Path:
        """Folder of the run."""
        return self.folder / "latest"

    def as_dict(self) -> dict[str, Any]:
        """The object of `--json`."""
        from ecoshare.contrib.chains.chain_record import as_plain_chain

        plain = as_plain_chain(self.chain)
        for name in ("heading", "run_options", "resume_options", "look_s", "past"):
            del plain[name]
        return {**plain, "run": str(self.run), **asdict(self.account)}

    def check(self) -> None:
        """Return if the work is done and all went well.

        Raises:
            JobFailed: A job did not complete, or the chain has ended before its work.
            LimitNotMet: A limit in the job file was broken.
            UnfitEnvironment: The run could not begin or go on.
            Interrupted: The chain was cancelled.
        """
        chain, again = self.chain, "the same command goes on with it"
        if chain.outcome is ChainOutcome.DONE:
            if chain.code == LimitNotMet.exit_code:
                raise LimitNotMet("a limit in the job file was broken", f"see {self.run}/summary.json")
            if chain.code:
                raise JobFailed("a job did not complete", f"what the jobs said is in {self.run}/jobs")
        elif chain.outcome is ChainOutcome.FAILED:
            last = next((each.job for each in reversed(chain.allocations) if each.started_s is not None), None)
            said = f"see {self.folder}/slurm-{last}.out; " if last is not None else ""
            why = chain.notes[-1] if last is None and chain.notes else f"exit code {chain.code}"
            raise UnfitEnvironment(f"the chain could not go on: {why}", f"{said}{again}")
        elif chain.outcome is ChainOutcome.CANCELLED:
            raise Interrupted("the chain was cancelled", again)
        elif chain.outcome is ChainOutcome.LIMITED:
            raise JobFailed("the chain has ended before its work was done", f"{again}, with another --until")


def chain(request: ChainRequest) -> ChainReport:
    """Begin a chain, or go on with it, and follow it to its end. The allocations need no process like this one.

    Raises:
        InvalidJobFile: The job file has mistakes.
        UsageError: The fields contradict each other, or the chain has other options.
        UnfitEnvironment: Slurm is not installed, does not answer, or refuses the first allocation. Nothing is
            queued then.
        Interrupted: The user pressed Ctrl-C. The message names the jobs that go on.
    """
    from ecoshare.contrib.chains.chain_folder import ChainFolder
    from ecoshare.contrib.chains.chain_keeper import ChainKeeper, check_s

    try:
        opened = begin(request)
    except (KeyboardInterrupt, Interrupted):
        known = _known(ChainFolder(_path(allocation_of(request, LEAST_STOP_S))))
        if known is None:  # it was taken back
            raise
        raise Interrupted(*going_on_words(known)) from None
    folder, found = ChainFolder(opened.folder), opened.chain
    keeper = ChainKeeper(folder, request.say)
    told = _Told(request.say)
    look_s = 0.0
    try:
        while found.outcome is None:
            told.changes(found)
            if time.time() >= look_s:
                try:
                    keeper.reconcile()
                    keeper.look()
                except UnfitEnvironment as error:  # a controller that is started again
                    request.note(str(error))
                look_s = time.time() + check_s(found)
            time.sleep(_POLL_S)
            found = folder.read()
    except (KeyboardInterrupt, Interrupted):
        raise Interrupted(*going_on_words(folder.read())) from None
    told.changes(found)
    _await_last(folder, found)
    return report(opened.folder)


def begin(request: ChainRequest) -> ChainReport:
    """Begin a chain, or take it up again, and submit what is due. See `chain`."""
    from ecoshare.contrib.chains.chain_folder import ChainFolder
    from ecoshare.contrib.chains.chain_keeper import ChainKeeper

    allocation = allocation_of(request, LEAST_STOP_S)
    folder = ChainFolder(_path(allocation))
    keeper = ChainKeeper(folder, request.say)
    known = _known(folder)
    if known is not None:
        taken = folder.change(lambda now: taken_up(now, request, allocation))
        if known.outcome is ChainOutcome.DONE:
            request.note(f"the chain is done; another --name, or without {folder.path}, begins it again")
        else:
            request.note(f"goes on with the chain in {folder.path}")
            keeper.look(force=not taken.live)
        return report(folder.path)
    new, log = new_chain(request, allocation, folder.path)
    was_there, is_own = folder.path.exists(), False
    folder.make()
    try:
        with folder.held():
            if _known(folder) is None:
                if log:
                    folder.log.write_text(log)
                is_own = True
                folder.write(new)
        keeper.look(force=True)
        _settled(keeper)
    except BaseException:
        if is_own:  # else another command has begun the chain meanwhile
            _undone(folder, was_there)
        raise
    return report(folder.path)


def plan_chain(request: ChainRequest) -> PlannedChain:
    """Decision of this moment. Nothing is submitted, and nothing written that stays. See `chain`."""
    import tempfile

    from ecoshare.contrib.chains import slurm_queue
    from ecoshare.contrib.chains.chain_folder import ChainFolder
    from ecoshare.contrib.chains.chain_keeper import ChainKeeper, batch_script, decider

    allocation = allocation_of(request, LEAST_STOP_S)
    folder = ChainFolder(_path(allocation))
    known = _known(folder)
    with tempfile.TemporaryDirectory() as name:
        if known is not None:
            found = taken_up(known, request, allocation)
        else:
            found, log = new_chain(request, allocation, folder.path)
            folder = ChainFolder(Path(name))
            if log:
                folder.log.write_text(log)
        jobs = slurm_queue.own(found.folder)
        decision = None if found.outcome is not None else ChainKeeper(folder).decision(found, jobs)
        provisioner, sight = decider(folder, found, jobs)
        wait_s = provisioner.predictor.wait_s(sight, found.count, found.limit_s)
    script = batch_script(found, len(found.allocations) + 1)
    return PlannedChain(found, script, decision, known is None, wait_s)


def report(folder: Path) -> ChainReport:
    """Record of the chain in a folder, with its account.

    Raises:
        UsageError: The folder has no chain.
    """
    from ecoshare.contrib.chains.chain_folder import ChainFolder

    found = ChainFolder(folder).read()
    return ChainReport(folder, found, ChainAccount.of(found))


def going_on_words(found: AllocationChain) -> tuple[str, str]:
    """Words on the jobs that go on without the command, and on how to end them."""
    live = [(each, "runs" if each.started_s is not None else "waits") for each in found.live if each.job is not None]
    if not live:
        return "no allocation of the chain is queued", "the same command goes on with it"
    words = listed([f"Slurm job {each.job} {state}" for each, state in live], most=len(live))
    ids = " ".join(str(each.job) for each, _ in live)
    return (
        f"{words}, and the chain goes on without this command",
        f"`scancel {ids}` ends it; the same command follows it again",
    )


def _path(allocation: AllocationRequest) -> Path:
    return allocation.runs.absolute() / f"chain-{allocation.name}"


def _known(folder: ChainFolder) -> AllocationChain | None:
    from ecoshare.contrib.chains.chain_record import read_chain

    return read_chain(folder.path)


def _settled(keeper: ChainKeeper) -> None:
    """Wait until Slurm has said whether the first allocation can start at all.

    Raises:
        UnfitEnvironment: It never can. It is cancelled.
    """
    from ecoshare.contrib.chains import slurm_queue

    until_s = time.time() + _SETTLES_WITHIN_S
    while time.time() < until_s:
        found = keeper.reconcile()
        if found.outcome is ChainOutcome.FAILED:
            raise UnfitEnvironment(found.notes[-1] if found.notes else "the chain could not begin", "ask for less")
        jobs = slurm_queue.own(found.folder)
        if not jobs or not jobs[0].waits:
            return
        time.sleep(0.3)


def _undone(folder: ChainFolder, was_there: bool) -> None:
    """Take a chain back that could not begin: nothing of it stays in the queue or on the disk."""
    from ecoshare.contrib.chains import slurm_queue

    with contextlib.suppress(EcoshareError, OSError):
        slurm_queue.cancel([each.job for each in slurm_queue.own(str(folder.path))])
    if not was_there:
        shutil.rmtree(folder.path, ignore_errors=True)


def _await_last(folder: ChainFolder, found: AllocationChain) -> None:
    """Wait a while for allocations that have seen the end of the chain, and for the report, which one of them draws."""
    run = folder.run
    draws = run is not None and found.outcome is ChainOutcome.DONE and "--no-report" not in found.run_options
    until_s = time.time() + _LAST_WITHIN_S
    while time.time() < until_s:
        idle = any(each.is_idle for each in folder.read().allocations)
        if not idle and not (draws and run is not None and not run.report.exists()):
            return
        time.sleep(_POLL_S)


class _Told:
    """Shows each change of a chain once."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._last = dict[int, str]()

    def changes(self, found: AllocationChain) -> None:
        """Show what has changed since the last call."""
        for each in found.allocations:
            if each.end is not None:
                words = each.end.value
            elif each.works:
                words = "works"
            elif each.is_idle:
                words = "waits for its predecessor"
            else:
                words = "waits in the queue"
            if self._last.get(each.number) != words:
                self._last[each.number] = words
                self._say(f"allocation {each.number}, Slurm job {each.job}: {words}")
