"""All data of one run, as the value that its exports are made from, with the queries that they share."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from ecoshare.base import documents
from ecoshare.base.attempt import Outcome, Usage
from ecoshare.base.documents import collector_paused
from ecoshare.core.events import Event, JobExited, Reported
from ecoshare.errors import UsageError
from ecoshare.jobs.sweep import read_metric
from ecoshare.knowledge.profile import Profile
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.lane import trace
from ecoshare.lane.serving.request_intervals import RequestInterval
from ecoshare.lane.trace import Iteration, Kind, Mark
from ecoshare.record import event_log, samples
from ecoshare.record.accounts.energy_account import EnergyRate
from ecoshare.record.accounts.run_energy import RunEnergy, energy_rate
from ecoshare.record.accounts.turn_account import TurnAccount
from ecoshare.record.logs_and_metrics import JobOutput, read_output
from ecoshare.record.metric_reader import values_of
from ecoshare.record.plan_document import PlanDocument, TrialDocument
from ecoshare.record.results.run_summary import RunSummary, summarise
from ecoshare.record.results.service_summary import intervals
from ecoshare.record.results.sweep_summary import with_trials
from ecoshare.record.run_documents import DAMAGED, read_environment, read_json, read_plan, read_records
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.run_history import AttemptHistory, RunHistory
from ecoshare.record.samples import Line, Sample


class TurnSpan(NamedTuple):
    """Time span during which an attempt held the turn.

    Attributes:
        marks: Marks at the ends of the iterations.
    """

    from_s: float
    to_s: float
    marks: list[Mark]

    def iterations(self) -> Iterator[Iteration]:
        """Yield the iterations in order; none reaches beyond the turn."""
        from_s = self.from_s
        for kind, at_s in self.marks:
            to_s = min(max(at_s, from_s), self.to_s)
            yield Iteration(kind, from_s, to_s)
            from_s = to_s


@dataclass(frozen=True, slots=True)
class RunData:
    """Data of one run, finished or not.

    Attributes:
        summary: Result of the run.
        history: History of the run, from its log.
        samples: Sessions and samples of the meters of all devices; those of each device are in order.
        energy: Joules of the run over time, by device.
        traces: Marks by job and attempt; an attempt without a trace is left out, or has no marks.
        environment: Content of environment.json; exports show only named fields of it.
        requests: Intervals of the requests of each service, by the name of its job.
        account: Account of the turns of all attempts; None if they have no traces, or too long ones.
        output: Output of the jobs, for a report.
    """

    summary: RunSummary
    history: RunHistory = field(default_factory=RunHistory)
    samples: list[Line] = field(default_factory=list)
    energy: RunEnergy = field(default_factory=RunEnergy)
    traces: dict[tuple[str, int], list[Mark]] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    requests: dict[str, list[RequestInterval]] = field(default_factory=dict)
    account: TurnAccount | None = None
    output: JobOutput = field(default_factory=JobOutput)

    @property
    def devices(self) -> list[str]:
        """Names of the devices, in the order of the plan."""
        return [each.name for each in self.summary.devices]

    def samples_of(self, device: str) -> list[Sample]:
        """Samples of one device, in order."""
        return [line for line in self.samples if isinstance(line, Sample) and line.device == device]

    def turns(self, attempt: AttemptHistory) -> list[TurnSpan]:
        """Turns of an attempt; empty if its trace is not known."""
        end_s = self.end_s() if attempt.ended_s is None else attempt.ended_s
        return list(_turns(self.traces.get((attempt.job, attempt.number), []), end_s))

    def end_s(self) -> float:
        """Time (s) of the last event, sample or mark."""
        traced = (marks[-1].at_s for marks in self.traces.values() if marks)
        return max([self.history.end_s, *(line.at_s for line in self.samples), *traced])


def _turns(marks: list[Mark], end_s: float) -> Iterator[TurnSpan]:
    """Yield the turns in a trace; a last turn without an end lasts until `end_s` (job killed, or still in its turn)."""
    from_s: float | None = None
    last_s: float | None = None
    inside: list[Mark] = []
    for mark in marks:
        if mark.kind is Kind.TURN_BEGINS:
            if from_s is not None and last_s is not None:
                yield TurnSpan(from_s, last_s, inside)
            from_s, inside = mark.at_s, []
        elif mark.kind is Kind.TURN_ENDS:
            if from_s is not None:
                yield TurnSpan(from_s, mark.at_s, inside)
            from_s, inside = None, []
        elif mark.kind is not Kind.WAITS:
            if from_s is None:  # the beginning was lost: only iterations of this turn are known
                from_s = mark.at_s if last_s is None else last_s
            inside.append(mark)
        last_s = mark.at_s
    if from_s is not None and last_s is not None:
        yield TurnSpan(from_s, max(last_s, end_s), inside)


@collector_paused()
def read(folder: RunFolder, packings: bool = True) -> RunData:
    """Read all data of a run except the marks of its traces, which may be many.

    Args:
        folder: Folder of the run.
        packings: Whether the summary has the packings, and the joules that follow from them. Without them, reading is
            faster: the log of an older version has to be replayed for its packings.

    Raises:
        UsageError: The folder is damaged.
    """
    plan = read_plan(folder.plan)
    live = is_live(folder)  # asked first: a run that ends meanwhile must not look cut off
    history = RunHistory(event_log.read(folder.events) if folder.events.exists() else ())
    plan = with_trials(plan, history)
    _check_names(folder, plan, history)
    for job in plan.jobs:
        if isinstance(job, TrialDocument) and job.called and (told := folder.values(job.name)).exists():
            job.values = read_json(told)
    for event in _unlogged(plan, folder, history):
        history.add_unlogged(event)
    lines = list(samples.read(folder.samples))
    profiles = _profiles(plan, folder)
    energy = RunEnergy.of_lines([each["name"] for each in plan.devices], lines, _rates(plan, profiles))
    environment = read_environment(folder.environment) if folder.environment.exists() else {}
    load_s = environment.get("torch_load_s") or 0.0
    services = [job.name for job in plan.jobs if job.service is not None]
    requests = {
        name: intervals(folder.job(name), history.jobs[name].attempt) for name in services if name in history.jobs
    }
    turns = TurnAccount.of(history, folder)
    return RunData(
        summary=summarise(
            plan,
            history,
            energy,
            _shown(folder),
            live,
            profiles,
            load_s,
            packings,
            requests,
            turns,
            samples.OthersLoad(lines).busy,
        ),
        history=history,
        account=turns,
        samples=lines,
        energy=energy,
        environment=environment,
        requests=requests,
    )


def _check_names(folder: RunFolder, plan: PlanDocument, history: RunHistory) -> None:
    if plan.queue:  # a queue removes the descriptions of jobs that ended long ago
        return
    planned = {job.name for job in plan.jobs}
    for name in history.jobs:
        if name not in planned:
            raise UsageError(f"{folder.plan}: {folder.events} has a job {name!r} more", DAMAGED)


def with_traces(data: RunData, folder: RunFolder) -> RunData:
    """Return the same data with the traces of all attempts."""
    attempts = [(attempt.job, attempt.number) for attempt in data.history.attempts]
    traces = {(job, number): trace.read(trace.trace_path(folder.job(job), number)) for job, number in attempts}
    return replace(data, traces=traces)


def with_output(data: RunData, folder: RunFolder) -> RunData:
    """Return the same data with the output of the jobs."""
    return replace(data, output=read_output(data.summary, data.history, folder))


def _profiles(plan: PlanDocument, folder: RunFolder) -> dict[str, Profile]:
    """Profiles that the run used or made, by class."""
    store = ProfileStore(folder.profiles)
    names = {job.job_class for job in plan.jobs}
    return {name: profile for name in names if (profile := store.find(name)) is not None}


def _rates(plan: PlanDocument, profiles: dict[str, Profile]) -> Callable[[str], EnergyRate | None]:
    """Lookup of the energy rate of a job's class alone, by job name."""
    rates = {name: energy_rate(profile) for name, profile in profiles.items()}
    classes = {job.name: job.job_class for job in plan.jobs}
    return lambda job: rates.get(classes.get(job, ""))


def _unlogged(plan: PlanDocument, folder: RunFolder, history: RunHistory) -> list[Event]:
    """Exits on disk, and trial values, that the log lacks because the controller was killed before it wrote them."""
    last_s = history.end_s
    found: list[Event] = []
    for job in plan.jobs:
        own, told = folder.job(job.name), history.of(job.name)
        begun = {*told.starts, *([] if told.carried is None else [told.carried.attempt])}
        if begun <= told.exits.keys():
            continue  # the log has all ends, whatever the job has written in the place of its records
        for end in read_records(own):
            if end.attempt in told.exits or end.attempt < told.attempt or end.attempt <= told.unknown_attempts:
                continue
            if isinstance(job, TrialDocument) and job.metric is not None:
                values = values_of(read_metric(job.metric), own, end.attempt)
                found += [
                    Reported(last_s, end.job, step, value)
                    for step, value in enumerate(values, start=1 + told.earlier_reports)
                    if step > len(told.reports)
                ]
            outcome, usage = Outcome(end.outcome), Usage(**end.usage)
            found.append(JobExited(last_s, end.job, end.attempt, outcome, end.exit_code, end.reason, usage))
    return found


def is_live(folder: RunFolder) -> bool:
    """Whether a controller writes the run's log. The check also works on a read-only folder."""
    try:
        with documents.open_regular(folder.events) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # the log does not exist, or its reader will report the error
        return False
    return False


def _shown(folder: RunFolder) -> str:
    """Path of the folder for the user: relative to the working directory if it lies below it."""
    try:
        return str(folder.path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(folder.path)
