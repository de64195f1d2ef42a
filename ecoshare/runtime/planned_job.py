"""A job of the job file, with its description for the core and its launch message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ecoshare.core.commands import StartJob
from ecoshare.jobs.fields import Launch
from ecoshare.jobs.metric import Metric
from ecoshare.jobs.schema import JobConfig
from ecoshare.lane.files import of_attempt
from ecoshare.lane.launchers import launcher_of
from ecoshare.lane.messages import LaunchAttempt
from ecoshare.profiling.iteration_store import LearnedIterations
from ecoshare.runtime.job_class import JobClass
from ecoshare.values.device import DeviceInfo
from ecoshare.values.job_spec import JobSpec
from ecoshare.values.service import BATCHES, REQUESTS, service_as_dict

_TORCHRUN = "torch.distributed.run"
"""Module of torchrun."""


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job of the file, or a trial of one of its sweeps.

    Attributes:
        spec: Description of the job for the core.
        arrival_s: Time (s) of its arrival, from the opening of the run.
        source: The job as the file describes it.
        job_class: Class of the job.
        learned: Number of iterations in `spec` with its origin, if it was learned; None if it was given or is unknown.
        metric: Metric that a trial reports; None without one.
        inherited: Variables of the environment that its submitter has and the run has not, or has otherwise; None takes
            one out.
        called: Whether the job is a call of the function that the lane server was forked with.
    """

    spec: JobSpec
    arrival_s: float
    source: JobConfig
    job_class: JobClass
    learned: LearnedIterations | None = None
    metric: Metric | None = None
    inherited: Mapping[str, str | None] = field(default_factory=dict)
    called: bool = False

    @property
    def launcher(self) -> str:
        """Name of the launcher that the job is; empty if it is none."""
        script, module, args = self._program()
        return "" if self.called else launcher_of(script, module, args)

    @property
    def ranks(self) -> int:
        """Number of ranks that ecoshare starts, one on each device; 0 for a job of one process."""
        return self.spec.gpus if self.source.launch is Launch.RANKS else 0

    def _program(self) -> tuple[str | None, str | None, tuple[str, ...]]:
        """Script, module and arguments to run: those of torchrun, if that starts the job."""
        job = self.source
        script = str(job.script) if job.script is not None else None
        if job.launch is not Launch.TORCHRUN:
            return script, job.module, job.args
        program = (script,) if script is not None else ("-m", str(job.module))
        return None, _TORCHRUN, ("--standalone", f"--nproc-per-node={self.spec.gpus}", *program, *job.args)

    def launch(
        self,
        command: StartJob,
        tables: list[tuple[str, int]],
        folder: Path,
        devices: Sequence[DeviceInfo],
        environment: dict[str, str | None],
        opened_s: float,
        process_bytes: int,
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
            context_bytes: Memory (bytes) of the job's process outside its allocator.
            master_port: Port for the rendezvous of ranks; 0 without ranks.
            gang_table: Path of the table of the gang; empty without ranks.
            measures_answers: Whether a program that calls `ecoshare.serve` measures its answers instead of serving.
        """
        job = self.source
        script, module, args = self._program()
        # The limit counts for each process, and one process of several partitions has memory on all of them.
        is_wide = devices[0].on_processors and not self.ranks
        again = command.attempt > 1
        return LaunchAttempt(
            command=command.id,
            job=job.name,
            attempt=command.attempt,
            tables=tables,
            script=script,
            module=module,
            args=[*args, *(job.resume_args if again else [])],
            cwd=str(job.cwd),
            env={
                **self.inherited,
                **environment,
                **job.env,
                "ECOSHARE_ATTEMPT": str(command.attempt),
                "ECOSHARE_JOB": job.name,
            },
            python=str(job.python) if job.python is not None else None,
            fresh=job.isolation == "fresh",
            device=devices[0].kind,
            cap_bytes=command.cap_bytes * (len(devices) if is_wide else 1),
            timeout_s=job.timeout_s,
            startup_timeout_s=job.startup_timeout_s,
            folder=str(folder),
            opened_s=opened_s,
            called=job.name if self.called else None,
            fused=command.fused,
            process_bytes=process_bytes,
            context_bytes=context_bytes,
            launcher=self.launcher,
            processors=[number for each in devices for number in each.processors],
            ranks=self.ranks,
            master_port=master_port,
            gang_table=gang_table,
            rank_processors=[each.processors for each in devices] if self.ranks and devices[0].processors else [],
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

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, with the names of environment variables but not their values."""
        job = self.source
        return {
            "name": job.name,
            "class": self.spec.job_class,
            "script": str(job.script) if job.script is not None else None,
            "module": job.module,
            "args": list(job.args),
            "cwd": str(job.cwd),
            "env": sorted(job.env),
            "arrival_s": self.arrival_s,
            "priority": job.priority,
            "iterations": self.spec.iterations,
            "iterations_learned": asdict(self.learned) if self.learned is not None else None,
            "gpus": job.gpus,
            "launch": job.launch,
            "slowdown_limit": job.slowdown_limit,
            "isolation": job.isolation,
            "launcher": self.launcher or None,
            "retries": job.retries,
            "preemptible": job.preemptible,
            "after": list(job.after),
            "after_any": list(job.after_any),
            "on_end": list(job.on_end),
            "service": service_as_dict(self.spec.service) if self.spec.service is not None else None,
        }
