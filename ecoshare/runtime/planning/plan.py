"""Decisions before a run begins, as a value that can be printed, stored and run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ecoshare.base.class_profile import KnownResponse, Solo
from ecoshare.base.device import Device, DeviceInfo, Speeds
from ecoshare.base.job_spec import JobSpec, partial_words
from ecoshare.base.joules import MEASURED
from ecoshare.base.measurement import OBJECTIVES, ColocationMeasurement, Goal, KnownSetting
from ecoshare.base.plural import counted, listed
from ecoshare.core.events import SCHEMA, Config
from ecoshare.errors import UsageError
from ecoshare.jobs.fields import Launch
from ecoshare.jobs.load import LoadedJobs
from ecoshare.jobs.quantities import format_size
from ecoshare.jobs.schema import JobConfig
from ecoshare.knowledge.iteration_store import LearnedIterations
from ecoshare.knowledge.profile import Profile
from ecoshare.knowledge.tuning_store import TuningStore
from ecoshare.lane.tables.table_layout import SLOTS
from ecoshare.policy_names import LANES_TO_PACK, check_objective, check_policy, packs, places_of, policy_options
from ecoshare.record.plan_document import BudgetDocument, JobDocument, PlanDocument
from ecoshare.run_options import RunOptions
from ecoshare.runtime.planning import plan_checks, planned_knowledge, planned_limits, planned_sweeps
from ecoshare.runtime.planning.job_class import JobClass, JobClasses
from ecoshare.runtime.planning.planned_job import PlannedJob
from ecoshare.runtime.planning.planned_knowledge import known_demand, known_responses, known_solo, learned_iterations
from ecoshare.runtime.planning.planned_limits import (
    NO_BUDGET,
    PlannedBudget,
    PlannedMachines,
    check_job,
    planned_budget,
)
from ecoshare.runtime.planning.planned_sweeps import PlannedSweep

LEAST_BYTES = 256 << 20
"""Least memory (bytes) that a job needs: torch alone."""

PLACES = 4
"""Default number of jobs in a lane. On a GPU, each job gets an equal share of the memory until it has a profile."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A run before it begins.

    Attributes:
        job_file: Path of the job file.
        digest: Digest of the job file, to check that a resumed run is the same run.
        objective: Name of the objective.
        policy: Name of the policy.
        options: Options of the policy, as (name, value) pairs.
        devices: The devices that the run uses, all of one model. The memory of each is what its lanes together may use.
        lanes: Number of lanes of each device.
        places: Most jobs in one lane.
        mps: Whether jobs of parallel lanes share a context through MPS.
        profiles: Folder of profiles; None if classes without a profile are not measured.
        known: Stored profiles of the classes of this run, by class.
        control: Whether clocks and power may be set.
        goal: Goal of searches for the best settings of packings; None for no search.
        only_tune: Whether the run is for one search only.
        known_settings: Known settings for packings of these classes.
        colocations: Co-location measurements of these classes, the oldest first.
        notes: Notes for the user about these decisions, one line each.
        jobs: Jobs of the file without a sweep, and trials of an earlier session that run again.
        sweeps: Jobs of the file with a sweep.
        made_file: Whether the job file was made from scripts on the command line. The run folder holds it.
        on_end: Command for the end of the run, word by word; empty for none.
        host_bytes: Host memory (bytes) for parked jobs; 0 if no job is parked.
        budget: Power budget.
        speeds: Relative speeds of devices that differ, by the name of the device; see `Device.speeds`.
        known_responses: Measurements of packings of these classes under power limits, if the budget sets limits.
        queue: Name of the queue that the run belongs to; empty for a run of a job file.
        held: Names of jobs and sweeps that do not arrive until the user releases them.
        ended: Final states of jobs and sweeps that ended in earlier sessions, by name.
        shares_memory: Whether other runs may have a part of the memory of the devices.
        run_options: Options of the run. Those that have no default of their own are filled in, so that a resumed run
            has them, too.
    """

    job_file: Path
    digest: str
    objective: str
    policy: str
    options: tuple[tuple[str, float], ...]
    devices: tuple[DeviceInfo, ...]
    lanes: int
    places: int
    mps: bool
    profiles: Path | None
    known: dict[str, Profile]
    control: bool
    goal: Goal | None
    only_tune: bool
    known_settings: tuple[KnownSetting, ...]
    colocations: tuple[ColocationMeasurement, ...]
    notes: tuple[str, ...]
    jobs: tuple[PlannedJob, ...]
    sweeps: tuple[PlannedSweep, ...] = ()
    made_file: bool = False
    on_end: tuple[str, ...] = ()
    host_bytes: int = 0
    budget: PlannedBudget = NO_BUDGET
    speeds: Mapping[str, Speeds] = field(default_factory=dict)
    known_responses: tuple[KnownResponse, ...] = ()
    queue: str = ""
    held: frozenset[str] = frozenset()
    ended: Mapping[str, str] = field(default_factory=dict)
    shares_memory: bool = False
    run_options: RunOptions = field(default_factory=RunOptions)

    @classmethod
    def of(
        cls,
        loaded: LoadedJobs,
        machines: PlannedMachines,
        options: RunOptions,
        *,
        sought: Goal | None = None,
        learn: bool = True,
        queue: str = "",
        beside: Collection[str] = (),
    ) -> Plan:
        """Decide how to run the jobs of a file.

        Args:
            loaded: The jobs.
            machines: Machines with the devices, all of one model.
            options: Options of the run.
            sought: Goal of the one search that the run is for, under any policy; None if it is for its jobs.
            learn: Whether jobs without `iterations:` take the number that earlier runs took.
            queue: Name of the queue that the run belongs to; empty for a run of a job file.
            beside: Classes of the other jobs of the run, which these jobs may share a device with.

        Raises:
            UsageError: Options do not go together, an option is out of range or names what does not exist, or a run for
                one search has a sweep.
            InvalidJobFile: A job needs more devices than the run has.
            UnfitEnvironment: A sweep needs Optuna, which is not installed, or jobs cannot be parked on this machine.
        """
        objective = options.objective
        check_objective(objective)
        policy = options.policy or objective
        check_policy(policy)
        lanes = options.lanes if options.lanes is not None else LANES_TO_PACK if packs(policy) else 1
        places = options.jobs_per_lane if options.jobs_per_lane is not None else PLACES
        if not 1 <= places <= SLOTS:
            raise UsageError(f"--jobs-per-lane {places}: expected 1 to {SLOTS}")
        if not 1 <= lanes <= SLOTS:
            raise UsageError(f"--lanes {lanes}: expected 1 to {SLOTS}")
        memory_bytes, host_bytes, store = options.memory_bytes, options.host_bytes, options.store
        hosts = machines.parking_hosts() if host_bytes else {}
        if host_bytes:
            planned_limits.check_host_memory(host_bytes, policy, machines.devices, lanes, hosts)
        budget = NO_BUDGET
        if (watts := options.power_budget_w) is not None:
            budget = planned_budget(watts, options.power_budget_by, machines, options.sets, options.tuning_limit)
        notes = _too_much(memory_bytes, machines.devices)
        devices = planned_limits.left_for_jobs(host_bytes, machines.devices, memory_bytes, hosts)
        device, smallest_bytes = devices[0], min(each.memory_bytes for each in devices)
        if smallest_bytes < (need := 1 if packs(policy) else lanes) * LEAST_BYTES:
            where = f" in {counted(lanes, 'lane')}" if need > 1 else ""
            raise UsageError(
                f"{format_size(smallest_bytes)} of memory{where}: torch alone takes {format_size(LEAST_BYTES)}",
                "give more with --memory, or take fewer lanes",
            )
        classes = JobClasses(device.described)
        planned = [(job, classes.of(planned_sweeps.classified(job))) for job in loaded.jobs]
        names = {job_class.name: job_class for _, job_class in planned}
        shown = planned_knowledge.shown_jobs(planned)
        known, of_profiles = planned_knowledge.known_profiles(names, shown, store)
        lengths, of_lengths = learned_iterations(planned, store if learn else None)
        nodes, of_nodes = plan_checks.most_nodes(planned, devices, store)
        speeds, of_speeds = planned_knowledge.known_speeds(devices, names, store)
        notes += [*of_profiles, *of_lengths, *of_nodes, *of_speeds]
        measured_at = {
            name: planned_knowledge.speed_where_measured(each, devices, speeds) for name, each in known.items()
        }
        both = [
            _plan(
                job,
                job_class,
                known.get(job_class.name),
                lengths.get(job.name),
                measured_at.get(job_class.name, 1.0),
                nodes[job.name],
                spans=nodes[job.name] > 1 and len({each.node for each in devices}) > 1,
            )
            for job, job_class in planned
        ]
        both = list(map(plan_checks.with_cuts, both))
        if not device.on_processors:
            both = [plan_checks.with_whole_device(job, smallest_bytes) for job in both]
        notes += plan_checks.launcher_notes(both, device.on_processors)
        every_lane = lanes * len(devices)
        notes += planned_limits.parking_notes(both, policy, host_bytes, every_lane * places, len(devices))
        jobs = tuple(job for job in both if job.source.sweep is None)
        at_once = every_lane + len(devices) if packs(policy) else every_lane * places
        swept = tuple(
            planned_sweeps.plan_sweeps(job, every_lane * places + every_lane, at_once)
            for job in both
            if job.source.sweep is not None
        )
        if sought is not None and swept:
            raise UsageError(f"{swept[0].name} is a sweep: one of its trials can be tuned, as a job of its own")
        for job in both:
            check_job(budget, loaded, job.spec)
        plan_checks.check_devices(loaded, both, devices)
        planned_sweeps.check_sweeps(loaded, both)
        notes += partial_words({job.spec.name: job.spec.job_class for job in both})
        notes += plan_checks.device_notes(both, policy, bool(budget), device.on_processors)
        unknown = [job.spec.name for job in jobs if job.spec.iterations is None and job.spec.service is None]
        if policy in ("srtf", *OBJECTIVES) and unknown and len(jobs) > 1:
            give, they_are = ("gives", "it is") if len(unknown) == 1 else ("give", "they are")
            nor_known = ", and no earlier run tells them" if lengths else ""
            notes.append(
                f"policy {policy}: {len(unknown)} of {len(jobs)} jobs {give} no `iterations:`{nor_known} "
                f"({listed(unknown)}); {they_are} ranked by the time that each has had"
            )
        responses: tuple[KnownResponse, ...] = ()
        if budget.sets_limits and store is not None:
            responses, of_responses = known_responses({*names, *beside}, device, TuningStore(store.folder))
            notes += of_responses
        notes += plan_checks.service_notes(both)
        if not device.on_processors:
            notes += plan_checks.cut_notes(both, smallest_bytes)
        plan_checks.check_places(both, every_lane * places_of(policy, places))
        limited = [job.source.name for job in jobs if job.source.slowdown_limit is not None]
        if limited and not packs(policy):
            notes.append(f"slowdown limits ({listed(limited)}) are checked at the end; nothing steers by them yet")
        settings: tuple[KnownSetting, ...] = ()
        if (sets_any_knob := options.sets and not budget.sets_limits) and sought is None:
            settings, of_settings = planned_knowledge.known_settings(
                {*names, *beside}, device, objective, lanes, shown, store
            )
            notes += of_settings
        colocations: tuple[ColocationMeasurement, ...] = ()
        if packs(policy):
            colocations, of_colocations = planned_knowledge.known_colocations({*names, *beside}, store)
            notes += of_colocations
        searches = packs(policy) and store is not None and sets_any_knob
        folder = store.folder if store is not None else None
        return cls(
            job_file=loaded.path,
            digest=loaded.digest,
            objective=objective,
            policy=policy,
            options=policy_options(options.options, [policy]),
            devices=devices,
            lanes=lanes,
            places=places,
            mps=False,
            profiles=folder,
            known=known,
            control=options.sets,
            goal=sought or (options.goal if searches else None),
            only_tune=sought is not None,
            known_settings=settings,
            colocations=colocations,
            notes=tuple(dict.fromkeys(notes)),
            jobs=jobs,
            sweeps=swept,
            made_file=loaded.made,
            on_end=loaded.on_end,
            host_bytes=host_bytes,
            budget=budget,
            speeds=speeds,
            known_responses=responses,
            queue=queue,
            run_options=replace(options, policy=policy, lanes=lanes, jobs_per_lane=places, profiles=folder),
        )

    def opening(self) -> dict[str, Any]:
        """Fields of the `RunOpened` event of the run."""
        return {
            "schema": SCHEMA,
            "config": Config(
                self.policy,
                self.lanes,
                self.places,
                self.mps,
                self.profiles is not None,
                self.goal is not None,
                options=self.options,
                enforces_memory=True,
                grows=True,
                host_bytes=self.host_bytes,
                displaces=any(job.spec.movable for job in self.jobs),
                power_budget_w=self.budget.watts,
                budget_by_placement=self.budget.by_placement,
                tuning_limit=self.budget.tuning_limit if self.budget else 0.0,
                shares_memory=self.shares_memory,
                counts_jobs=True,
            ),
            "devices": tuple(
                Device(
                    each.name,
                    each.node,
                    each.memory_bytes,
                    self.speeds.get(each.name, ()),
                    each.cores if each.on_processors else 0,
                    links=each.links,
                    power_limits_w=self.budget.limits_w.get(each.name, ()),
                    draws_w=self.budget.draws_w.get(each.name, (0.0, 0.0)),
                )
                for each in self.devices
            ),
            "known_settings": self.known_settings,
            "colocations": self.colocations,
            "known_responses": self.known_responses,
        }

    @property
    def on_processors(self) -> bool:
        """Whether jobs run on the processors; see `DeviceInfo.on_processors`."""
        return self.devices[0].on_processors

    def device(self, name: str) -> DeviceInfo:
        """Device with this name."""
        return next(each for each in self.devices if each.name == name)

    def document(self) -> PlanDocument:
        """The plan as `plan.json` has it."""
        return PlanDocument(
            schema_version=1,
            job_file=str(self.job_file.absolute()),  # a run can be resumed from any folder
            made_file=self.made_file,
            digest=self.digest,
            objective=self.objective,
            policy=self.policy,
            options=dict(self.options),
            devices=[each.as_dict() for each in self.devices],
            speeds={name: dict(speeds) for name, speeds in self.speeds.items()},
            host_bytes=self.host_bytes,
            power_budget=BudgetDocument(**self.budget.as_dict()) if self.budget else None,
            lanes=self.lanes,
            places_per_lane=self.places,
            mps=self.mps,
            profiles=str(self.profiles.absolute()) if self.profiles is not None else None,
            known_classes=sorted(self.known),
            control=self.control,
            goal=asdict(self.goal) if self.goal is not None else None,
            run_options=self.run_options.kept(),
            only_tune=self.only_tune,
            queue=self.queue,
            tuned=[{"packing": each.packing, "setting": dict(each.setting)} for each in self.known_settings],
            measured_beside=[list(each.classes) for each in self.colocations],
            on_end=list(self.on_end),
            notes=list(self.notes),
            jobs=[job.document() for job in self.jobs],
            sweeps=[sweep.document() for sweep in self.sweeps],
        )

    def described(self) -> Iterator[JobDocument]:
        """Jobs and sweeps, as the document has them."""
        yield from (job.document() for job in self.jobs)
        yield from (sweep.document() for sweep in self.sweeps)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return self.document().as_dict()

    def idle_w(self, device: DeviceInfo, meter: str) -> float | None:
        """Power (W) of an idle device by this meter, from the newest profile that has it; None without one."""
        told = [
            profile
            for profile in self.known.values()
            if profile.energy is not None
            and (profile.energy.meter, profile.energy.source) == (meter, MEASURED)
            and (profile.origin.device_model, profile.machine.uuid) == (device.described, device.uuid)
            and profile.energy.idle_w is not None
        ]
        newest = max(told, key=lambda profile: profile.made_utc, default=None)
        return newest.energy.idle_w if newest is not None and newest.energy is not None else None

    def without_profiles(self) -> Plan:
        """The same plan without profiles, and without what was measured of packings and devices."""
        unknown = tuple(replace(job, spec=replace(job.spec, memory=None, profiled=False)) for job in self.jobs)
        return replace(self, jobs=unknown, known={}, known_settings=(), colocations=(), speeds={}, known_responses=())

    @property
    def awaited(self) -> set[str]:
        """Names of the jobs and sweeps that those of the plan wait for."""
        return {name for job in self.everything for name in (*job.source.after, *job.source.after_any)}

    @property
    def everything(self) -> tuple[PlannedJob, ...]:
        """All jobs, and the template of each sweep."""
        return (*self.jobs, *(sweep.template for sweep in self.sweeps))


def _too_much(memory_bytes: int | None, devices: Sequence[DeviceInfo]) -> list[str]:
    """Note that a device has less memory than the user gives its jobs; empty if none has."""
    smallest = min(devices, key=lambda each: each.memory_bytes)
    if memory_bytes is None or memory_bytes <= smallest.memory_bytes:
        return []
    where = "the device" if len(devices) == 1 else smallest.name
    return [f"{format_size(memory_bytes)} is more than {where} has: {format_size(smallest.memory_bytes)}"]


def _plan(
    job: JobConfig,
    job_class: JobClass,
    profile: Profile | None,
    length: LearnedIterations | None,
    speed: float,
    nodes: int,
    spans: bool,
) -> PlannedJob:
    """Job of the plan. Times are those of a typical device.

    Args:
        speed: Speed of the device of the profile.
        nodes: Most machines of the job.
        spans: Whether the devices of the job may lie on several nodes of the run.
    """
    iterations = job.iterations if length is None else length.iterations
    service = job.service.spec if job.service is not None else None
    sizes = service.batch_sizes if service is not None else ()
    spec = JobSpec(
        name=job.name,
        job_class=job_class.name,
        gpus=job.gpus,
        priority=job.priority,
        iterations=iterations,
        service_s=_service_s(iterations, profile, speed),
        active_w=_active_w(profile),
        retries=job.retries,
        memory=known_demand(profile) if profile is not None else None,
        solo=known_solo(profile, sizes).on_typical_device(speed)
        if profile is not None
        else Solo(job_class.origin.script),
        slowdown_limit=job.slowdown_limit,
        movable=job.preemptible and (job.sweep is None or job.isolation != "lane"),
        widest=job.most_gpus or job.gpus,
        nodes=nodes,
        takes_turns=job.gpus > 1 and job.launch is Launch.RANKS and not spans,
        fused=job.isolation == "lane"
        and job.gpus == 1 == (job.most_gpus or 1)
        and job.launch is job.python is None
        and (service is None or service.requests is not None),
        profiled=profile is not None and profile.is_whole,
        service=service,
    )
    made = PlannedJob(spec, job.arrival_s, job, job_class, length)
    return replace(made, spec=replace(spec, fused=False)) if made.launcher else made


def _service_s(iterations: int | None, profile: Profile | None, speed: float) -> float | None:
    """Turn time (s) of the whole job, from the iteration time of its class alone; None if unknown."""
    if iterations is None or profile is None or profile.train is None:
        return None
    return iterations * profile.train.mean_s * speed


def _active_w(profile: Profile | None) -> float | None:
    """Power (W) of the class above the idle device; None if unknown."""
    if profile is None or profile.train is None or profile.energy is None or not profile.train.mean_s:
        return None
    active_j = profile.energy.active_per_iteration_j
    return active_j / profile.train.mean_s if active_j is not None else None
