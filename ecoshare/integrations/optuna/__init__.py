"""Run the trials of an Optuna study in lanes with `optimize` (https://optuna.org; Akiba et al., KDD 2019).

Optuna runs its own loop, so pruners, callbacks and exceptions work as in `Study.optimize`. The loop calls a
stand-in for the objective. The stand-in runs the objective in a process of a lane and answers the calls that this
process makes on its trial.
"""

from __future__ import annotations

import inspect
import os
import re
import secrets
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import optuna
import yaml
from optuna.trial import FrozenTrial, Trial, TrialState
from rich.console import Console

import ecoshare
from ecoshare.base.attempt import Outcome
from ecoshare.base.disk import RUNS
from ecoshare.base.job_spec import SweepSpec
from ecoshare.core.events import JobExited
from ecoshare.devices.choice import find_all
from ecoshare.devices.occupancy import DeviceAdmission, occupied
from ecoshare.errors import EcoshareError, JobFailed, UsageError
from ecoshare.integrations.optuna.remote_trial import Objective
from ecoshare.integrations.optuna.study_run import Listener, StudyRun, StudySweep, check_forkable
from ecoshare.integrations.optuna.wire import Elsewhere, rebuilt
from ecoshare.jobs.load import LoadedJobs
from ecoshare.jobs.schema import JobConfig
from ecoshare.jobs.sweep import LONGEST_NUMBER, MAX_TRIALS, Metric, Sweep, trial_name
from ecoshare.jobs.sweep import Optuna as OptunaOptions
from ecoshare.record.run_data import is_live
from ecoshare.record.run_folder import RunFolder, write_json
from ecoshare.reporting.progress import Expendable, PlainProgress
from ecoshare.run_options import Control, RunOptions
from ecoshare.runtime.nodes.forked_client import ForkedServer
from ecoshare.runtime.nodes.held_machines import FoundDevices
from ecoshare.runtime.planning.plan import Plan
from ecoshare.runtime.signals import Interrupts

JOB = "ecoshare:job"
"""User attribute of a trial: the folder of its job, with its logs."""

ERROR = "ecoshare:error"
"""User attribute of a failed trial: the reason."""

_LONGEST_NAME = 100 - LONGEST_NUMBER

_OUT_OF_PATIENCE = 3
"""Number of the Ctrl-C that ends the study's own code, too."""

ObjectiveFunction = Callable[[Any], float | Sequence[float]]
Callback = Callable[[optuna.Study, FrozenTrial], None]


@dataclass(frozen=True, slots=True)
class Optimized:
    """Result of one call of `optimize`.

    Attributes:
        run: The run folder, for `ecoshare export` and `ecoshare explain`.
        summary: Content of its `summary.json`.
    """

    run: Path
    summary: dict[str, Any] = field(repr=False)


def optimize(
    study: optuna.Study,
    objective: ObjectiveFunction,
    n_trials: int | None = None,
    timeout: float | None = None,
    n_jobs: None = None,
    catch: Iterable[type[Exception]] | type[Exception] = (),
    callbacks: Iterable[Callback] | None = None,
    gc_after_trial: bool = False,
    show_progress_bar: bool = False,
    *,
    goal: str = "energy",
    policy: str | None = None,
    device: str | None = None,
    lanes: int | None = None,
    jobs_per_lane: int = 1,
    memory: str | None = None,
    control: Control = "off",
    profiles: str | os.PathLike[str] | None = None,
    hang_timeout: float | None = None,
    runs: str | os.PathLike[str] = RUNS,
    wait: bool | None = None,
    share_device: bool = False,
) -> Optimized:
    """Run `study.optimize(objective, ...)` with each trial in a process of its own, in ecoshare's lanes.

    The processes are forked from this one, so the objective may be any callable, and nothing is pickled.
    This process does not see changes that the objective makes to the state of its own process. Parameters up to
    `show_progress_bar` are Optuna's; the rest are options of `ecoshare run`.

    Args:
        n_jobs: Must be None. The places in the lanes set the number of trials in progress.
        goal: The objective of `ecoshare run`: energy, jct, makespan or edp.
        lanes: Number of lanes. With 1, trials run in sequence, and a study repeats to the bit if the program and its
            sampler are seeded. The trials equal those of `study.optimize` if the objective seeds itself.
        control: Whether clocks and power may be set: off, known or auto.
        profiles: Folder of the profiles of job classes; the objective is such a class. Without a folder, and with
            control "off", the run neither uses nor measures profiles.
        hang_timeout: Time (s) after which a trial fails that holds its turn without an iteration.
        runs: Folder that holds run folders.
        wait: Wait for the end of a run that uses the device, or be refused; None to take turns with it if both can.
        share_device: Run beside a run that uses the device, with the memory that is free.

    Raises:
        UsageError: The arguments contradict each other or name what does not exist.
        UnfitEnvironment: This process or machine cannot run the study, or can no longer run it.
        Exception: The objective raised it, and `catch` does not name it. Other trials in progress are ended.
        KeyboardInterrupt: The user pressed Ctrl-C. The first one ends the trials in progress at their next boundary.
    """
    if n_jobs is not None:
        raise UsageError(f"n_jobs={n_jobs}: how many trials are in progress follows from lanes and jobs_per_lane")
    if not isinstance(study, optuna.Study) or not callable(objective):
        raise UsageError(f"optimize(study, objective) takes a study and a function, not {study!r} and {objective!r}")
    if ecoshare._function is not None:
        raise UsageError("this process runs a trial; its objective cannot optimize another study in lanes")
    caught = tuple(catch) if isinstance(catch, Iterable) else (catch,)
    options = RunOptions(
        objective=goal,
        policy=policy,
        lanes=lanes,
        jobs_per_lane=jobs_per_lane,
        memory=memory,
        control=control,
        profiles=profiles,
        use_profiles=profiles is not None or control != "off",
    )
    options.check()
    loaded = _loaded(study, objective, hang_timeout)
    with ExitStack() as undo:
        admission = DeviceAdmission.of(wait, share_device)
        occupancy = undo.enter_context(occupied(partial(find_all, device), admission, _note, takes_turns=True))
        check_forkable(not occupancy.devices[0].on_processors)
        plan = Plan.of(loaded, FoundDevices(occupancy.devices), options)
        for note in plan.notes:
            _note(note)
        _fail_left(study)
        socket_of = f"ecoshare-{secrets.token_hex(16)}-{{}}".format
        forked = ForkedServer(Objective(objective, study, caught, socket_of))
        undo.callback(forked.end)
        run = StudyRun(forked, Expendable(PlainProgress(Console(stderr=True, highlight=False))))
        standing_in = _StandIn(run, loaded.jobs[0].name, socket_of, caught)
        interrupts = undo.enter_context(Interrupts(run.stop, raise_from=_OUT_OF_PATIENCE))
        try:
            run.start(_planned(plan, study, n_trials, run), loaded.text, Path(runs).absolute(), occupancy)
            if not run.is_ending:
                study.optimize(
                    standing_in,
                    n_trials,
                    timeout,
                    n_jobs=len(plan.devices) * plan.lanes * plan.places,
                    catch=(*caught, JobFailed),
                    callbacks=callbacks,
                    gc_after_trial=gc_after_trial,
                    show_progress_bar=show_progress_bar,
                )
        except KeyboardInterrupt:
            if interrupts.number is None:
                raise
        finally:
            run.finish()
    interrupts.pass_on()
    if run.error is not None:
        raise run.error
    if standing_in.failure is not None:  # Optuna ignores exceptions of the last trials in progress
        raise standing_in.failure
    assert run.result is not None, "a run ends with a result or an error"
    for note in run.result.notes:
        _note(note)
    return Optimized(run.result.folder.path, run.result.data.summary.as_dict())


class _StandIn:
    """Stand-in for the objective, which Optuna calls for each trial.

    Attributes:
        failure: First exception that `catch` does not name, which ends the study; None before.
    """

    def __init__(
        self, run: StudyRun, name: str, socket_of: Callable[[int], str], catch: tuple[type[Exception], ...]
    ) -> None:
        self._run = run
        self._name = name
        self._socket_of = socket_of
        self._catch = catch
        self.failure: BaseException | None = None

    def __call__(self, trial: Trial) -> Any:
        """Run the objective in its lane and return its value.

        Raises:
            TrialPruned: The objective pruned its trial.
            Exception: The objective raised it.
            KeyboardInterrupt: The study was stopped before the trial ended.
            JobFailed: The trial's process died, or another trial's failure ended the run.
        """
        assert self._run.folder is not None, "the run has begun"
        name = trial_name(self._name, trial.number, MAX_TRIALS)
        folder = self._run.folder / "jobs" / name
        trial.set_user_attr(JOB, str(folder))
        listener = Listener(trial, self._socket_of(trial.number))
        try:
            with self._run.submit(name, trial.number) as ticket:
                outcome = listener.serve(ticket.over)
                end = ticket.end
        finally:
            listener.close()
        if folder.is_dir():
            write_json(RunFolder(self._run.folder).values(name), {key: str(each) for key, each in trial.params.items()})
        if outcome is None:
            raise self._cut_off(trial, end, folder)
        if "pruned" in outcome:
            raise optuna.TrialPruned(outcome["pruned"])
        if "failed" in outcome:
            raise self._failed(trial, outcome, folder)
        return outcome["value"]

    def _failed(self, trial: Trial, outcome: dict[str, Any], folder: Path) -> BaseException:
        """The exception to raise here for the one that the objective raised."""
        failed = outcome["failed"]
        words = f"{failed['name']}: {failed['said']}"
        trial.set_user_attr(ERROR, words)
        error = rebuilt(failed)
        if outcome["caught"] is not None:
            kind = self._catch[outcome["caught"]]
            if not isinstance(error, kind):  # this process lacks the class, by which Optuna decides
                error = kind.__new__(kind)
                error.args = (words,)
        else:
            if error is None or isinstance(error, SystemExit | JobFailed):
                error = EcoshareError(words)
            self._end_all(trial, error)
        error.add_note(f"in trial {trial.number}; what it said is in {folder}/stderr.log")
        error.__cause__ = Elsewhere(failed["trace"])
        return error

    def _cut_off(self, trial: Trial, end: JobExited | None, folder: Path) -> BaseException:
        """The exception to raise for a trial that ended without an outcome."""
        with_the_run = (Outcome.STOPPED, Outcome.LOST, Outcome.DEVICE_FAILED)
        if self._run.is_ending and (end is None or end.outcome in with_the_run):
            return self._ended_with_the_run(trial)
        reason = end.reason if end is not None else "its process could not be started"
        trial.set_user_attr(ERROR, reason)
        return JobFailed(f"trial {trial.number}: {reason}; what it said is in {folder}/stderr.log")

    def _ended_with_the_run(self, trial: Trial) -> BaseException:
        trial.study.stop()
        why = "the study was stopped" if self.failure is None else f"another trial has failed: {self.failure}"
        if self._run.error is not None:
            why = str(self._run.error)
        trial.set_user_attr(ERROR, why)
        return KeyboardInterrupt(why) if self.failure is None and self._run.error is None else JobFailed(why)

    def _end_all(self, trial: Trial, error: BaseException) -> None:
        """End the study with this error; later errors are ignored."""
        if self.failure is None:
            self.failure = error
            trial.study.stop()
            self._run.stop()


def _loaded(study: optuna.Study, objective: ObjectiveFunction, hang_timeout: float | None) -> LoadedJobs:
    """A job file with the objective as its job; source file and qualified name determine the job class."""
    function: Any = inspect.unwrap(objective)
    while isinstance(function, partial):
        function = function.func
    if not hasattr(function, "__qualname__"):
        function = type(function)
    source = None
    with suppress(TypeError, OSError):
        source = inspect.getsourcefile(function)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", study.study_name)[:_LONGEST_NAME].lstrip(".-") or "study"
    program = {"script": os.path.normpath(Path(source).absolute())} if source is not None else {"module": "__main__"}
    fields: dict[str, Any] = {"name": name, **program, "args": [function.__qualname__], "cwd": str(Path.cwd())}
    if hang_timeout is not None:
        fields |= {"timeout": hang_timeout, "startup_timeout": hang_timeout}
    text = yaml.safe_dump({"version": 1, "jobs": [fields]}, sort_keys=False)
    return LoadedJobs(Path(name), "", text, (JobConfig.model_validate(fields),))


def _planned(plan: Plan, study: optuna.Study, n_trials: int | None, run: StudyRun) -> Plan:
    """The plan with a sweep that holds the trials of the study."""
    (job,) = plan.jobs
    several = len(study.directions) > 1
    maximise = not several and study.direction == optuna.study.StudyDirection.MAXIMIZE
    options = Sweep.model_construct(
        optuna=OptunaOptions.model_construct(space={}, sampler=(type(study.sampler).__name__, {})),
        trials=MAX_TRIALS,
        goal="maximize" if maximise else "minimize",
        metric=None if several else Metric("value"),
    )
    spec = SweepSpec(name=job.spec.name, parallel=plan.lanes * plan.places, maximise=maximise, early_stopping=None)
    template = replace(job, called=True)
    sweep = StudySweep(template=template, options=options, spec=spec, submitted=run.submitted, most=n_trials)
    return replace(plan, jobs=(), sweeps=(sweep,))


def _fail_left(study: optuna.Study) -> None:
    """Fail the trials that a killed session left in progress, but not those of a live run."""
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if (job := trial.user_attrs.get(JOB)) is None:
            continue
        folder = RunFolder(Path(job).parents[1])
        if folder.events.exists() and not is_live(folder):  # the folder may be on another machine
            study._storage.set_trial_user_attr(trial._trial_id, ERROR, "cut off with the process of the study")
            study.tell(trial.number, state=TrialState.FAIL)


def _note(words: str) -> None:
    with suppress(OSError):
        print(f"note: {words}", file=sys.stderr, flush=True)
