"""Figures of a job class that the core takes from its profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ecoshare.core.memory import outgrows, with_peak
from ecoshare.profiling.profile import Profile
from ecoshare.profiling.profile_store import ProfileStore
from ecoshare.record.energy_account import EnergyRate
from ecoshare.record.energy_rate import energy_rate
from ecoshare.record.job_history import JobHistory
from ecoshare.runtime.planned_job import PlannedJob
from ecoshare.values.class_profile import CONTEXT_BYTES, MemoryDemand, Solo


def demand(known: Profile) -> MemoryDemand | None:
    """Memory demand of a job of the class, its context included; None if it was not measured."""
    memory = known.memory
    if memory.persistent_bytes is None or memory.ephemeral_bytes is None:
        return None
    on_gpu = known.machine.uuid is not None
    unseen_bytes = CONTEXT_BYTES if on_gpu and memory.context_bytes is None else 0
    measured = MemoryDemand(memory.persistent_bytes + unseen_bytes, memory.ephemeral_bytes)
    return measured if memory.seen_bytes is None else with_peak(measured, memory.seen_bytes)


def teach_memory(history: Mapping[str, JobHistory], store: ProfileStore) -> None:
    """Keep the largest memory of each class of which a job has outgrown its profile, for later plans.

    Raises:
        UnfitEnvironment: A profile cannot be written: no room, or no permission.
    """
    seen: dict[str, int] = {}
    for job in history.values():
        if job.spec is not None and job.told_bytes:
            seen[job.spec.job_class] = max(job.told_bytes, seen.get(job.spec.job_class, 0))
    for job_class, seen_bytes in seen.items():
        known = store.find(job_class)
        measured = demand(known) if known is not None else None
        if known is not None and measured is not None and outgrows(measured, seen_bytes):
            memory = known.memory.model_copy(update={"seen_bytes": seen_bytes})
            store.save(known.model_copy(update={"memory": memory}))


def contexts(on_processors: bool, made: Mapping[str, Profile], known: Mapping[str, Profile]) -> Callable[[str], int]:
    """Lookup of the memory (bytes) of a process outside its allocator, by its class; an assumption if it is unknown.

    It is 0 on processors, where nothing but the whole memory of a process is limited.

    Args:
        on_processors: Whether jobs run on the processors.
        made: Profiles that the run has made, by class.
        known: Profiles of earlier runs, by class.
    """

    def context_bytes(job_class: str) -> int:
        if on_processors:
            return 0
        profile = made.get(job_class) or known.get(job_class)
        measured = profile.memory.context_bytes if profile is not None else None
        return CONTEXT_BYTES if measured is None else measured

    return context_bytes


def solo(known: Profile, batch_sizes: Sequence[int] = ()) -> Solo:
    """Measurements of the class alone, except its memory.

    Args:
        known: Profile of the class.
        batch_sizes: Batch sizes that the job may use if it is a service; empty for those of its program.
    """
    energy = known.energy
    return Solo(
        family=known.origin.script,
        iteration_s=known.train.mean_s if known.train is not None else None,
        power_w=energy.power_w if energy is not None else None,
        idle_w=energy.idle_w if energy is not None else None,
        busy=known.use.busy,
        memory_busy=known.use.memory_busy,
        longest_s=_longest_s(known, batch_sizes),
    )


def _longest_s(known: Profile, batch_sizes: Sequence[int]) -> float | None:
    """Upper quantile (s) of an iteration or an answer; None if it is not known well."""
    if known.doubt:  # times are too long then, and would keep jobs out of lanes that have room for them
        return None
    iterations_s = [each.p95_s for each in (known.train, known.eval) if each is not None]
    return max(iterations_s, default=None) or known.longest_answer_s(batch_sizes)


def energy_rates(
    jobs: Mapping[str, PlannedJob], made: Mapping[str, Profile], known: Mapping[str, Profile]
) -> Callable[[str], EnergyRate | None]:
    """Lookup of the joules of an iteration of a job's class alone, by the name of the job; None if they are unknown.

    Args:
        jobs: Jobs of the run.
        made: Profiles that the run has made, by class.
        known: Profiles of earlier runs, by class.
    """

    def rate(name: str) -> EnergyRate | None:
        job = jobs.get(name)
        profile = (made.get(job.spec.job_class) or known.get(job.spec.job_class)) if job is not None else None
        return energy_rate(profile) if profile is not None else None

    return rate
