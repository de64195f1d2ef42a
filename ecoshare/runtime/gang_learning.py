"""Learns what it costs a gang to have its ranks on several machines, from its iterations there and on one machine."""

from __future__ import annotations

from collections import defaultdict

from ecoshare.errors import UnfitEnvironment
from ecoshare.profiling.calibration_store import IterationTime
from ecoshare.profiling.gang_time_store import GangTimeStore
from ecoshare.record.job_history import AttemptHistory
from ecoshare.record.run_data import RunData
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.run_history import RunHistory
from ecoshare.runtime.alone_iterations import AloneIterations
from ecoshare.runtime.calibration_learning import is_enough, iteration_time


def teach_gangs(folder: RunFolder, data: RunData, store: GangTimeStore) -> list[str]:
    """Keep the iteration times of the gangs of a run that may be on several machines; return notes for the user.

    A run with very long traces adds nothing.

    Args:
        folder: Folder of the run.
        data: Data of the run.
        store: Times of gangs.
    """
    if not any(_may_span(attempt, data.history) for attempt in data.history.attempts):
        return []
    if data.account is None:
        return []
    alone = AloneIterations(data.account, data.history)
    try:
        for (job_class, nodes), time in gang_times(alone, folder.path.name).items():
            store.add(job_class, nodes, time)
    except (UnfitEnvironment, ValueError) as error:
        return [*store.notes, f"the times of gangs are not kept: {error}"]
    return store.notes


def gang_times(alone: AloneIterations, run: str) -> dict[tuple[str, int], IterationTime]:
    """Iteration time of each class of gangs that may be on several machines, by class and number of machines.

    Args:
        alone: Iterations of the run that count.
        run: Name of the run.
    """
    history = alone.history
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    for attempt in (each for each in history.attempts if _may_span(each, history)):
        spec, names = history.jobs[attempt.job].spec, history.devices_of(attempt.lanes)
        assert spec is not None, "an attempt follows an arrival"
        nodes = len({history.devices[name].node for name in names})
        found[spec.job_class, nodes] += alone.durations_s(attempt)
    return {key: iteration_time(durations_s, run) for key, durations_s in found.items() if is_enough(durations_s)}


def _may_span(attempt: AttemptHistory, history: RunHistory) -> bool:
    """Whether an attempt is one of a gang that may be on several machines, with as many devices as it needs."""
    job = history.jobs[attempt.job]
    return job.spec is not None and len(attempt.lanes) > 1 and job.spec.nodes != 1 and not job.widened
