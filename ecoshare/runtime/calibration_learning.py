"""Learns how long iterations take on each device, for a calibration of devices that differ.

`alone_iterations.py` has the iterations that count. The profile that a window gave stands in for a class without enough
of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

from ecoshare.common.batch_means import relative_error
from ecoshare.errors import UnfitEnvironment
from ecoshare.profiling.calibration_store import CalibrationStore, IterationTime, identity
from ecoshare.profiling.profile import Profile
from ecoshare.record.run_data import RunData
from ecoshare.record.run_folder import RunFolder
from ecoshare.runtime.alone_iterations import AloneIterations
from ecoshare.values.device import DeviceInfo

LEAST_S, FEWEST = 1.0, 5
"""Least time (s) and fewest iterations of a class on a device that count as a measurement."""


def teach_speeds(
    devices: Sequence[DeviceInfo],
    folder: RunFolder,
    data: RunData,
    made: Mapping[str, Profile],
    store: CalibrationStore,
) -> list[str]:
    """Add the iteration times of a run to the calibration of its devices; return notes for the user.

    Times of the run replace those of an earlier session of it. A run with very long traces adds nothing.

    Args:
        devices: Devices of the run.
        folder: Folder of the run.
        data: Data of the run.
        made: Profiles that the run has made, by class.
        store: Calibrations of all devices.
    """
    if all(identity(device) is None for device in devices):
        return []
    if data.account is None:
        return []
    measured = measured_times(AloneIterations(data.account, data.history), made, folder.path.name)
    try:
        for device in devices:
            store.add(device, measured.get(device.name, {}))
    except UnfitEnvironment as error:
        return [*store.notes, f"the speeds of the devices are not kept: {error}"]
    return store.notes


def measured_times(
    alone: AloneIterations, made: Mapping[str, Profile], run: str
) -> dict[str, dict[str, IterationTime]]:
    """Iteration time of each class alone, by device and class.

    Args:
        alone: Iterations of the run that count.
        made: Profiles that the run has made, by class.
        run: Name of the run.
    """
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for attempt in alone.history.attempts:
        job, devices = alone.history.jobs[attempt.job], alone.history.devices_of(attempt.lanes)
        if job.spec is not None and len(attempt.lanes) == 1 and not job.usage.keeps_lane:
            found[devices[0]][job.spec.job_class] += alone.durations_s(attempt)
    doubted = {name for name, profile in made.items() if profile.doubt}
    times: dict[str, dict[str, IterationTime]] = {
        device: {
            job_class: iteration_time(durations_s, run)
            for job_class, durations_s in classes.items()
            if is_enough(durations_s) and job_class not in doubted
        }
        for device, classes in found.items()
    }
    for name, profile in made.items():
        own = times.get(profile.machine.device, {})
        if name not in own and (time := _profiled(profile, run)) is not None:
            times.setdefault(profile.machine.device, {})[name] = time
    return times


def is_enough(durations_s: Sequence[float]) -> bool:
    """Whether so many iterations count as a measurement."""
    return len(durations_s) >= FEWEST and sum(durations_s) >= LEAST_S


def iteration_time(durations_s: Sequence[float], run: str) -> IterationTime:
    """Time of an iteration of these, in a run of this name."""
    error = relative_error(durations_s)
    return IterationTime(seconds=median(durations_s), iterations=len(durations_s), relative_error=error, run=run)


def _profiled(profile: Profile, run: str) -> IterationTime | None:
    """Time from a profiling window; None if it is too short or doubted, or if the job has several devices."""
    train = profile.train
    if train is None or profile.doubt or train.count < FEWEST or train.count * train.median_s < LEAST_S:
        return None
    error = train.standard_error_s / train.mean_s if train.standard_error_s is not None else None
    return IterationTime(seconds=train.median_s, iterations=train.count, relative_error=error, run=run)
