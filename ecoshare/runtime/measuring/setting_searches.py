"""Searches for settings on one device of a run: the knobs that they use, their adviser, and their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ecoshare.base.class_profile import Solo
from ecoshare.base.device import DeviceInfo
from ecoshare.base.job_spec import JobSpec
from ecoshare.base.joules import MEASURED
from ecoshare.base.measurement import Goal, Measurement, MeasurementStatus, Packing
from ecoshare.base.plural import counted
from ecoshare.base.printable import utc_text
from ecoshare.core.commands import AskSetting, MeasureSetting
from ecoshare.devices.cpu_knobs import CPU_FREQUENCY
from ecoshare.devices.knob import DeviceKnobs, KnobSpec
from ecoshare.errors import UnfitEnvironment, UsageError
from ecoshare.knowledge.calibration_store import CalibrationStore
from ecoshare.knowledge.profile import Profile
from ecoshare.knowledge.tuning_store import (
    BestStatic,
    KnobRange,
    MeasurementRecord,
    TunedDevice,
    TuningResult,
    TuningStore,
)
from ecoshare.runtime.measuring.profiler import Profiler
from ecoshare.runtime.planning.plan import Plan
from ecoshare.runtime.planning.planned_job import PlannedJob
from ecoshare.runtime.planning.planned_knowledge import relative_to

if TYPE_CHECKING:
    from ecoshare.knowledge.advisers.advice import Advice
    from ecoshare.knowledge.advisers.earlier_searches import Earlier
    from ecoshare.knowledge.advisers.service_packing import PackedService
    from ecoshare.knowledge.advisers.setting_adviser import PackingSearch, TunerAdviser
    from ecoshare.knowledge.advisers.setting_search import JudgedMeasurement, PackedJob, Prior, Space


class Show(Protocol):
    """Display of a search."""

    def begins(self, knobs: Sequence[KnobRange]) -> None:
        """Show the knobs of the search, at its beginning."""
        ...

    def measured(self, record: MeasurementRecord) -> None:
        """Show a measurement that is over."""
        ...


class Searching:
    """Searches for settings on one device of a run.

    Attributes:
        device: The device.
        with_processors: Whether the joules of the processors beside the device count, too.
        notes: Notes for the user, one line each.
    """

    def __init__(
        self,
        knobs: Callable[[], DeviceKnobs],
        device: DeviceInfo,
        plan: Plan,
        goal: Goal,
        kept: TuningStore,
        names: tuple[str, ...] | None = None,
        show: Show | None = None,
        keep: bool = False,
    ) -> None:
        """Prepare the searches of a plan.

        Args:
            knobs: Returns the knobs of the claimed device that can still be set.
            device: The device.
            plan: Plan of the run.
            goal: Goal of the searches.
            kept: Store of earlier results.
            names: Names of the knobs that may be set; None for all knobs of the device.
            show: Display of the searches; None to show nothing.
            keep: Whether `kept` also stores the result of every search that comes to its end.

        Raises:
            UsageError: A knob does not exist.
        """
        self.device, self._left, self._plan, self._goal, self._kept = device, knobs, plan, goal, kept
        self.notes: list[str] = []
        self._show, self._keeps = show, keep
        found = knobs()
        self._specs = _chosen(found, names)
        # Without their knob, the joules of the processors are no part of the objective.
        self.with_processors = found.with_processors and any(spec.name == CPU_FREQUENCY for spec in self._specs)
        self._jobs: Mapping[str, PlannedJob] = {}
        self._records: dict[Packing, list[MeasurementRecord]] = {}
        self._adviser: TunerAdviser | None = None
        self._profiler: Profiler | None = None

    def adviser(self, profiler: Profiler, jobs: Mapping[str, PlannedJob]) -> TunerAdviser:
        """Make the adviser of the run.

        Args:
            profiler: Profiler of the run, for the profiles of classes that it makes.
            jobs: Jobs of the run, by name; trials are added when they are drawn.
        """
        self._jobs = jobs
        from ecoshare.knowledge.advisers.setting_adviser import TunerAdviser
        from ecoshare.knowledge.advisers.setting_search import knob_of, space_of

        def left() -> list[KnobSpec]:
            names = {spec.name for spec in self._left().specs}
            return [spec for spec in self._specs if spec.name in names]

        def space() -> Space | None:
            on_gpu = not self.device.on_processors
            knobs = [
                knob_of(spec.name, spec.values, spec.special, beside=on_gpu and spec.name == CPU_FREQUENCY)
                for spec in left()
            ]
            return space_of(knobs, self._left().allows) if knobs else None

        def default() -> dict[str, float | str]:
            return {spec.name: spec.default for spec in left()}

        self._profiler = profiler
        self._adviser = TunerAdviser(
            space,
            default,
            self._alone,
            self._goal,
            told=self._told,
            prior=self._prior,
            class_of=lambda job: self._spec(job).job_class,
            slowdown_limit=lambda job: self._spec(job).slowdown_limit,
            ended=self._keep,
            service=self._service,
            evaluates_alone=partial(self._alone, evaluates=True),
        )
        if self._show is not None:
            self._show.begins(self._knobs)
        return self._adviser

    @property
    def first(self) -> PackingSearch | None:
        """First search; None if none has begun."""
        return next(iter(self._adviser.searches.values()), None) if self._adviser is not None else None

    def records(self, search: PackingSearch) -> Sequence[MeasurementRecord]:
        """Measurements of a search so far."""
        return self._records.get(search.packing, ())

    def result(self, own: PackingSearch) -> TuningResult:
        """Result of a search so far. The search must have measured the default setting."""
        assert own.search is not None, "its default was measured"
        device, records = self.device, self.records(own)
        spent = [record.joules + (record.processors_j or 0.0) for record in records if record.joules is not None]
        return TuningResult(
            objective=self._goal.objective,
            tuning_limit=self._goal.tuning_limit,
            knobs=self._knobs,
            packing=own.packing,
            device=TunedDevice(model=device.described, uuid=device.uuid),
            default=self._default,
            best=self._whole(own.search.best),
            trials=tuple(records),
            saved_against_default=own.search.saved,
            best_static=self._best_static(own.packing),
            violations=sum(record.feasible is False for record in records),
            search_energy_j=sum(spent) if spent else None,
            made_utc=utc_text(),
            classes={name: own.classes[name] for name in own.search.jobs},
        )

    def _service(self, name: str) -> PackedService | None:
        """Service that a job is; None for any other job."""
        from ecoshare.knowledge.advisers.service_packing import PackedService

        service = self._spec(name).service
        if service is None:
            return None
        profiles = [*self._plan.known.values(), *(self._profiler.made.values() if self._profiler is not None else ())]
        idles_w = [each.energy.idle_w for each in profiles if each.energy is not None]
        idle_w = min((each for each in idles_w if each is not None), default=0.0)
        return PackedService(name, service.p99_s, service.batch_sizes, idle_w)

    def _keep(self, own: PackingSearch) -> None:
        """Store what a search has found. The best setting of a service depends on its requests, and is not stored."""
        if any(self._spec(name).service is not None for name in (own.search.jobs if own.search is not None else ())):
            return
        if not self._keeps or own.search is None or all(record.energy is None for record in self.records(own)):
            return
        try:
            self._kept.save(self.result(own))
        except (OSError, UnfitEnvironment) as error:
            self.notes.append(f"what was found for a packing could not be kept: {error}")

    def _best_static(self, packing: Packing) -> BestStatic | None:
        """Most frequent best setting of other packings on this device, with its energy if it was measured here."""
        known = self._kept.on(self.device.described)
        names = {spec.name for spec in self._specs}
        bests = [
            tuple(sorted(each.best.items()))
            for each in sorted(known, key=lambda each: each.made_utc, reverse=True)
            if each.packing != packing and each.best is not None and each.best.keys() == names
        ]
        if not bests:
            return None
        ((setting, count),) = Counter(bests).most_common(1)
        records = self._records.get(packing, ())
        tried = [each.energy for each in records if each.energy and each.requested == dict(setting)]
        source = f"the best in {count} of {counted(len(bests), 'other search', 'other searches')} on this device"
        return BestStatic(setting=dict(setting), energy=tried[-1] if tried else None, source=source)

    @property
    def _default(self) -> dict[str, float | str]:
        """Values that the device was found with, including those of knobs that were dropped since."""
        return {spec.name: spec.default for spec in self._specs}

    @property
    def _knobs(self) -> tuple[KnobRange, ...]:
        return tuple(_range(spec) for spec in self._specs)

    def _whole(self, setting: Mapping[str, float | str] | None) -> dict[str, float | str] | None:
        """The setting, with dropped knobs at their default."""
        return None if setting is None else {**self._default, **setting}

    def _spec(self, job: str) -> JobSpec:
        return self._jobs[job].spec

    def _alone(self, job: str, evaluates: bool = False) -> Solo:
        """Measurements of the class alone. The watts of an evaluation are not known."""
        name = self._spec(job).job_class
        made = self._profiler.made if self._profiler is not None else {}
        profile: Profile | None = made.get(name) or self._plan.known.get(name)
        if profile is None:
            return Solo()
        times = profile.eval if evaluates else profile.train or profile.eval
        energy = None if evaluates else profile.energy
        measured = energy is not None and energy.source == MEASURED
        power_w = energy.power_w if energy is not None and measured and energy.power_w > 0.0 else None
        return Solo(power_w=power_w, iteration_s=times.mean_s if times is not None and times.mean_s > 0.0 else None)

    def _prior(self, space: Space, jobs: Sequence[PackedJob], default_s: Mapping[str, float]) -> Prior | None:
        """Prior from earlier searches of single jobs on this device; None if they do not help."""
        from ecoshare.knowledge.advisers.earlier_searches import prior_from

        names = {knob.name for knob in space.knobs}
        return prior_from(
            space,
            {name: self._default[name] for name in names},
            jobs,
            {job.name: job.job_class for job in jobs},
            _earlier(
                self._kept.on(self.device.described),
                names,
                self.with_processors,
                relative_to(self.device, CalibrationStore(self._kept.folder.parent)),
            ),
            self._goal.seed,
            default_s,
        )

    def _told(self, own: PackingSearch, found: Measurement, judged: JudgedMeasurement | None) -> None:
        """Record a measurement that is over, with the judgement of the search."""
        judgement = judged.as_dict() if judged is not None else {}
        records = self._records.setdefault(own.packing, [])
        record = MeasurementRecord.model_validate(
            {
                "status": found.status,
                "times": dict(found.times_s),
                "energy": None,
                "interference": {},
                "feasible": None,
                "best": False,
                **judgement,
                # The search counts the processors in, and the record keeps them apart.
                "power_w": (found.power_w or None) if judged is None or found.status.has_numbers else None,
                "processors_w": found.processors_w,
                "processors_j": found.processors_j,
                "number": len(records) + 1,
                "requested": self._whole(dict(found.setting)),
                "achieved": {spec.name: found.achieved.get(spec.name) for spec in self._specs},
                "joules": found.joules,
                "duration_s": found.duration_s,
                "reasons": found.throttles,
                "temperature_c": found.temperature_c,
                "note": found.note,
            }
        )
        records.append(record)
        if self._show is not None:
            self._show.measured(record)


def _earlier(
    results: Sequence[TuningResult],
    names: set[str],
    with_processors: bool,
    relative: Callable[[str | None, str], float] = lambda _uuid, _job_class: 1.0,
) -> list[Earlier]:
    """Searches of single jobs, by class, with what their classes did in other packings.

    Measurements with any other knob off its default are left out. Times of other devices of the model are corrected.

    Args:
        results: Earlier results on the device model.
        names: Names of the knobs of the search.
        with_processors: Whether the watts of the processors count. Measurements without them are left out then.
        relative: Speed of the device with this UUID / speed of the device of the new search, for a class.
    """
    from ecoshare.knowledge.advisers.earlier_searches import Earlier

    measurements: dict[str, list[tuple[dict[str, float | str], float, float, bool]]] = {}
    in_company: dict[str, list[tuple[dict[str, float | str], float]]] = {}
    for tuned in results:
        alone = [name for lane in tuned.packing for name in lane]
        for record in tuned.trials:
            others = {name for name in record.requested if name not in names}
            if any(record.requested[name] != tuned.default[name] for name in others):
                continue
            setting = {name: value for name, value in record.requested.items() if name in names}
            if len(alone) > 1:
                if record.status is MeasurementStatus.MEASURED:
                    for job, ratio in record.interference.items():
                        in_company.setdefault(tuned.classes.get(job, ""), []).append((setting, ratio))
                continue
            if with_processors and record.processors_w is None:
                continue
            if record.status.has_numbers and record.power_w and record.times:
                (time_s,) = record.times.values()
                own = measurements.setdefault(alone[0], [])
                watts = record.power_w + ((record.processors_w or 0.0) if with_processors else 0.0)
                time_s *= relative(tuned.device.uuid, alone[0])
                own.append((setting, watts, time_s, record.status is MeasurementStatus.CENSORED))
    return [Earlier(name, own, in_company.get(name, ())) for name, own in measurements.items()]


def _chosen(knobs: DeviceKnobs, names: tuple[str, ...] | None) -> list[KnobSpec]:
    offered = {spec.name for spec in knobs.specs}
    if names is not None and (wrong := [name for name in names if name not in offered]):
        if wrong[0] == CPU_FREQUENCY and knobs.apart:
            raise UsageError(f"--knobs {wrong[0]}: {knobs.apart}", "see `ecoshare devices`")
        raise UsageError(
            f"--knobs {wrong[0]}: this device offers {', '.join(sorted(offered))}", "see `ecoshare devices`"
        )
    return [spec for spec in knobs.specs if names is None or spec.name in names]


def _range(spec: KnobSpec) -> KnobRange:
    return KnobRange(name=spec.name, unit=spec.unit, count=spec.choices, lowest=spec.lowest, highest=spec.highest)


def load() -> None:
    """Import what advisers need, which takes seconds the first time."""
    import ecoshare.knowledge.advisers.setting_adviser  # noqa: F401


class RunSearches:
    """Searches for settings on the devices of a run; none without arguments."""

    def __init__(
        self,
        searching: Mapping[str, Searching] | None = None,
        make: Callable[[DeviceInfo], Searching] | None = None,
    ) -> None:
        """Searches that have not begun.

        Args:
            searching: Searches on each device, by its name.
            make: Makes those of a device that joins the run; None if nothing is searched there.
        """
        self._searching, self._make = dict(searching or {}), make
        self._advisers: dict[str, TunerAdviser] = {}

    def begin(self, profiler: Profiler, jobs: Mapping[str, PlannedJob]) -> None:
        """Make the advisers; see `Searching.adviser`."""
        self._profiler, self._jobs = profiler, jobs
        self._advisers = {name: each.adviser(profiler, jobs) for name, each in self._searching.items()}

    def join(self, device: DeviceInfo) -> None:
        """Search on a device that joins the run, too, if anything is searched."""
        if self._make is not None:
            self._searching[device.name] = own = self._make(device)
            self._advisers[device.name] = own.adviser(self._profiler, self._jobs)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user, each once."""
        return tuple(dict.fromkeys(note for each in self._searching.values() for note in each.notes))

    def answer(self, ask: AskSetting) -> Advice:
        """Next setting of a search, or the best one if the search is over. This takes a while."""
        return self._advisers[ask.device].answer(ask)

    def most_s(self, command: MeasureSetting) -> dict[str, float] | None:
        """Most time (s) that an iteration of each job of a measurement may take by its limit.

        The result is empty at the default setting, and None if nothing is searched on the device.
        """
        adviser = self._advisers.get(command.device)
        if adviser is None:
            return None
        return adviser.most_s(command.jobs, command.evaluating) if command.setting else {}
