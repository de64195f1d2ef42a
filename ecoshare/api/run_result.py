"""Result of a run, and the error that it deserves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ecoshare.api.request_values import silent
from ecoshare.base.plural import counted
from ecoshare.errors import Interrupted, JobFailed, LimitNotMet, NotRestored

if TYPE_CHECKING:
    from ecoshare.devices.control.restore import Restored
    from ecoshare.record.results.job_summary import JobSummary
    from ecoshare.record.results.run_summary import RunSummary
    from ecoshare.record.run_data import RunData
    from ecoshare.runtime.run_lifecycle import FinishedRun


@dataclass(frozen=True, slots=True)
class RunResult:
    """Result of a run that is over.

    Attributes:
        folder: The run folder.
        data: All data of the run; exports and reports are made from it.
        ran: Whether there was anything to run; False if all jobs of a resumed run had ended before.
        notes: Notes for the user, one line each.
        unrestored: Knobs of the device that could not be restored.
    """

    folder: Path
    data: RunData = field(repr=False)
    ran: bool = True
    notes: tuple[str, ...] = ()
    unrestored: tuple[Restored, ...] = ()

    @classmethod
    def of(cls, finished: FinishedRun) -> RunResult:
        """Result of a run of this process."""
        return cls(finished.folder.path, finished.data, finished.ran, finished.notes, finished.unrestored)

    @property
    def summary(self) -> RunSummary:
        """Summary of the run; `as_dict()` gives the content of `summary.json`. See docs/reports.md."""
        return self.data.summary

    @property
    def state(self) -> str:
        """`completed`, `failed` or `interrupted`."""
        return self.summary.state

    @property
    def makespan_s(self) -> float | None:
        """Time (s) from the first arrival to the last end; None if no job ended."""
        return self.summary.makespan_s

    @property
    def energy_j(self) -> float | None:
        """Energy (J) of the device during the run; None without a meter."""
        return self.summary.energy.value_j if self.summary.energy is not None else None

    @property
    def jobs(self) -> tuple[JobSummary, ...]:
        """Results of the jobs and trials, in the order of the job file."""
        return self.summary.jobs

    def job(self, name: str) -> JobSummary:
        """Result of one job or trial.

        Raises:
            KeyError: No job has this name.
        """
        for job in self.jobs:
            if job.name == name:
                return job
        raise KeyError(name)

    def folder_of(self, job: str) -> Path:
        """Folder with the `stdout.log` and `stderr.log` of a job."""
        from ecoshare.record.run_folder import RunFolder

        return RunFolder(self.folder).job(job)

    def check(self) -> None:
        """Return if all went well. The command `ecoshare run` exits with the exit code of the error.

        Raises:
            NotRestored: Knobs of the device could not be restored.
            Interrupted: The run was stopped.
            JobFailed: A job did not complete. A sweep counts as one job: it is completed if any trial completed.
            LimitNotMet: A job was slower than its limit allows, or a service missed its target for a minute.
        """
        if self.unrestored:
            raise restore_error(self)
        summary = self.summary
        if summary.state == "interrupted":
            raise Interrupted("the run was stopped", f"`ecoshare run --resume {summary.run}` goes on with it")
        self._check_jobs()
        broken = [job.name for job in summary.jobs if job.slowdown_limit_met is False]
        if broken:
            raise LimitNotMet(f"slower than their `slowdown:` limit: {', '.join(broken[:5])}")
        late = [job.name for job in summary.jobs if job.service is not None and job.service.missed_minutes]
        if late:
            raise LimitNotMet(
                f"missed their targets for a minute or more: {', '.join(late[:5])}",
                f"`ecoshare explain {summary.run}` says which jobs ran beside them; more lanes (--lanes) part them",
            )

    def _check_jobs(self) -> None:
        summary, states = self.summary, self.summary.outcomes()
        bad = [name for name, state in states.items() if state != "completed"]
        if not bad:
            return
        words = f"{len(bad)} of {counted(len(states), 'job')} did not complete: {', '.join(bad[:5])}"
        failed = [f"{each.name} failed: {each.failed.reason}" for each in summary.devices if each.failed is not None]
        errors = [job.error or "" for job in summary.jobs if not job.completed]
        if any(each in error for each in failed for error in errors):
            hint = f"`ecoshare run --resume {summary.run}` goes on with it on the devices that work"
            raise JobFailed(f"{words}; {'; '.join(failed)}", hint)
        said = next((job.name for job in summary.jobs if bad[0] in (job.name, job.sweep)), bad[0])
        raise JobFailed(
            words,
            f"what they said is in {summary.stderr_of(said)}" + (" and so on" if len(bad) > 1 else ""),
        )

    def draw_report(self, note: Callable[[str], None] = silent) -> Path | None:
        """Draw `report.html` and `trace.pftrace` in the run folder. This takes a second or two.

        Args:
            note: Shows a note to the user. Errors are not raised, but shown as notes.

        Returns:
            Path of the report; None if it could not be drawn.
        """
        from ecoshare.record.run_folder import RunFolder
        from ecoshare.reporting import exports

        folder = RunFolder(self.folder)
        return folder.report if exports.draw_end_of_run(folder, self.data, note) else None


def restore_error(result: RunResult) -> NotRestored:
    """Error for the knobs that a run could not restore, at least one."""
    from ecoshare.runtime.measuring.device_claim import not_restored

    return not_restored(result.unrestored)
