"""Makes the messages that start attempts: what each process sees of its devices, its lanes and its fellow ranks."""

from __future__ import annotations

from collections.abc import Sequence

from ecoshare.core.commands import StartJob
from ecoshare.devices.context_sharing import ContextSharing
from ecoshare.devices.registry import vendor
from ecoshare.lane.messages import LaunchAttempt
from ecoshare.record.run_folder import RunFolder
from ecoshare.runtime.attempts import Attempts, LiveAttempt
from ecoshare.runtime.loopback_ports import LoopbackPorts
from ecoshare.runtime.memory_limits import MemoryLimits
from ecoshare.runtime.plan import Plan


class AttemptLaunches:
    """Launches of a run."""

    def __init__(
        self,
        plan: Plan,
        folder: RunFolder,
        sharing: ContextSharing,
        opened_s: float,
        attempts: Attempts,
        limits: MemoryLimits,
        measures_answers: bool,
    ) -> None:
        """No launch yet.

        Args:
            plan: Plan of the run.
            folder: The run folder.
            sharing: Decision about the contexts of the jobs.
            opened_s: Monotonic time (s) at which the run was opened.
            attempts: Attempts in progress, and the lanes' tables.
            limits: Memory limits of the jobs' allocators.
            measures_answers: Whether programs that call `ecoshare.serve` measure their answers instead of serving.
        """
        self._plan, self._folder, self._sharing, self._opened_s = plan, folder, sharing, opened_s
        self._attempts, self._limits, self._measures_answers = attempts, limits, measures_answers
        self._ports = LoopbackPorts()
        self._environments: dict[tuple[str, ...], dict[str, str | None]] = {}  # key: names of devices
        self._serves = any(job.spec.service is not None for job in plan.jobs)

    def launch(self, command: StartJob, own: LiveAttempt, names: Sequence[str], process_bytes: int) -> LaunchAttempt:
        """Message that starts an attempt.

        Args:
            command: Command of the core.
            own: The attempt, which has its slots.
            names: Names of its devices, in the order of the slots.
            process_bytes: Most memory (bytes) of a process that several jobs of a lane share.

        Raises:
            OSError: No port is left for the rendezvous of ranks.
            UnfitEnvironment: The table of a gang cannot be written.
        """
        job = own.job
        return job.launch(
            command,
            [(self._attempts.tables[lane].path, slot) for lane, slot in own.places],
            self._folder.job(command.job),
            [self._plan.device(name) for name in names],
            {**self._environment(tuple(names)), **self._behind(own)},
            self._opened_s,
            process_bytes=process_bytes,
            context_bytes=self._limits.context_bytes(job.spec.job_class),
            master_port=self._ports.take() if job.ranks else 0,
            gang_table=self._attempts.gang_table(command.id, job.ranks) if job.ranks else "",
            measures_answers=self._measures_answers,
        )

    def _behind(self, own: LiveAttempt) -> dict[str, str | None]:
        """Variables that let a job in another lane of the device give way to services."""
        return self._sharing.behind if self._serves and own.job.spec.service is None else {}

    def close(self) -> None:
        """Give the ports back. No more launches follow."""
        self._ports.close()

    def _environment(self, names: tuple[str, ...]) -> dict[str, str | None]:
        """Changes to the environment of a job on these devices."""
        if names not in self._environments:
            devices = [self._plan.device(name) for name in names]
            shown = vendor(devices[0].vendor).environment(devices)
            self._environments[names] = {**shown, **self._sharing.environment}
        return self._environments[names]
