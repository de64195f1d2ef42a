"""A job of the job file, with its description for the core and for the node that starts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from ecoshare.base.job_spec import JobSpec
from ecoshare.base.service import service_as_dict
from ecoshare.jobs.fields import Launch
from ecoshare.jobs.schema import JobConfig
from ecoshare.jobs.sweep import Metric
from ecoshare.knowledge.iteration_store import LearnedIterations
from ecoshare.lane.child_processes import launcher_of
from ecoshare.record.plan_document import JobDocument, ServiceDocument
from ecoshare.runtime.planning.job_class import JobClass
from ecoshare.runtime.planning.node_job import NodeJob

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
        told: Values that a trial, which goes on from there, has reported in earlier sessions of the run.
        untold: Number of the last of them that the log lacks: an earlier session was killed before it read them.
    """

    spec: JobSpec
    arrival_s: float
    source: JobConfig
    job_class: JobClass
    learned: LearnedIterations | None = None
    metric: Metric | None = None
    inherited: Mapping[str, str | None] = field(default_factory=dict)
    called: bool = False
    told: tuple[float, ...] = ()
    untold: int = 0

    @property
    def launcher(self) -> str:
        """Name of the launcher that the job is; empty if it is none."""
        script, module, args = self._program()
        return "" if self.called else launcher_of(script, module, args)

    @property
    def has_ranks(self) -> bool:
        """Whether ecoshare starts a rank on each device; else the job is one process."""
        return self.source.launch is Launch.RANKS

    def _program(self) -> tuple[str | None, str | None, tuple[str, ...]]:
        """Script, module and arguments to run: those of torchrun, if that starts the job."""
        job = self.source
        script = str(job.script) if job.script is not None else None
        if job.launch is not Launch.TORCHRUN:
            return script, job.module, job.args
        program = (script,) if script is not None else ("-m", str(job.module))
        return None, _TORCHRUN, ("--standalone", f"--nproc-per-node={self.spec.gpus}", *program, *job.args)

    def for_node(self) -> NodeJob:
        """The job as a node starts it."""
        job, (script, module, args) = self.source, self._program()
        return NodeJob(
            spec=self.spec,
            job_class=self.job_class,
            has_ranks=self.has_ranks,
            launcher=self.launcher,
            script=script,
            module=module,
            args=args,
            resume_args=tuple(job.resume_args),
            cwd=str(job.cwd),
            env=dict(job.env),
            inherited=dict(self.inherited),
            python=str(job.python) if job.python is not None else None,
            is_fresh=job.isolation == "fresh",
            timeout_s=job.timeout_s,
            startup_timeout_s=job.startup_timeout_s,
            is_called=self.called,
        )

    def document(self) -> JobDocument:
        """The job as `plan.json` has it, with the names of environment variables but not their values."""
        job, service = self.source, self.spec.service
        return JobDocument(
            name=job.name,
            job_class=self.spec.job_class,
            script=str(job.script) if job.script is not None else None,
            module=job.module,
            args=list(job.args),
            cwd=str(job.cwd),
            env=sorted(job.env),
            arrival_s=self.arrival_s,
            priority=job.priority,
            iterations=self.spec.iterations,
            iterations_learned=asdict(self.learned) if self.learned is not None else None,
            gpus=job.gpus,
            most_gpus=self.spec.widest,
            nodes=job.nodes,
            launch=job.launch,
            slowdown_limit=job.slowdown_limit,
            isolation=job.isolation,
            launcher=self.launcher or None,
            retries=job.retries,
            preemptible=job.preemptible,
            after=list(job.after),
            after_any=list(job.after_any),
            on_end=list(job.on_end),
            service=ServiceDocument(**service_as_dict(service)) if service is not None else None,
        )
