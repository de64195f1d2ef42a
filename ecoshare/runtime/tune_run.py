"""Run to find the best setting of its packing: all jobs of a file at once, or one script."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ecoshare.common.plural import listed
from ecoshare.devices.cpu_knobs import CPU_FREQUENCY
from ecoshare.devices.meter_check import check_meter
from ecoshare.devices.occupancy import Occupancy
from ecoshare.errors import Interrupted, JobFailed, UnfitEnvironment, UsageError
from ecoshare.jobs.load import LoadedJobs, load
from ecoshare.policy_names import LANES_TO_PACK
from ecoshare.profiling.profile_store import ProfileStore
from ecoshare.profiling.tuning_store import TuningResult, TuningStore
from ecoshare.record.run_view import ProgressDisplay
from ecoshare.runtime import plan as planning
from ecoshare.runtime import run_opening, shared_folder
from ecoshare.runtime.device_claim import claim, not_restored
from ecoshare.runtime.held_machines import ThisMachine
from ecoshare.runtime.node_claims import NodeClaims
from ecoshare.runtime.profile_run import one_job
from ecoshare.runtime.run_claims import OneSearch
from ecoshare.runtime.run_searches import RunSearches
from ecoshare.runtime.setting_searches import Searching, Show
from ecoshare.runtime.signals import StopSignals
from ecoshare.runtime.waiting_watch import WAITS_S
from ecoshare.values.device import DeviceInfo
from ecoshare.values.goal import Goal

if TYPE_CHECKING:
    from ecoshare.advisers.setting_adviser import PackingSearch
    from ecoshare.runtime.run_lifecycle import FinishedRun


@dataclass(frozen=True, slots=True)
class TuneRun:
    """Request for a tuning run.

    Attributes:
        jobs: Path of a job file or of a script.
        args: Arguments of the script.
        occupancy: Use of the device.
        goal: Goal of the search.
        lanes: Number of lanes; None for one lane for each job, up to `LANES_TO_PACK`.
        knobs: Names of the knobs that may be set; None for all knobs of the device.
        assume_unlocked: Whether to lock clocks without a check for locks of other software.
    """

    jobs: Path
    args: list[str]
    occupancy: Occupancy
    goal: Goal
    lanes: int | None = None
    knobs: tuple[str, ...] | None = None
    assume_unlocked: bool = False

    @property
    def device(self) -> DeviceInfo:
        """The device, as it was when its use began."""
        (device,) = self.occupancy.devices
        return device


def tune(
    asked: TuneRun,
    store: ProfileStore,
    runs: Path,
    progress: ProgressDisplay,
    show: Show | None,
    say: Callable[[str], None],
    signals: StopSignals | None = None,
) -> tuple[TuningResult, str, FinishedRun]:
    """Run the jobs side by side, search their best setting, and stop them. The result is stored for the packing.

    Args:
        asked: The request.
        store: Store of profiles. The result is stored in its folder.
        runs: Folder that gets the run folder.
        progress: Display that gets the progress of the run.
        show: Display of the search; None to show nothing.
        say: Shows a note to the user.
        signals: Signals of the process; None for those of a command.

    Returns:
        The result, the reason for the end of the search, and the run. The reason is empty if the search was cut off;
        then the result is not stored.

    Raises:
        UsageError: The jobs cannot run all at once, or a knob does not exist.
        UnfitEnvironment: This user can set nothing on the device, its joules are not measured, or nothing was tuned.
        JobFailed: A job ended before there was a result.
        Interrupted: The user stopped the run before there was a result.
        NotRestored: Knobs of the device could not be restored.
    """
    check_meter(asked.device)
    loaded = _jobs(asked)
    asked = _within_own_limits(asked, loaded, say)
    lanes = asked.lanes or min(len(loaded.jobs), LANES_TO_PACK)
    plan = planning.make(
        loaded,
        (asked.device,),
        objective=asked.goal.objective,
        policy="fair",
        lanes=lanes,
        places=-(-len(loaded.jobs) // lanes),
        store=store,
        goal=asked.goal,
        only_tune=True,
        learn=False,
    )
    for note in plan.notes:
        say(note)
    beside = asked.knobs is None or CPU_FREQUENCY in asked.knobs
    shared_folder.clear_dead()  # before the claim restores the settings that a dead run left
    settings = claim(asked.device, exact=True, assume_unlocked=asked.assume_unlocked, with_processors=beside)
    if settings.apart and asked.knobs is None:
        say(f"{CPU_FREQUENCY} is not searched: {settings.apart}")
    kept = TuningStore(store.folder)
    try:
        search = Searching(lambda: settings.knobs, asked.device, plan, asked.goal, kept, asked.knobs, show)
    except UsageError:
        settings.restore()
        raise
    if not search.with_processors:
        settings.processors = None
    name = asked.device.name
    one_search = OneSearch(NodeClaims({name: settings}), RunSearches({name: search}))
    machines = ThisMachine(asked.occupancy, one_search)
    result = run_opening.start(plan, loaded.text, runs, progress, machines=machines, signals=signals)
    own = search.first
    if result.unrestored:
        raise not_restored(result.unrestored)
    if not settings.control.specs and settings.control.dropped:
        fault = next(iter(settings.control.dropped.values()))
        raise UnfitEnvironment(f"nothing can be set on {asked.device.model}: {fault}", fault.remedy)
    if own is None or not any(record.energy is not None for record in search.records(own)):
        raise _why_not(result, own)
    tuned = search.result(own)
    if own.ending:
        kept.save(tuned)
    return tuned, own.ending, result


def _jobs(asked: TuneRun) -> LoadedJobs:
    if asked.jobs.suffix not in (".yaml", ".yml"):
        if asked.jobs.is_file() and asked.jobs.suffix != ".py":
            raise UsageError(f"{asked.jobs}: expected a job file (.yaml) or a script (.py)")
        return one_job(asked.jobs, asked.args, "tune")
    if asked.args:
        raise UsageError(f"{asked.jobs} is a job file, and takes no arguments", "a script would take them")
    loaded = load(asked.jobs)
    if services := [job.name for job in loaded.jobs if job.service is not None]:
        raise UsageError(
            f"services are tuned while they serve ({listed(services)}): what suits them depends on their requests",
            "`ecoshare run` searches their setting; name the other jobs in a file of their own for `ecoshare tune`",
        )
    if late := [job.name for job in loaded.jobs if job.arrival_s > 0.0]:
        raise UsageError(
            f"{', '.join(late[:3])}: a packing that is tuned runs all at once, and `arrival:` is later",
            "leave out `arrival:`, or name the jobs that share the device in a file of their own",
        )
    return loaded


def _within_own_limits(asked: TuneRun, loaded: LoadedJobs, say: Callable[[str], None]) -> TuneRun:
    """Request with the smallest `slowdown:` of its jobs as tuning limit, if that is less than the present limit."""
    limits = {job.name: job.slowdown_limit for job in loaded.jobs if job.slowdown_limit is not None}
    if not limits or min(limits.values()) >= asked.goal.tuning_limit:
        return asked
    name = min(limits, key=lambda each: limits[each])
    say(f"{name} may be {limits[name]:g} times slower at most (`slowdown:`): no job gets slower than that by tuning")
    return replace(asked, goal=replace(asked.goal, tuning_limit=max(1.0, limits[name])))


def _why_not(result: FinishedRun, own: PackingSearch | None) -> JobFailed | Interrupted | UnfitEnvironment:
    summary = result.data.summary
    if result.waited:
        return JobFailed(
            f"all jobs waited for {WAITS_S:.0f} s and did nothing, before anything was tuned",
            "tuning needs iterations; a service is tuned by `ecoshare run`",
        )
    for job in summary.jobs:
        log = f"what it said is in {summary.stderr_of(job.name)}"
        if job.state == "failed":
            return JobFailed(f"{job.name} failed before anything was tuned: {job.error}", log)
        if job.state == "completed":
            return JobFailed(
                f"{job.name} ended before anything was tuned",
                "let it run for longer: each trial takes some seconds, after the jobs were measured alone",
            )
    if own is not None and own.ending:
        return UnfitEnvironment(f"nothing was tuned: {own.ending}")
    return Interrupted("stopped before anything was tuned")
