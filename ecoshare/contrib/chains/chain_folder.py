"""Folder of a chain of allocations, on a file system that the login node and all machines share.

::

    ecoshare-runs/chain-train/
        chain.json           the record: rule, allocations, outcome; replaced as a whole
        chain.lock           held (flock) by the process that changes the record
        allocation-2.sh      batch script of the second allocation
        slurm-41.out         output of its Slurm job
        sacct.txt            log that predictions are made from
        latest/              the run, which has a copy of the record
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from ecoshare.base.disk import locked_alone
from ecoshare.contrib.chains import chain_steps
from ecoshare.contrib.chains.allocation_chain import AllocationChain
from ecoshare.contrib.chains.chain_record import read_chain, write_chain
from ecoshare.contrib.chains.logs import batch_log
from ecoshare.contrib.chains.logs.batch_job import BatchJob
from ecoshare.contrib.chains.own_jobs import GPU, script_name
from ecoshare.errors import EcoshareError, UnfitEnvironment, UsageError
from ecoshare.record.run_folder import RunFolder, unwritable, write_text

LOCK_WITHIN_S = 60.0
"""Longest time (s) to wait for the lock: a look holds it while Slurm answers."""

_LOCK_POLL_S = 0.05


class ChainFolder:
    """Paths and record of a chain.

    Attributes:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        """Name a folder, which may not exist."""
        self.path = path

    def script(self, number: int) -> Path:
        """Batch script of an allocation."""
        return self.path / script_name(number)

    @property
    def log(self) -> Path:
        """Log of `sacct`; it exists if the cluster has one."""
        return self.path / "sacct.txt"

    @property
    def run(self) -> RunFolder | None:
        """Folder of the run; None before its begin."""
        latest = RunFolder(self.path / "latest")
        return latest if latest.plan.exists() else None

    def make(self) -> None:
        """Make the folder.

        Raises:
            UnfitEnvironment: It cannot be made.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(self.path, error) from error

    def past(self, resource: str = GPU) -> tuple[BatchJob, ...]:
        """Jobs of the log; none without one, or if it is empty.

        Raises:
            InvalidJobFile: The log has faults.
        """
        if not self.log.exists() or len(self.log.read_text().splitlines()) < 2:
            return ()
        return batch_log.read(self.log, resource).jobs

    @contextlib.contextmanager
    def held(self, within_s: float = LOCK_WITHIN_S) -> Iterator[None]:
        """Context manager: no other process or thread changes the record, or submits for the chain.

        Args:
            within_s: Longest time (s) to wait for the lock.

        Raises:
            UnfitEnvironment: The lock cannot be opened, or another process holds it for too long.
        """
        try:
            file = (self.path / "chain.lock").open("a")
        except OSError as error:
            raise unwritable(self.path / "chain.lock", error) from error
        with file:
            try:
                is_ours = locked_alone(file, within_s, _LOCK_POLL_S)
            except OSError as error:
                raise unwritable(self.path / "chain.lock", error) from error
            if not is_ours:
                raise UnfitEnvironment(
                    f"another process holds {self.path}/chain.lock for {within_s:g} s", "Slurm may be busy"
                )
            yield

    def read(self) -> AllocationChain:
        """The record.

        Raises:
            UsageError: There is none, or it is damaged.
        """
        chain = read_chain(self.path)
        if chain is None:
            raise UsageError(f"{self.path} has no chain")
        return chain

    def write(self, chain: AllocationChain) -> None:
        """Write the record, in a `held` block. Ends that were recorded meanwhile by `end` stay.

        Raises:
            UnfitEnvironment: The disk is full, or permission is missing.
        """
        with contextlib.suppress(EcoshareError):
            chain = chain_steps.with_ends(chain, self.read())
        write_chain(self.path, chain)
        if (run := self.run) is not None:
            with contextlib.suppress(EcoshareError):  # a copy for the report
                write_chain(run.path, chain)

    def change(
        self, edit: Callable[[AllocationChain], AllocationChain], within_s: float = LOCK_WITHIN_S
    ) -> AllocationChain:
        """Change the record, and return it as it is then.

        Args:
            edit: Returns the other chain.
            within_s: Longest time (s) to wait for the lock.

        Raises:
            UsageError: There is no record, or it is damaged.
            UnfitEnvironment: Another process holds the lock for too long, or the record cannot be written.
        """
        with self.held(within_s):
            return self._edited(edit)

    def end(self, edit: Callable[[AllocationChain], AllocationChain], within_s: float) -> AllocationChain:
        """Record the end of an allocation, without the lock if a look that is stuck holds it for too long.

        Each later write keeps this end. See `change`.
        """
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(UnfitEnvironment):
                stack.enter_context(self.held(within_s))
            return self._edited(edit)

    def _edited(self, edit: Callable[[AllocationChain], AllocationChain]) -> AllocationChain:
        chain = edit(before := self.read())
        if chain != before:
            self.write(chain)
        return chain

    def write_script(self, number: int, text: str) -> Path:
        """Write the batch script of an allocation."""
        write_text(self.script(number), text)
        return self.script(number)
