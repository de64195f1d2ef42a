"""Trials of sweeps during a run: they are drawn when the core asks, and their values are reported to the core.

::

    core ──AskSampler──► sampler ──► JobArrived | Exhausted ──► core
    a trial's log and reports ──► Reported ──► core ──► KillJob of poor trials
    end of a trial ──► the rest of its values, then JobExited; the sampler learns the result
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial

from ecoshare.base.job_spec import Configuration, SweepSpec
from ecoshare.base.plural import counted
from ecoshare.core.commands import AskSampler
from ecoshare.core.events import Event, Exhausted, JobArrived, Reported
from ecoshare.core.records import Job, JobState
from ecoshare.jobs.sweep import trial_number
from ecoshare.jobs.trial_sampler import TrialSampler, Values
from ecoshare.lane.files import are_outputs_of
from ecoshare.record.metric_reader import MetricReader
from ecoshare.record.results.sweep_summary import ranked_configurations
from ecoshare.record.run_folder import RunFolder
from ecoshare.runtime.planning.planned_job import PlannedJob
from ecoshare.runtime.planning.planned_sweeps import PlannedSweep

LISTEN_S = 0.2
"""Time (s) between two reads of the values that trials have reported."""


@dataclass(slots=True)
class _Trial:
    """A trial that has arrived or is about to arrive, and that has not ended.

    Attributes:
        sweep: Name of the sweep.
        number: Number of the trial in the sweep, from 0.
        values: Values that the present attempt has reported, after those that it goes on from.
        goes_on: Whether an attempt goes on from the one before, and counts its steps from there.
        reader: Reader of the present attempt; None before the first attempt has started.
        attempt: Number of the present attempt.
    """

    sweep: str
    number: int
    values: list[float]
    goes_on: bool
    reader: MetricReader | None = None
    attempt: int = 0


@dataclass(slots=True)
class Sweeping:
    """Sweeps of a run in progress.

    Attributes:
        jobs: All jobs of the run, by name. Trials are added when they are drawn.
        tell: Reports an event to the core.
        best: Best so far and its value, by sweep, see `SweepView`.
        errors: First error of the sampler, by sweep. The sweep draws no more trials then.
        ended_in: Number of trials that ended in each state, by sweep.
        cancelled: Sweeps that the user has cancelled.
    """

    folder: RunFolder
    jobs: dict[str, PlannedJob]
    tell: Callable[[Callable[..., Event]], None]
    best: dict[str, tuple[str, float]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    ended_in: dict[str, Counter[JobState]] = field(default_factory=lambda: defaultdict(Counter))
    cancelled: set[str] = field(default_factory=set)
    _sweeps: dict[str, PlannedSweep] = field(default_factory=dict)
    _samplers: dict[str, TrialSampler] = field(default_factory=dict)
    _trials: dict[str, _Trial] = field(default_factory=dict)
    _through: dict[str, list[tuple[str, Configuration, float]]] = field(default_factory=dict)
    """Completed trials of each sweep with seeds: name, configuration and last value."""
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    def open(self, sweep: PlannedSweep) -> None:
        """Open a sweep: make its sampler, and tell it about the trials that ended in earlier sessions.

        Raises:
            UsageError: The sampler cannot be made.
        """
        self._sweeps[sweep.name] = sweep
        self.cancelled.discard(sweep.name)  # it was, and runs again
        self._samplers[sweep.name] = sweep.sampler(self.folder.path)
        for trial in sweep.ended:
            self._over(sweep.name, trial.name, trial.state, trial.value, trial.configuration)

    def learn(self, sweep: PlannedSweep) -> None:
        """Draw further trials of an open sweep from this one."""
        if sweep.name in self._sweeps:
            self._sweeps[sweep.name] = sweep

    def final_state(self, name: str) -> JobState:
        """State of a sweep that is over: cancelled if the user asked for that, completed if one of its trials is."""
        if name in self.cancelled:
            return JobState.CANCELLED
        return JobState.COMPLETED if self.ended_in[name][JobState.COMPLETED] else JobState.FAILED

    def keep_only(self, names: Collection[str]) -> None:
        """Forget the sweeps that are over."""
        self.cancelled.intersection_update(names)
        for kept in (self.best, self.errors, self.ended_in, self._sweeps, self._samplers, self._through):
            for name in kept.keys() - names:
                del kept[name]

    @property
    def live(self) -> list[str]:
        """Names of the trials that have arrived or are about to arrive, and that have not ended."""
        return list(self._trials)

    def add(self, job: PlannedJob) -> None:
        """Add a trial that is about to arrive."""
        self.jobs[job.spec.name] = job
        spec = job.spec
        self._trials[spec.name] = _Trial(spec.sweep, trial_number(spec.name), list(job.told), spec.movable)

    def ask(self, command: AskSampler, tasks: asyncio.TaskGroup) -> None:
        """Draw the next trial of a sweep: in a thread if Optuna samples, which may take its time; otherwise at once."""
        sweep = self._sweeps[command.sweep]
        if (error := self.errors.get(sweep.name)) is not None:
            self.tell(partial(Exhausted, command=command.id, error=error))
        elif sweep.options.optuna is None:
            self._drawn(command, self._samplers[sweep.name].draw(command.number))
        else:
            tasks.create_task(self._draw(command))

    async def _draw(self, command: AskSampler) -> None:
        try:
            async with self._one_at_a_time:  # in order: number n of the study is trial n
                values = await asyncio.to_thread(self._samplers[command.sweep].draw, command.number)
        except Exception as error:  # an error of a user's sampler ends its sweep, not the run
            self._failed(command.sweep, error)
            self.tell(partial(Exhausted, command=command.id, error=self.errors[command.sweep]))
        else:
            self._drawn(command, values)

    def _failed(self, sweep: str, error: Exception) -> None:
        """Record the error of a sampler. It is not asked again, and its running trials continue."""
        self.errors.setdefault(sweep, f"{type(error).__name__}: {error}")

    def _drawn(self, command: AskSampler, values: Values | None) -> None:
        if values is None:
            self.tell(partial(Exhausted, command=command.id))
            return
        job = self._sweeps[command.sweep].trial(command.number, values)
        self.add(job)
        self.tell(partial(JobArrived, job=job.spec, answers=command.id))

    def tell_rest(self, job: PlannedJob) -> None:
        """Report the values of a trial of an earlier session that the log lacks. It has just arrived, and waits."""
        for step in range(len(job.told) - job.untold, len(job.told)):
            self.tell(partial(Reported, job=job.spec.name, step=step + 1, value=job.told[step]))

    def listen(self, name: str, attempt: int, over: bool = False) -> None:
        """Report to the core the new values of an attempt of a trial. Does nothing for other jobs.

        Args:
            over: Whether the attempt has ended.
        """
        trial = self._trials.get(name)
        metric = self.jobs[name].metric
        if trial is None or metric is None:
            return
        if metric.is_printed and not are_outputs_of(self.folder.job(name), attempt):
            return  # the attempt has not begun, and the output is that of the one before
        if trial.reader is None or trial.attempt != attempt:
            trial.reader, trial.attempt = MetricReader(metric, self.folder.job(name), attempt), attempt
            if not trial.goes_on:
                trial.values.clear()
        try:
            values = trial.reader.read(over)
        except Exception as error:  # output of a trial must not end the run, nor each resumption of it
            self._failed(trial.sweep, error)
            return
        for value in values:
            trial.values.append(value)
            step = len(trial.values)
            halt = self._halted(trial, step, value)
            self.tell(partial(Reported, job=name, step=step, value=value, halt=halt))

    def _halted(self, trial: _Trial, step: int, value: float) -> str:
        if trial.sweep in self.errors:
            return ""
        try:
            return self._samplers[trial.sweep].reported(trial.number, step, value)
        except Exception as error:
            self._failed(trial.sweep, error)
            return ""

    def look(self, ended: Iterable[Job]) -> None:
        """Tell the samplers about trials among the jobs that have ended just now."""
        for job in ended:
            if job.spec.name in self._trials:
                self._ended(job)

    def _ended(self, job: Job) -> None:
        name = job.spec.name
        trial = self._trials.pop(name)
        if not job.resumable:  # else its end comes when the run is resumed
            configuration = self._sweeps[trial.sweep].spec.configuration(name, self.jobs[name].spec.values)
            value = trial.values[-1] if trial.values else None
            self._over(trial.sweep, name, job.state, value, configuration)

    def _over(self, sweep: str, name: str, state: JobState, value: float | None, configuration: Configuration) -> None:
        self.ended_in[sweep][state] += 1
        if state is JobState.CANCELLED:
            return
        failed = state is JobState.FAILED
        if sweep not in self.errors:
            try:
                self._samplers[sweep].ended(trial_number(name), None if failed else value, state is JobState.PRUNED)
            except Exception as error:
                self._failed(sweep, error)
        if value is not None and state is JobState.COMPLETED:
            self._note(self._sweeps[sweep].spec, name, value, configuration)

    def _note(self, spec: SweepSpec, name: str, value: float, configuration: Configuration) -> None:
        """Note the last value of a completed trial."""
        if not spec.replicates:
            sign = -1 if spec.maximise else 1
            best = self.best.get(spec.name)
            if best is None or sign * value < sign * best[1]:
                self.best[spec.name] = name, value
            return
        through = self._through.setdefault(spec.name, [])
        through.append((name, configuration, value))
        first = ranked_configurations(through, spec.maximise)[0]
        words = " ".join(f"{key}={text}" for key, text in first.values.items()) or "the only configuration"
        of = first.trials[0] if len(first.trials) == 1 else f"mean of {counted(len(first.trials), 'trial')}"
        self.best[spec.name] = f"{words} ({of})", first.value

    def metric_of(self, name: str) -> tuple[str, float] | None:
        """Text of the metric of a trial, and the last value that it has reported; None if it has reported none."""
        trial, planned = self._trials.get(name), self.jobs.get(name)
        if trial is None or not trial.values or planned is None or planned.metric is None:
            return None
        return planned.metric.text, trial.values[-1]
