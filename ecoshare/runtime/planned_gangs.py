"""Machines of the gangs of a plan: a gang that loses too much between machines keeps to one.

Tiresias consolidates jobs if the sizes of the tensors of their models are skewed (Gu et al., NSDI 2019, section 3.5),
which is a guess at what the network costs them. Here it is measured: `gang_learning.py` keeps the time of an
iteration on one machine and over several.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ecoshare.common.plural import counted
from ecoshare.jobs.schema import JobConfig
from ecoshare.profiling.gang_time_store import GangTimeStore
from ecoshare.profiling.profile_store import ProfileStore
from ecoshare.runtime.job_class import JobClass
from ecoshare.values.device import DeviceInfo

MOST_SLOWDOWN = 1.25
"""Slowdown over several machines from which a gang waits for room on one: a fifth of its devices' time is lost."""


def most_nodes(
    jobs: Iterable[tuple[JobConfig, JobClass]],
    devices: Sequence[DeviceInfo],
    store: ProfileStore | None,
    notes: list[str],
) -> dict[str, int]:
    """Most machines of each job: as in the job file, or one if more of them cost too much.

    Args:
        jobs: Jobs with their classes.
        devices: Devices of the run.
        store: Profiles of job classes, which have the times of gangs beside them; None to use none.
        notes: Notes for the user, which get one for each gang that keeps to one machine.
    """
    largest = max(Counter(device.node for device in devices).values())
    found = {}
    kept = GangTimeStore(store.folder) if store is not None else None
    for job, job_class in jobs:
        found[job.name] = job.nodes
        fits = job.gpus > 1 and (job.most_gpus or job.gpus) <= largest
        times = kept.find(job_class.name) if kept is not None and fits and job.nodes > 1 else None
        slowdowns = {} if times is None else {each: x for each, x in times.slowdowns.items() if each <= job.nodes}
        if slowdowns and min(slowdowns.values()) >= MOST_SLOWDOWN:
            nodes, slowdown = min(slowdowns.items(), key=lambda each: each[1])
            found[job.name] = 1
            over = counted(nodes, "machine")
            notes.append(
                f"{job.name} keeps to one machine: over {over} its iterations took {slowdown:.2f} times as long"
            )
    notes += kept.notes if kept is not None else []
    return found
