"""Result of a run, and the error that it deserves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ecoshare.api.request_values import silent
from ecoshare.common.plural import counted
from ecoshare.errors import Interrupted, JobFailed, LimitNotMet, NotRestored

if TYPE_CHECKING:
    from ecoshare.devices.restore import Restored
    from ecoshare.record.run_data import RunData
    from ecoshare.runtime.run_lifecycle import FinishedRun


@dataclass(frozen=True, slots=True)
class JobResult:
    """Result of one job, or of one trial of a sweep. docs/summary.md defines the values.

    Attributes:
        state: `completed`, `failed`, `cancelled` or `pruned`.
        exit_code: Exit code of the last attempt; None if it has none.
        attempts: Number of attempts.
        iterations: Number of training iterations of the last attempt.
        eval_iterations: Number of inference iterations of the last attempt.
        jct_s: Time (s) from arrival to end; None without an end.
        queue_s: Time (s) from arrival to the first start; None without a start.
        slowdown: Measured slowdown, at least 1; None if unknown.
        slowdown_limit: Largest slowdown that the job file allows; None for no limit.
        slowdown_limit_met: Whether the limit was kept; None if unknown or without a limit.
        energy_j: Energy (J) of the device that is attributed to the job; None without a meter.
        peak_memory_bytes: Largest memory (bytes) of the device that the job held; None if unknown.
        error: Cause of a failure; None otherwise.
        sweep: Name of the sweep of a trial; None for a job.
        values: Values of the trial, by name.
        folder: Folder with `stdout.log` and `stderr.log`.
    """

    name: str
    state: str
    exit_code: int | None
    attempts: int
    iterations: int
    eval_iterations: int
    jct_s: float | None
    queue_s: float | None
    slowdown: float | None
    slowdown_limit: float | None
    slowdown_limit_met: bool | None
    energy_j: float | None
    peak_memory_bytes: int | None
    error: str | None
    sweep: str | None
    values: dict[str, str]
    folder: Path

    @property
    def completed(self) -> bool:
        """Whether the job did all its work."""
        return self.state == "completed"


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
    def summary(self) -> dict[str, Any]:
        """Content of `summary.json`, which `ecoshare run --json` prints; see docs/summary.md."""
        return self.data.summary

    @property
    def state(self) -> str:
        """`completed`, `failed` or `interrupted`."""
        return str(self.summary["state"])

    @property
    def makespan_s(self) -> float | None:
        """Time (s) from the first arrival to the last end; None if no job ended."""
        makespan_s: float | None = self.summary["makespan_s"]
        return makespan_s

    @property
    def energy_j(self) -> float | None:
        """Energy (J) of the device during the run; None without a meter."""
        return _value_j(self.summary["energy"])

    @property
    def jobs(self) -> tuple[JobResult, ...]:
        """Results of the jobs and trials, in the order of the job file."""
        return tuple(_job_result(job, self.folder) for job in self.summary["jobs"])

    def job(self, name: str) -> JobResult:
        """Result of one job or trial.

        Raises:
            KeyError: No job has this name.
        """
        for job in self.summary["jobs"]:
            if job["name"] == name:
                return _job_result(job, self.folder)
        raise KeyError(name)

    def check(self) -> None:
        """Return if all went well. The command `ecoshare run` exits with the exit code of the error.

        Raises:
            NotRestored: Knobs of the device could not be restored.
            Interrupted: The run was stopped.
            JobFailed: A job did not complete. A sweep counts as one job: it is completed if any trial completed.
            LimitNotMet: A job was slower than its limit allows.
        """
        if self.unrestored:
            raise restore_error(self)
        summary = self.summary
        if self.state == "interrupted":
            raise Interrupted("the run was stopped", f"`ecoshare run --resume {summary['run']}` goes on with it")
        self._check_jobs()
        broken = [job["name"] for job in summary["jobs"] if job["slowdown_limit_met"] is False]
        if broken:
            raise LimitNotMet(f"slower than their `slowdown:` limit: {', '.join(broken[:5])}")

    def _check_jobs(self) -> None:
        from ecoshare.record.summary import outcomes

        summary = self.summary
        states = outcomes(summary)
        bad = [name for name, state in states.items() if state != "completed"]
        if not bad:
            return
        said = next((job["name"] for job in summary["jobs"] if bad[0] in (job["name"], job["sweep"])), bad[0])
        raise JobFailed(
            f"{len(bad)} of {counted(len(states), 'job')} did not complete: {', '.join(bad[:5])}",
            f"what they said is in {summary['run']}/jobs/{said}/stderr.log" + (" and so on" if len(bad) > 1 else ""),
        )

    def draw_report(self, note: Callable[[str], None] = silent) -> Path | None:
        """Draw `report.html` and `trace.pftrace` in the run folder. This takes a second or two.

        Args:
            note: Shows a note to the user. Errors are not raised, but shown as notes.

        Returns:
            Path of the report; None if it could not be drawn.
        """
        from ecoshare.record.run_folder import RunFolder
        from ecoshare.reporting import end_of_run

        folder = RunFolder(self.folder)
        return folder.report if end_of_run.draw(folder, self.data, note) else None


def restore_error(result: RunResult) -> NotRestored:
    """Error for the knobs that a run could not restore, at least one."""
    from ecoshare.runtime.device_claim import not_restored

    return not_restored(result.unrestored)


def _job_result(job: dict[str, Any], folder: Path) -> JobResult:
    same = (
        "name state exit_code attempts iterations eval_iterations jct_s queue_s slowdown slowdown_limit "
        "slowdown_limit_met peak_memory_bytes error sweep values"
    )
    return JobResult(
        **{name: job[name] for name in same.split()},
        energy_j=_value_j(job["energy"]),
        folder=folder / "jobs" / job["name"],
    )


def _value_j(energy: dict[str, Any] | None) -> float | None:
    return None if energy is None else float(energy["value_j"])
