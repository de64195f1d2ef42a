"""`profile`: the needs of one script, measured while it runs alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ecoshare.api.request_values import check_least, no_progress, silent
from ecoshare.api.run_result import RunResult
from ecoshare.base.disk import RUNS
from ecoshare.option_fields import request_class, with_fields
from ecoshare.run_options import profile_store

if TYPE_CHECKING:
    from ecoshare.base.disk import AnyPath
    from ecoshare.knowledge.profile import Profile
    from ecoshare.record.run_view import ProgressDisplay
    from ecoshare.runtime.signals import StopSignals


@request_class
class ProfileRequest:
    """Request for the profile of a script. The fields are the options of `ecoshare profile`.

    Attributes:
        script: Path of the script.
        args: Arguments of the script.
        iterations: Number of iterations to measure after the warm-up; None to measure until the figures are steady.
        device: See `RunRequest`.
        wait: See `RunRequest`.
        profiles: Folder that gets the profile; None for that of the user's data.
        runs: Folder that gets the run folder.
        note: Shows a note to the user.
        progress: Makes the display of the run's progress, when the run begins.
        signals: See `RunRequest`.
    """

    script: AnyPath
    args: Sequence[str] = ()
    iterations: int | None = None
    device: str | None = None
    wait: bool = False
    profiles: AnyPath | None = None
    runs: AnyPath = RUNS
    note: Callable[[str], None] = silent
    progress: Callable[[], ProgressDisplay] = no_progress
    signals: StopSignals | None = None


@dataclass(frozen=True, slots=True)
class ProfileResult:
    """Profile of a script, and the run that measured it.

    Attributes:
        profile: The profile; its `model_dump` is what `ecoshare profile --json` prints.
        file: File that holds the profile.
        run: The run. It was stopped when the profile was made, so its job is cancelled.
    """

    profile: Profile = field(repr=False)
    file: Path
    run: RunResult

    def draw(self) -> Path:
        """Draw the memory of an iteration over time beside the profile, and return the path of the drawing (SVG).

        Raises:
            UnfitEnvironment: The file cannot be written.
        """
        from ecoshare.record.run_folder import write_text
        from ecoshare.reporting.memory_timeline import svg

        drawing = self.file.with_name(f"{self.profile.job_class}.svg")
        write_text(drawing, svg(self.profile))
        return drawing


def profile(script: AnyPath | ProfileRequest, /, **fields: Any) -> ProfileResult:
    """Run an unchanged script until its figures are steady, then stop it. The profile is stored.

    Args:
        script: A request, or its `script`.
        fields: Other fields of the `ProfileRequest`.

    Raises:
        UsageError: The script does not exist, or a field is out of range.
        UnfitEnvironment: Another run uses the device, or its settings are not the original ones.
        JobFailed: The script ended before it was measured.
        Interrupted: The script was stopped before it was measured.
        KeyboardInterrupt: The user pressed Ctrl-C, see `ecoshare.run`.
    """
    from ecoshare.api.caller_process import drive
    from ecoshare.devices.choice import find_one
    from ecoshare.devices.occupancy import DeviceAdmission, occupied
    from ecoshare.runtime.measuring.measuring_runs import profile_script

    request = with_fields(script if isinstance(script, ProfileRequest) else ProfileRequest(script=script), fields)
    check_least("iterations", request.iterations, 1)
    store = profile_store(request.profiles)
    store.make()
    with occupied(partial(find_one, request.device), DeviceAdmission.of(request.wait), request.note) as occupancy:

        def start(signals: StopSignals) -> ProfileResult:
            made, finished = profile_script(
                Path(request.script),
                list(request.args),
                occupancy,
                store,
                Path(request.runs),
                request.progress(),
                request.note,
                request.iterations,
                signals,
            )
            return ProfileResult(made, store.file(made.job_class), RunResult.of(finished))

        return drive(request.signals, start)


def saved_profile(name: str, profiles: AnyPath | None = None) -> Profile:
    """Profile from its file, or from a folder of profiles by the name of its class.

    Args:
        name: Path of the file, or name of the class.
        profiles: Folder of profiles; None for that of the user's data.

    Raises:
        UsageError: The profile does not exist or cannot be read.
    """
    from ecoshare.runtime.measuring import measuring_runs

    return measuring_runs.saved_profile(name, profile_store(profiles))
