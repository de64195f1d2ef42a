"""The commands that look at what can be set, set it, and put it back: parts of the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ecoshare.errors import Interrupted, JobFailed, NotRestored, UsageError

if TYPE_CHECKING:
    from ecoshare.hardware.state import StateFolder
    from ecoshare.measure.tuned import KnobRange, TrialRecord
    from ecoshare.runtime.tune import Tune


def show_devices(as_json: bool) -> None:
    """Print each device's knobs."""
    from ecoshare.hardware.state import StateFolder
    from ecoshare.hardware.survey import survey
    from ecoshare.reporting.devices import print_devices

    found = survey(StateFolder.of_this_user())
    if as_json:
        print(json.dumps([device.as_dict() for device in found], indent=2))
    else:
        print_devices(found, Console(highlight=False))


def restore_all(force: bool, as_json: bool) -> None:
    """Put back what dead runs have left.

    Raises:
        NotRestored: Something was not put back.
    """
    from ecoshare.hardware.journal import UntrustedJournal
    from ecoshare.hardware.restore import Busy, Foreign, Outcome, mend
    from ecoshare.hardware.state import StateFolder
    from ecoshare.reporting.devices import print_restored

    state = StateFolder.of_this_user()
    done, troubles = [], []
    for path in _journals(state):
        try:
            done += mend(path, state, foreign=Foreign.OVERWRITE if force else Foreign.ASK)
        except UntrustedJournal as error:
            troubles.append(str(error))
        except Busy as error:
            troubles.append(f"{path.stem}: {error} is still at work, and will put it back itself")
    if as_json:
        print(json.dumps([each.as_dict() for each in done], indent=2))
    elif done:
        print_restored(done, Console(highlight=False))
    elif not troubles:
        print(f"nothing to restore: no run has left anything in {state.journals}")
    foreign = [each for each in done if each.outcome is Outcome.FOREIGN]
    failed = [each.words for each in done if each.outcome is Outcome.FAILED] + troubles
    if failed:
        raise NotRestored(failed[0] + (f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""))
    if foreign:
        raise NotRestored(
            "somebody else has set it since: nothing was overwritten",
            "`ecoshare restore --force` puts back what was before ecoshare",
        )


def _journals(state: StateFolder) -> list[Path]:
    try:
        return list(state.all_journals())
    except OSError as error:
        raise NotRestored(f"{state.journals} cannot be read: {error.strerror}: nobody knows what was left") from error


def tune_live(
    asked: Tune, profiles: Path | None, runs: Path, plot: Path | None, as_json: bool, say: Callable[[str], None]
) -> None:
    """Tune a packing while it runs, and show it."""
    from ecoshare.measure.profiles import ProfileStore, default_folder
    from ecoshare.reporting.progress import Expendable, StagesProgress
    from ecoshare.reporting.tuning import TrialLines, print_result
    from ecoshare.reporting.tuning_picture import check_picture, draw
    from ecoshare.runtime import tune as tuning
    from ecoshare.runtime.searching import Show

    if plot is not None:
        check_picture(plot)
    store = ProfileStore(profiles or default_folder())
    store.make()
    errors = Console(stderr=True, highlight=False)

    class Lines(Show):
        """A line for each trial."""

        lines: TrialLines | None = None

        def begins(self, knobs: Sequence[KnobRange]) -> None:
            self.lines = TrialLines(knobs, errors if as_json else Console(highlight=False), achieved=True)

        def trial(self, record: TrialRecord) -> None:
            if self.lines is None:
                return
            try:
                if record.number == 1:
                    self.lines.heading()
                self.lines.line(record)
                sys.stdout.flush()
            except (OSError, SystemExit):  # rich leaves with the latter when its reader has gone: the search goes on
                self.lines = None

    tuned, ending, result = tuning.tune(asked, store, runs, Expendable(StagesProgress(errors)), Lines(), say)
    for note in result.notes:
        say(note)
    if as_json:
        print(
            json.dumps(
                {**tuned.model_dump(mode="json"), "ending": ending or None, "run": result.data.summary["run"]}, indent=2
            ),
            flush=True,
        )
    else:
        print_result(tuned, ending or "the search was cut off", Console(highlight=False))
    if plot is not None:
        draw(plot, tuned, asked.jobs.name, None)
    if not as_json and ending:
        if tuned.best is None or tuned.best == tuned.default:
            print("kept for this packing: it runs best as the device was found")
        else:
            print(
                f"kept for this packing: the next `ecoshare run --objective {tuned.objective}` of it uses the setting "
                f"({store.folder}/tuned)"
            )
    if not as_json:
        if plot is not None:
            print(f"plot: {plot}")
        print(f"run folder: {result.data.summary['run']}", flush=True)
    if not ending:
        summary = result.data.summary
        for job in summary["jobs"]:
            if job["state"] == "failed":
                raise JobFailed(
                    f"{job['name']} failed before the search was over, and nothing is kept: {job['error']}",
                    f"what it said is in {summary['run']}/jobs/{job['name']}/stderr.log",
                )
        ended = [job["name"] for job in summary["jobs"] if job["state"] == "completed"]
        if ended:
            raise JobFailed(
                f"{', '.join(ended)} ended before the search was over: nothing is kept",
                "let it run for longer, or give fewer trials with --budget",
            )
        raise Interrupted("stopped before the search was over: nothing is kept")


def knob_names(words: str | None) -> tuple[str, ...] | None:
    """`gpu_clock,power_limit` as names; None for all.

    Raises:
        UsageError: There is none in it.
    """
    if words is None:
        return None
    names = tuple(name.strip() for name in words.split(",") if name.strip())
    if not names:
        raise UsageError(
            "--knobs names no knob", "such as --knobs gpu_clock,power_limit; `ecoshare devices` shows them"
        )
    return names
