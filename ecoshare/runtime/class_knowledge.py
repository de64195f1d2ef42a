"""Figures of a job class that the core takes from its profile."""

from __future__ import annotations

from collections.abc import Sequence

from ecoshare.profiling.profile import Profile
from ecoshare.values.class_profile import CONTEXT_BYTES, MemoryDemand, Solo


def demand(known: Profile) -> MemoryDemand | None:
    """Memory demand of a job of the class, its context included; None if it was not measured."""
    memory = known.memory
    if memory.persistent_bytes is None or memory.ephemeral_bytes is None:
        return None
    on_gpu = known.machine.uuid is not None
    unseen_bytes = CONTEXT_BYTES if on_gpu and memory.context_bytes is None else 0
    return MemoryDemand(memory.persistent_bytes + unseen_bytes, memory.ephemeral_bytes)


def context_bytes(known: Profile | None) -> int:
    """Device memory (bytes) of a process of the class outside its allocator, on a GPU; an assumption if unknown."""
    if known is None or known.memory.context_bytes is None:
        return CONTEXT_BYTES
    return known.memory.context_bytes


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
