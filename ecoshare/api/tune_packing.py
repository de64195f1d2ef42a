"""`tune`: the clocks and the power limit at which a packing of jobs costs least."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ecoshare.api.request_values import check_least, no_progress, silent
from ecoshare.api.run_result import RunResult
from ecoshare.base.disk import RUNS
from ecoshare.base.measurement import TUNING_LIMIT
from ecoshare.errors import Interrupted, JobFailed, UsageError
from ecoshare.option_fields import request_class, with_fields
from ecoshare.run_options import goal, profile_store

if TYPE_CHECKING:
    from ecoshare.base.disk import AnyPath
    from ecoshare.knowledge.tuning_store import TuningResult
    from ecoshare.record.run_view import ProgressDisplay
    from ecoshare.runtime.measuring.setting_searches import Show
    from ecoshare.runtime.signals import StopSignals


@request_class
class TuneRequest:
    """Request for the best setting of a packing. The fields are the options of `ecoshare tune`.

    Attributes:
        jobs: Path of a job file, all jobs of which share the device, or of one script.
        args: Arguments of the script.
        objective: `energy`, `edp`, `jct` or `makespan`.
        tuning_limit: Upper bound of an iteration's time at a setting / its time at the default setting.
        budget: Most measurements.
        seed: Seed of the search.
        lanes: Number of lanes; None for one for each job, up to 6.
        knobs: Names of the knobs that may be set; None for all of the device.
        assume_unlocked: Whether to lock clocks without a check for locks of other software.
        device: See `RunRequest`.
        wait: See `RunRequest`.
        profiles: Folder of profiles, which gets the result, too; None for that of the user's data.
        runs: Folder that gets the run folder.
        note: Shows a note to the user.
        progress: Makes the display of the run's progress, when the run begins.
        show: Display of the search; None to show nothing.
        signals: See `RunRequest`.
    """

    jobs: AnyPath
    args: Sequence[str] = ()
    objective: str = "energy"
    tuning_limit: float = TUNING_LIMIT
    budget: int = 20
    seed: int = 0
    lanes: int | None = None
    knobs: Sequence[str] | None = None
    assume_unlocked: bool = False
    device: str | None = None
    wait: bool = False
    profiles: AnyPath | None = None
    runs: AnyPath = RUNS
    note: Callable[[str], None] = silent
    progress: Callable[[], ProgressDisplay] = no_progress
    show: Show | None = None
    signals: StopSignals | None = None


@dataclass(frozen=True, slots=True)
class TuneResult:
    """Result of a search, and the run that measured it.

    Attributes:
        name: Name of the job file or the script.
        tuning: Settings, measurements and savings.
        ending: Reason for the end of the search; empty if it was cut off. Then the result is not stored.
        kept_in: Folder of the stored results.
        run: The run. It was stopped when the search was over, so its jobs are cancelled.
    """

    name: str
    tuning: TuningResult = field(repr=False)
    ending: str
    kept_in: Path
    run: RunResult

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, as `ecoshare tune --json` prints it."""
        tuning = self.tuning.model_dump(mode="json")
        return {**tuning, "ending": self.ending or None, "run": self.run.summary.run}

    def check(self) -> None:
        """Return if the search came to its end. The command exits with the exit code of the error.

        Raises:
            JobFailed: A job failed or ended before the search was over.
            Interrupted: The run was stopped before the search was over.
        """
        if self.ending:
            return
        summary = self.run.summary
        for job in summary.jobs:
            if job.state == "failed":
                raise JobFailed(
                    f"{job.name} failed before the search was over, and nothing is kept: {job.error}",
                    f"what it said is in {summary.stderr_of(job.name)}",
                )
        ended = [job.name for job in summary.jobs if job.state == "completed"]
        if ended:
            raise JobFailed(
                f"{', '.join(ended)} ended before the search was over: nothing is kept",
                "let it run for longer, or give fewer measurements with --budget",
            )
        raise Interrupted("stopped before the search was over: nothing is kept")

    def draw(self, path: AnyPath) -> None:
        """Draw energy against slowdown of the measurements into a file: .svg, .html or .png.

        Raises:
            UsageError: The name of the file has another ending.
            UnfitEnvironment: The file cannot be written.
        """
        from ecoshare.reporting.charts.search_picture import check_picture, draw

        check_picture(Path(path))
        draw(Path(path), self.tuning, self.name, None)


def tune(jobs: AnyPath | TuneRequest, /, **fields: Any) -> TuneResult:
    """Run jobs side by side, search their best setting, and stop them. The result is stored for the packing.

    Args:
        jobs: A request, or its `jobs`.
        fields: Other fields of the `TuneRequest`.

    Raises:
        UsageError: The jobs cannot run all at once, a knob does not exist, or a field is out of range.
        InvalidJobFile: The job file has mistakes; the error lists them, with line and column.
        UnfitEnvironment: This user can set nothing on the device, its joules are not measured, another run uses it, or
            nothing was tuned.
        JobFailed: A job ended before there was a result.
        Interrupted: The run was stopped before there was a result.
        NotRestored: Knobs of the device could not be restored.
        KeyboardInterrupt: The user pressed Ctrl-C, see `ecoshare.run`.
    """
    from ecoshare.api.caller_process import drive
    from ecoshare.devices.choice import find_one
    from ecoshare.devices.occupancy import DeviceAdmission, occupied
    from ecoshare.runtime.measuring import measuring_runs

    request = with_fields(jobs if isinstance(jobs, TuneRequest) else TuneRequest(jobs=jobs), fields)
    sought = goal(request.objective, request.tuning_limit, request.budget, request.seed)
    for name, least in (("budget", 1), ("seed", 0), ("lanes", 1)):
        check_least(name, getattr(request, name), least)
    knobs = _knobs(request.knobs)
    with occupied(partial(find_one, request.device), DeviceAdmission.of(request.wait), request.note) as occupancy:
        asked = measuring_runs.TuneRun(
            Path(request.jobs), list(request.args), occupancy, sought, request.lanes, knobs, request.assume_unlocked
        )
        store = profile_store(request.profiles)
        store.make()

        def start(signals: StopSignals) -> TuneResult:
            tuned, ending, finished = measuring_runs.tune(
                asked,
                store,
                Path(request.runs),
                request.progress(),
                request.show,
                request.note,
                signals,
            )
            return TuneResult(asked.jobs.name, tuned, ending, store.folder / "tuned", RunResult.of(finished))

        return drive(request.signals, start)


def _knobs(names: Sequence[str] | None) -> tuple[str, ...] | None:
    if names is None:
        return None
    if not names or isinstance(names, str):
        raise UsageError(
            "--knobs names no knob", "such as --knobs gpu_clock,power_limit; `ecoshare devices` shows them"
        )
    return tuple(names)
