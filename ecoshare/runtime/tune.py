"""A run for the sake of the best setting of its packing: all jobs of a file at once, or one script."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ecoshare.advise.advice import Alone, Goal
from ecoshare.core.events import Trial
from ecoshare.errors import Interrupted, JobFailed, UnfitEnvironment, UsageError
from ecoshare.hardware.devices import DeviceInfo
from ecoshare.hardware.knob import KnobSpec
from ecoshare.hardware.nvml import OpenGpu
from ecoshare.jobs.load import LoadedJobs, load
from ecoshare.measure.meter import MEASURED
from ecoshare.measure.nvml_meter import NvmlMeter
from ecoshare.measure.profile import Profile
from ecoshare.measure.profiles import ProfileStore
from ecoshare.measure.rapl import RaplMeter
from ecoshare.measure.tuned import BestStatic, Device, KnobRange, Packing, TrialRecord, Tuned, TunedStore
from ecoshare.report.progress import Progress
from ecoshare.runtime import plan as planning
from ecoshare.runtime import session
from ecoshare.runtime.profiler import Profiler
from ecoshare.runtime.settings import Settings, claim, not_restored
from ecoshare.runtime.single import one_job

if TYPE_CHECKING:
    from ecoshare.advise.adviser import PackingSearch, TunerAdviser
    from ecoshare.advise.search import Outcome
    from ecoshare.advise.transfer import Earlier
    from ecoshare.advise.yardstick import Job
    from tuner import Prior, Space


@dataclass(frozen=True, slots=True)
class Tune:
    """What is to be tuned, and how.

    Attributes:
        jobs: A job file, or a script.
        args: Of the script.
        knobs: Names of those that may be set; None for all that there are.
        assume_unlocked: Whether to lock clocks without looking whether somebody else has.
    """

    jobs: Path
    args: list[str]
    device: DeviceInfo
    goal: Goal
    lanes: int = 1
    knobs: tuple[str, ...] | None = None
    assume_unlocked: bool = False


class Show:
    """Is told what a search does; shows nothing by itself."""

    def begins(self, knobs: Sequence[KnobRange]) -> None:
        """The knobs that it looks at."""

    def trial(self, record: TrialRecord) -> None:
        """A trial is over."""


def tune(
    asked: Tune, store: ProfileStore, runs: Path, progress: Progress, show: Show, say: Callable[[str], None]
) -> tuple[Tuned, str, session.Result]:
    """Run the jobs side by side, search their best setting, and stop them; the result is kept for the packing.

    Returns:
        The result, why the search has ended (empty where it was cut off: then nothing is kept), and the run.

    Raises:
        UsageError: The jobs cannot run all at once, or there is no such knob.
        UnfitEnvironment: Nothing can be set here, by this user, or joules are not measured.
        JobFailed: A job ended before there was a result.
        Interrupted: The user stopped it before.
        NotRestored: The device is not as it was.
    """
    _check_meter(asked.device)
    loaded = _jobs(asked)
    asked = _within_own_limits(asked, loaded, say)
    plan = planning.make(
        loaded,
        asked.device,
        objective=asked.goal.objective,
        policy="fair",
        lanes=asked.lanes,
        places=-(-len(loaded.jobs) // asked.lanes),
        store=store,
        goal=asked.goal,
    )
    for note in plan.notes:
        say(note)
    settings = claim(asked.device, exact=True, assume_unlocked=asked.assume_unlocked)
    search = _Searching(asked, settings, plan, store, show)
    result = session.start(plan, loaded.text, runs, progress, tuning=search)
    own = search.packing_search
    if result.unrestored:
        raise not_restored(result.unrestored)
    if not settings.control.specs and settings.control.dropped:
        fault = next(iter(settings.control.dropped.values()))
        raise UnfitEnvironment(f"nothing can be set on {asked.device.model}: {fault}", fault.remedy)
    if own is None or not any(record.energy is not None for record in search.records):
        raise _why_not(result, own)
    tuned = search.result()
    if own.ending:
        TunedStore(store.folder).save(tuned)
    return tuned, own.ending, result


class _Searching:
    """What a tuning run adds to a run: its claimed device, its adviser, and the account of the trials."""

    def __init__(self, asked: Tune, settings: Settings, plan: planning.Plan, store: ProfileStore, show: Show) -> None:
        self.settings, self.records = settings, list[TrialRecord]()
        self._asked, self._plan, self._store, self._show = asked, plan, store, show
        self._specs = _chosen(settings, asked.knobs)
        self._adviser: TunerAdviser | None = None
        self._profiler: Profiler | None = None

    def adviser(self, profiler: Profiler) -> TunerAdviser:
        """The adviser of the run whose profiles are kept there."""
        from ecoshare.advise.adviser import TunerAdviser
        from ecoshare.advise.space import knob_of, space_of

        def left() -> list[KnobSpec]:
            names = {spec.name for spec in self.settings.control.specs}
            return [spec for spec in self._specs if spec.name in names]

        def space() -> Space | None:
            knobs = [knob_of(spec.name, spec.values, spec.special) for spec in left()]
            return space_of(knobs, self.settings.control.allows) if knobs else None

        def default() -> dict[str, float | str]:
            return {spec.name: spec.default for spec in left()}

        self._profiler = profiler
        self._adviser = TunerAdviser(space, default, self._alone, self._asked.goal, self._told, self._prior)
        self._show.begins(self._knobs)
        return self._adviser

    @property
    def packing_search(self) -> PackingSearch | None:
        """The search, where one began."""
        return next(iter(self._adviser.searches.values()), None) if self._adviser is not None else None

    def result(self) -> Tuned:
        """What it has found."""
        own = self.packing_search
        assert own is not None and own.search is not None
        device = self._asked.device
        spent = [record.joules for record in self.records if record.joules is not None]
        return Tuned(
            objective=self._asked.goal.objective,
            tuning_limit=self._asked.goal.tuning_limit,
            knobs=self._knobs,
            packing=own.packing,
            device=Device(model=device.described, uuid=device.uuid),
            default=self._default,
            best=self._whole(own.search.best),
            trials=tuple(self.records),
            saved_against_default=own.search.saved,
            best_static=self._best_static(own.packing),
            violations=sum(record.feasible is False for record in self.records),
            search_energy_j=sum(spent) if spent else None,
            made_utc=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        )

    def _best_static(self, packing: Packing) -> BestStatic | None:
        """What was best most often for other packings of this device; with its energy where it was tried here."""
        known = TunedStore(self._store.folder).on(self._asked.device.described)
        names = {spec.name for spec in self._specs}
        bests = [
            tuple(sorted(each.best.items()))
            for each in sorted(known, key=lambda each: each.made_utc, reverse=True)
            if each.packing != packing and each.best is not None and each.best.keys() == names
        ]
        if not bests:
            return None
        ((setting, count),) = Counter(bests).most_common(1)
        tried = [each.energy for each in self.records if each.energy and each.requested == dict(setting)]
        source = f"the best in {count} of {len(bests)} other searches on this device"
        return BestStatic(setting=dict(setting), energy=tried[-1] if tried else None, source=source)

    @property
    def _default(self) -> dict[str, float | str]:
        """What the device was found with, also of knobs that were dropped since."""
        return {spec.name: spec.default for spec in self._specs}

    @property
    def _knobs(self) -> tuple[KnobRange, ...]:
        return tuple(_range(spec) for spec in self._specs)

    def _whole(self, setting: Mapping[str, float | str] | None) -> dict[str, float | str] | None:
        """With the knobs that were dropped on the way, at their default."""
        return None if setting is None else {**self._default, **setting}

    def _alone(self, job: str) -> Alone:
        name = next(each.spec.job_class for each in self._plan.jobs if each.spec.name == job)
        made = self._profiler.made if self._profiler is not None else {}
        profile: Profile | None = made.get(name) or self._plan.known.get(name)
        if profile is None:
            return Alone(None, None)
        times = profile.train or profile.eval
        energy = profile.energy
        measured = energy is not None and energy.source == MEASURED
        power_w = energy.power_w if energy is not None and measured and energy.power_w > 0.0 else None
        return Alone(power_w, times.mean_s if times is not None and times.mean_s > 0.0 else None)

    def _prior(self, space: Space, jobs: Sequence[Job]) -> Prior | None:
        """What earlier searches of single jobs on this device say; of several lanes they say nothing."""
        from ecoshare.advise.transfer import prior_from

        if self._asked.lanes > 1:
            return None
        classes = {each.spec.name: each.spec.job_class for each in self._plan.jobs}
        names = {knob.name for knob in space.knobs}
        return prior_from(
            space,
            {name: self._default[name] for name in names},
            jobs,
            classes,
            _earlier(TunedStore(self._store.folder).on(self._asked.device.described), names),
            self._asked.goal.seed,
        )

    def _told(self, trial: Trial, outcome: Outcome | None) -> None:
        """A trial is over: its numbers, with the search's word on them."""
        judged = outcome.as_dict() if outcome is not None else {}
        record = TrialRecord.model_validate(
            {
                "status": trial.status.value,
                "power_w": trial.power_w or None,
                "times": dict(trial.times_s),
                "energy": None,
                "interference": {},
                "feasible": None,
                "best": False,
                **judged,
                "number": len(self.records) + 1,
                "requested": self._whole(dict(trial.setting)),
                "achieved": {spec.name: trial.achieved.get(spec.name) for spec in self._specs},
                "joules": trial.joules,
                "duration_s": trial.duration_s,
                "reasons": trial.throttles,
                "temperature_c": trial.temperature_c,
                "note": trial.note,
            }
        )
        self.records.append(record)
        self._show.trial(record)


def _earlier(results: Sequence[Tuned], names: set[str]) -> list[Earlier]:
    """Searches of single jobs, by class; trials in which another knob than these was set are left out."""
    from ecoshare.advise.transfer import Earlier

    trials: dict[str, list[tuple[dict[str, float | str], float, float, bool]]] = {}
    for tuned in results:
        alone = [name for lane in tuned.packing for name in lane]
        if len(alone) > 1:
            continue
        for record in tuned.trials:
            others = {name for name in record.requested if name not in names}
            at_default = all(record.requested[name] == tuned.default[name] for name in others)
            if record.status in ("measured", "censored") and record.power_w and record.times and at_default:
                setting = {name: value for name, value in record.requested.items() if name in names}
                (time_s,) = record.times.values()
                own = trials.setdefault(alone[0], [])
                own.append((setting, record.power_w, time_s, record.status == "censored"))
    return [Earlier(name, own) for name, own in trials.items()]


def _jobs(asked: Tune) -> LoadedJobs:
    if asked.jobs.suffix not in (".yaml", ".yml"):
        if asked.jobs.is_file() and asked.jobs.suffix != ".py":
            raise UsageError(f"{asked.jobs}: expected a job file (.yaml) or a script (.py)")
        return one_job(asked.jobs, asked.args, "tune")
    if asked.args:
        raise UsageError(f"{asked.jobs} is a job file, and takes no arguments", "a script would take them")
    loaded = load(asked.jobs)
    if late := [job.name for job in loaded.jobs if job.arrival_s > 0.0]:
        raise UsageError(
            f"{', '.join(late[:3])}: a packing that is tuned runs all at once, and `arrival:` is later",
            "leave out `arrival:`, or name the jobs that share the device in a file of their own",
        )
    return loaded


def _within_own_limits(asked: Tune, loaded: LoadedJobs, say: Callable[[str], None]) -> Tune:
    """A job's own `slowdown:` binds the packing: where it is less than the tuning limit, all are kept within it."""
    limits = {job.name: job.slowdown for job in loaded.jobs if job.slowdown is not None}
    if not limits or min(limits.values()) >= asked.goal.tuning_limit:
        return asked
    name = min(limits, key=lambda each: limits[each])
    say(f"{name} may be {limits[name]:g} times slower at most (`slowdown:`): no job gets slower than that by tuning")
    return replace(asked, goal=replace(asked.goal, tuning_limit=max(1.0, limits[name])))


def _check_meter(device: DeviceInfo) -> None:
    """Before jobs are started for it.

    Raises:
        UnfitEnvironment: The joules of this device are not measured.
    """
    try:
        if device.uuid is None:
            RaplMeter().open()
        else:
            with contextlib.closing(OpenGpu(device.uuid)) as gpu:
                NvmlMeter(gpu).open()
    except UnfitEnvironment as fault:
        raise UnfitEnvironment(
            f"tuning takes joules that are measured: {fault}", fault.hint or "see `ecoshare doctor`"
        ) from fault


def _chosen(settings: Settings, names: tuple[str, ...] | None) -> list[KnobSpec]:
    specs = list(settings.control.specs)
    offered = {spec.name for spec in specs}
    if names is not None and (wrong := [name for name in names if name not in offered]):
        settings.restore()
        raise UsageError(
            f"--knobs {wrong[0]}: this device offers {', '.join(sorted(offered))}", "see `ecoshare devices`"
        )
    return [spec for spec in specs if names is None or spec.name in names]


def _range(spec: KnobSpec) -> KnobRange:
    return KnobRange(name=spec.name, unit=spec.unit, count=spec.choices, lowest=spec.values[0], highest=spec.highest)


def _why_not(result: session.Result, own: PackingSearch | None) -> JobFailed | Interrupted | UnfitEnvironment:
    summary = result.data.summary
    for job in summary["jobs"]:
        log = f"what it said is in {summary['run']}/jobs/{job['name']}/stderr.log"
        if job["state"] == "failed":
            return JobFailed(f"{job['name']} failed before anything was tuned: {job['error']}", log)
        if job["state"] == "completed":
            return JobFailed(
                f"{job['name']} ended before anything was tuned",
                "let it run for longer: each trial takes some seconds, after the jobs were measured alone",
            )
    if own is not None and own.ending:
        return UnfitEnvironment(f"nothing was tuned: {own.ending}")
    return Interrupted("stopped before anything was tuned")
