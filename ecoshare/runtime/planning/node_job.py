"""A job as a node starts it: plain values, which can travel to another machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ecoshare.base.attempt import GangPart
from ecoshare.base.device import DeviceInfo
from ecoshare.base.job_spec import JobSpec
from ecoshare.base.service import BATCHES, REQUESTS, service_as_dict
from ecoshare.core.commands import StartJob
from ecoshare.lane.files import of_attempt
from ecoshare.lane.messages import LaunchAttempt
from ecoshare.runtime.planning.job_class import JobClass


@dataclass(frozen=True, slots=True)
class NodeJob:
    """A job with everything that starts it.

    Attributes:
        spec: Description of the job for the core.
        job_class: Class of the job.
        has_ranks: Whether ecoshare starts a rank on each device of an attempt; else the job is one process.
        launcher: Name of the launcher that the job is; empty if it is none.
        script: Path of the script; None if `module` names a module, or `is_called`.
        module: Module to run, as `python -m` does.
        args: Arguments.
        resume_args: More arguments of each attempt but the first.
        cwd: Working folder.
        env: Variables that the job file gives.
        inherited: Variables of the environment of its submitter, see `PlannedJob`.
        python: Interpreter; None for that of the node.
        is_fresh: Whether the job has an interpreter of its own.
        timeout_s: See `LaunchAttempt`.
        startup_timeout_s: See `LaunchAttempt`.
        is_called: Whether the job is a call of the function that the lane server was forked with.
        part: Part of a gang over several nodes that runs on this one; None for any other job.
    """

    spec: JobSpec
    job_class: JobClass
    has_ranks: bool
    launcher: str
    script: str | None
    module: str | None
    args: tuple[str, ...]
    resume_args: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    inherited: Mapping[str, str | None]
    python: str | None
    is_fresh: bool
    timeout_s: float | None
    startup_timeout_s: float | None
    is_called: bool = False
    part: GangPart | None = None

    @property
    def has_first_rank(self) -> bool:
        """Whether rank 0 of a gang is here, of which the iterations and the exit record count; True for other jobs."""
        return self.part is None or self.part.first_rank == 0

    def launch(
        self,
        command: StartJob,
        tables: list[tuple[str, int]],
        folder: Path,
        devices: Sequence[DeviceInfo],
        environment: dict[str, str | None],
        opened_s: float,
        process_bytes: int,
        machine_bytes: int,
        context_bytes: int,
        master_port: int = 0,
        gang_table: str = "",
        measures_answers: bool = False,
    ) -> LaunchAttempt:
        """Message that starts an attempt.

        Args:
            command: Command of the core to start the attempt.
            tables: Path of the table of each lane that the job uses, and the slot that it gets there.
            folder: Folder of the job.
            devices: The devices that the job uses.
            environment: Changes to the environment of jobs on these devices; None takes a variable out.
            opened_s: Monotonic time (s) at which the run was opened.
            process_bytes: Most memory (bytes) of a process that several jobs of the lane share.
            machine_bytes: Memory (bytes) that all jobs on the processors of this machine may use together; 0 on a GPU.
            context_bytes: Memory (bytes) of the job's process outside its allocator.
            master_port: Port for the rendezvous of ranks; 0 without ranks.
            gang_table: Path of the table of the gang; empty without ranks.
            measures_answers: Whether a program that calls `ecoshare.serve` measures its answers instead of serving.
        """
        # The limit counts for each process, and one process of several partitions has memory on all of them.
        is_wide = devices[0].on_processors and not self.has_ranks
        again = command.attempt > 1
        return LaunchAttempt(
            command=command.id,
            job=self.spec.name,
            attempt=command.attempt,
            tables=tables,
            script=self.script,
            module=self.module,
            args=[*self.args, *(self.resume_args if again else [])],
            cwd=self.cwd,
            env={
                **self.inherited,
                **environment,
                **self.env,
                "ECOSHARE_ATTEMPT": str(command.attempt),
                "ECOSHARE_JOB": self.spec.name,
            },
            python=self.python,
            fresh=self.is_fresh,
            device=devices[0].kind,
            cap_bytes=command.cap_bytes * (len(devices) if is_wide else 1),
            timeout_s=self.timeout_s,
            startup_timeout_s=self.startup_timeout_s,
            folder=str(folder),
            opened_s=opened_s,
            called=self.spec.name if self.is_called else None,
            fused=command.fused,
            process_bytes=process_bytes,
            machine_bytes=machine_bytes,
            context_bytes=context_bytes,
            launcher=self.launcher,
            processors=[number for each in devices for number in each.processors],
            ranks=len(tables) if self.has_ranks else 0,
            master_port=master_port,
            gang_table=gang_table,
            gang_part=asdict(self.part) if self.part is not None else None,
            rank_processors=[each.processors for each in devices] if self.has_ranks and devices[0].processors else [],
            service=self._service(folder),
            requests_path=str(of_attempt(folder.absolute(), REQUESTS, command.attempt)) if self.spec.service else "",
            batches_path=str(of_attempt(folder.absolute(), BATCHES, command.attempt)) if measures_answers else "",
        )

    def _service(self, folder: Path) -> dict[str, Any] | None:
        """Fields of the service that the job is, with the whole path of its arrivals; None for any other job."""
        service = self.spec.service
        if service is None:
            return None
        if service.requests is not None and service.requests.arrivals:
            whole = replace(service.requests, arrivals=str(folder.absolute() / service.requests.arrivals))
            service = replace(service, requests=whole)
        return service_as_dict(service)
