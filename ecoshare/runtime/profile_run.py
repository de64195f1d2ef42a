"""Run of one script to measure its profile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from ecoshare.common.plural import counted
from ecoshare.devices.occupancy import Occupancy
from ecoshare.errors import Interrupted, JobFailed, UnfitEnvironment, UsageError
from ecoshare.jobs.from_scripts import from_scripts
from ecoshare.jobs.load import LoadedJobs
from ecoshare.profiling.profile import Profile
from ecoshare.profiling.profile_store import ProfileStore
from ecoshare.record.run_view import ProgressDisplay
from ecoshare.runtime import plan as planning
from ecoshare.runtime import run_opening, shared_folder
from ecoshare.runtime.device_claim import leftovers
from ecoshare.runtime.held_machines import ThisMachine
from ecoshare.runtime.profiling_window import ENDED_IN_WINDOW, Limits
from ecoshare.runtime.signals import StopSignals
from ecoshare.runtime.waiting_watch import WAITS_S

if TYPE_CHECKING:
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
    plan = planning.make(loaded, (device,), policy="fair", places=1, store=store, learn=False)
    shared_folder.clear_dead()  # before settings that a dead run left are restored
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
        raise _why_not(script, result)
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


def _why_not(script: Path, result: FinishedRun) -> JobFailed | Interrupted:
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
            "an optimizer's step ends one, so does a backward pass in a script without an optimizer, and so does "
            "inference with a module; else call ecoshare.iteration(), or ecoshare.serve(handler, sample=...).run()",
        )
    return JobFailed(
        f"{script} ended after {counted(done, 'iteration')}, before it was measured",
        "let it run for longer: the first iterations are dropped, and some seconds after them are measured",
    )
