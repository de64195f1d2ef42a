"""Runs that only measure: the profile of one script, or the best setting of a packing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from ecoshare.base.device import DeviceInfo
from ecoshare.base.measurement import Goal
from ecoshare.base.plural import counted, listed
from ecoshare.devices.cpu_knobs import CPU_FREQUENCY
from ecoshare.devices.occupancy import Occupancy
from ecoshare.devices.registry import check_meter
from ecoshare.errors import Interrupted, JobFailed, UnfitEnvironment, UsageError
from ecoshare.jobs.from_values import from_scripts
from ecoshare.jobs.load import LoadedJobs, load
from ecoshare.knowledge.profile import Profile
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.knowledge.tuning_store import TuningResult, TuningStore
from ecoshare.policy_names import LANES_TO_PACK
from ecoshare.record.run_view import ProgressDisplay
from ecoshare.run_options import RunOptions
from ecoshare.runtime import run_opening
from ecoshare.runtime.measuring.device_claim import claim, leftovers, not_restored
from ecoshare.runtime.measuring.profiling_window import ENDED_IN_WINDOW, Limits
from ecoshare.runtime.measuring.run_claims import NodeClaims, OneSearch
from ecoshare.runtime.measuring.setting_searches import RunSearches, Searching, Show
from ecoshare.runtime.nodes import cleanup
from ecoshare.runtime.nodes.held_machines import ThisMachine
from ecoshare.runtime.nodes.job_looks import WAITS_S
from ecoshare.runtime.planning.plan import Plan
from ecoshare.runtime.signals import StopSignals

if TYPE_CHECKING:
    from ecoshare.knowledge.advisers.setting_adviser import PackingSearch
    from ecoshare.runtime.run_lifecycle import FinishedRun


STEADY = Limits(shortest_s=5.0, longest_s=30.0, steady=0.01)
"""Limits of the window. They allow more time than in another run, since no other job waits."""


def profile_script(
    script: Path,
    args: list[str],
    occupancy: Occupancy,
    store: ProfileStore,
    runs: Path,
    progress: ProgressDisplay,
    say: Callable[[str], None],
    iterations: int | None = None,
    signals: StopSignals | None = None,
) -> tuple[Profile, FinishedRun]:
    """Run an unchanged script until its figures are steady, then stop it. The profile is stored.

    Args:
        script: Path of the script.
        args: Arguments of the script.
        occupancy: Use of the device.
        store: Store that keeps the profile.
        runs: Folder that gets the run folder.
        progress: Display that gets the progress of the run.
        say: Shows a note to the user.
        iterations: Number of iterations to measure after the warm-up; None to measure until the figures are steady.
        signals: Signals of the process; None for those of a command.

    Returns:
        The profile and the run.

    Raises:
        UsageError: The script does not exist, or it is a job file.
        UnfitEnvironment: The device does not have its original settings: another run sets it, or a dead run has left
            settings that cannot be restored.
        JobFailed: The script ended before it was measured.
        Interrupted: The user stopped the script before it was measured.
    """
    if script.suffix in (".yaml", ".yml"):
        raise UsageError(
            f"{script} is a job file: `profile` measures one script", "`ecoshare run` measures its classes"
        )
    loaded = one_job(script, args, "profile")
    (device,) = occupancy.devices
    options = RunOptions(policy="fair", jobs_per_lane=1, control="off", profiles=store.folder)
    plan = Plan.of(loaded, ThisMachine(occupancy), options, learn=False)
    cleanup.clear_dead()  # before settings that a dead run left are restored
    words, as_found = leftovers(device, may_set=True)
    if not as_found:
        raise UnfitEnvironment(f"nothing can be measured now: {words[0]}", "see `ecoshare devices`")
    for note in (*plan.notes, *words):
        say(note)
    # The class is measured again, even if it has a profile.
    plan = plan.without_profiles()
    limits = STEADY if iterations is None else Limits(iterations=iterations)
    result = run_opening.start(
        plan, loaded.text, runs, progress, limits, only_profile=True, machines=ThisMachine(occupancy), signals=signals
    )
    made = result.made.get(plan.jobs[0].spec.job_class)
    if made is None:
        raise _why_not_measured(script, result)
    return made, result


def saved_profile(named: str, store: ProfileStore) -> Profile:
    """Load a profile from its file, or from the store by the name of its class.

    Raises:
        UsageError: The profile does not exist or cannot be read.
    """
    path = Path(named)
    if not path.is_file():
        if (found := store.find(named)) is None:
            raise UsageError(f"{named}: no such profile", f"profiles are kept in {store.folder}")
        return found
    try:
        return Profile.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{named} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        raise UsageError(f"{named} is not a profile: {place}: {first['msg']}") from error


def one_job(script: Path, args: list[str], command: str) -> LoadedJobs:
    """Job list with the job of one script.

    Args:
        script: Path of the script.
        args: Arguments of the script.
        command: Name of the command that needs the job, for the hint of an error.

    Raises:
        UsageError: The script does not exist.
    """
    return from_scripts([script], args, f"`ecoshare {command} model.py -- its arguments`")


def _why_not_measured(script: Path, result: FinishedRun) -> JobFailed | Interrupted:
    (job,) = result.data.summary.jobs
    log = f"what it said is in {result.data.summary.stderr_of(job.name)}"
    if job.state == "failed":
        return JobFailed(f"{script} failed before it was measured: {job.error}", log)
    if result.waited:
        return JobFailed(
            f"{script} waited for {WAITS_S:.0f} s and did nothing, before it was measured: a server needs requests",
            "ecoshare makes those of `ecoshare.serve(handler, sample=...).run()`; send any other server some meanwhile",
        )
    ended = [window for window in result.data.summary.windows if window.to_s is not None]
    failed = [window.error for window in ended if window.error]
    if failed and failed[-1] != ENDED_IN_WINDOW:
        return JobFailed(f"{script} could not be measured: {failed[-1]}")
    if job.state == "cancelled":
        return Interrupted(f"{script} was stopped before it was measured")
    done = job.iterations + job.eval_iterations
    if not done:
        return JobFailed(
            f"{script} ended, and no iteration was seen",
            "an optimizer's step ends one, so does a backward pass through a module without an optimizer, and so does "
            "inference with a module; else call ecoshare.iteration(), or ecoshare.serve(handler, sample=...).run()",
        )
    return JobFailed(
        f"{script} ended after {counted(done, 'iteration')}, before it was measured",
        "let it run for longer: the first iterations are dropped, and some seconds after them are measured",
    )


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
    options = RunOptions(
        objective=asked.goal.objective,
        policy="fair",
        lanes=lanes,
        jobs_per_lane=-(-len(loaded.jobs) // lanes),
        control="off",
        profiles=store.folder,
    )
    plan = Plan.of(loaded, ThisMachine(asked.occupancy), options, sought=asked.goal, learn=False)
    for note in plan.notes:
        say(note)
    beside = asked.knobs is None or CPU_FREQUENCY in asked.knobs
    cleanup.clear_dead()  # before the claim restores the settings that a dead run left
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
        raise _why_not_tuned(result, own)
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


def _why_not_tuned(result: FinishedRun, own: PackingSearch | None) -> JobFailed | Interrupted | UnfitEnvironment:
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
