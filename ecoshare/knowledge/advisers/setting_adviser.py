"""Setting adviser: which setting to measure next for a packing, and when its search is over.

The first measurement of a packing is at the default setting. It also gives the jobs' shares of their lanes' turns, and
the search begins with these. A packing with a service is searched by its requests (`service_packing`). Both drivers use
this module, the live one and the simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ecoshare.base.class_profile import Solo
from ecoshare.base.measurement import (
    AS_FOUND,
    BATCH,
    Goal,
    JobPhase,
    Measurement,
    MeasurementStatus,
    Packing,
    Setting,
    class_in,
    class_of,
    setting_of,
)
from ecoshare.base.plural import counted
from ecoshare.core.commands import AskSetting
from ecoshare.knowledge.advisers.advice import Advice
from ecoshare.knowledge.advisers.service_packing import PackedService, ServicePackingSearch
from ecoshare.knowledge.advisers.service_search import BUDGET
from ecoshare.knowledge.advisers.setting_search import JudgedMeasurement, PackedJob, SearchEnding, SettingSearch
from tuner import Prior, Space

Search = SettingSearch | ServicePackingSearch
"""Search of one packing: by iterations, or by the requests of its service."""

Value = TypeVar("Value")

_MOST_DEFAULTS = 3
"""Most attempts to measure the default setting."""


@dataclass(slots=True)
class PackingSearch:
    """Search for the setting of one packing.

    Attributes:
        packing: The packing.
        search: The search; None until the default setting was measured.
        classes: Name in the packing of each job that the search began with.
        measurements: Measurements in order, each with the judgement of the search; None where there is none.
        ending: Reason why the search is over, in words; empty while it goes on.
    """

    packing: Packing
    search: Search | None = None
    classes: dict[str, str] = field(default_factory=dict)
    measurements: list[tuple[Measurement, JudgedMeasurement | None]] = field(default_factory=list)
    ending: str = ""

    @property
    def default_times_s(self) -> Mapping[str, float]:
        """Time (s) of an iteration of each job at the default setting; empty before that was measured."""
        if self.search is None:
            return {}
        return next(found.times_s for found, _ in self.measurements if found.status is MeasurementStatus.MEASURED)


class TunerAdviser:
    """Adviser with a search for each packing that it was asked about.

    Attributes:
        searches: Searches by packing.
    """

    def __init__(
        self,
        space: Callable[[], Space | None],
        default: Callable[[], dict[str, float | str]],
        alone: Callable[[str], Solo],
        goal: Goal,
        told: Callable[
            [PackingSearch, Measurement, JudgedMeasurement | None], None
        ] = lambda _search, _found, _judged: None,
        prior: Callable[
            [Space, Sequence[PackedJob], Mapping[str, float]], Prior | None
        ] = lambda _space, _jobs, _times: None,
        class_of: Callable[[str], str] = lambda name: name,
        slowdown_limit: Callable[[str], float | None] = lambda _name: None,
        ended: Callable[[PackingSearch], None] = lambda _search: None,
        service: Callable[[str], PackedService | None] = lambda _name: None,
        evaluates_alone: Callable[[str], Solo] = lambda _name: Solo(),
    ) -> None:
        """Adviser without searches so far.

        Args:
            space: Function that returns the space of the knobs that can still be set; None if there are none.
            default: Function that returns the setting that the device was found with, for the same knobs.
            alone: Function that returns the measurements of a class alone, from the name of a job.
            goal: Objective, limit, budget and seed of the searches.
            told: Function that is called with every measurement, and with the search's result of it or None.
            prior: Function that returns the prior of a packing's observables, from its jobs and their times at the
                default setting. None stands for the prior of the physical model.
            class_of: Function that returns the class of a job, from its name. A packing may come back with other jobs
                of its classes.
            slowdown_limit: Function that returns the slowdown limit of a job, from its name; None for no limit.
            ended: Function that is called with every search that is over.
            service: Function that returns the service that a job is, from its name; None for any other job.
            evaluates_alone: Function that returns the measurements of the evaluation of a class alone, likewise.
        """
        self.searches: dict[Packing, PackingSearch] = {}
        self._space, self._default, self._alone, self._goal = space, default, alone, goal
        self._tell, self._prior, self._class_of = told, prior, class_of
        self._slowdown_limit, self._ended, self._service = slowdown_limit, ended, service
        self._evaluates_alone = evaluates_alone

    def answer(self, ask: AskSetting) -> Advice:
        """Answer to a question of the core: the next setting to measure, or the best one if the search is over."""
        own = self.searches.setdefault(ask.packing, PackingSearch(ask.packing))
        try:
            if ask.measurement is None:  # the packing is back after a while: its last setting is still open
                return Advice(AS_FOUND) if own.search is None else self._next(own, own.search)
            if own.search is None:
                return self._default_told(own, ask.measurement, ask.evaluating)
            return self._told(own, own.search, self._of_same_jobs(own, ask.measurement, ask.evaluating), ask.last)
        except Exception as defect:  # a defect of a search must not end a run
            return self._over(own, f"the tuner failed: {defect!r}")

    def most_s(self, jobs: Sequence[str], evaluating: Collection[str] = ()) -> dict[str, float]:
        """Most time (s) that an iteration of each job may take by its limit, while a search for its packing goes on.

        The result is empty if no search for jobs of these classes goes on.

        Args:
            jobs: Names of the jobs.
            evaluating: Names of those that evaluate.
        """
        named = self._named(jobs, evaluating)
        classes = sorted(named.values())
        for own in self.searches.values():
            if own.search is None or own.ending or sorted(name for lane in own.packing for name in lane) != classes:
                continue
            times_s, most = own.default_times_s, own.search.most
            stands = _stands(own.classes, named)
            return {stands[mine]: most[mine] * times_s[mine] for mine in most}
        return {}

    def _named(self, jobs: Iterable[str], evaluating: Collection[str]) -> dict[str, str]:
        """Name of each job in its packing."""
        phases = {True: JobPhase.EVALUATES, False: JobPhase.TRAINS}
        return {name: class_in(self._class_of(name), phases[name in evaluating]) for name in jobs}

    def _default_told(self, own: PackingSearch, found: Measurement, evaluating: Collection[str]) -> Advice:
        if found.status is not MeasurementStatus.MEASURED or found.power_w is None:
            self._note(own, found, None)
            if found.status is not MeasurementStatus.FAILED and len(own.measurements) < _MOST_DEFAULTS:
                return Advice(AS_FOUND)
            words = found.note or ", ".join(found.throttles) or found.status.value
            return self._over(own, f"the default setting could not be measured: {words}")
        space = self._space()
        if space is None:
            return self._over(own, "nothing can be set")
        goal = self._goal
        own.classes = self._named((*found.times_s, *found.services), evaluating)
        jobs = [self._job(name, own.classes[name], found) for name in sorted(found.times_s)]
        if found.services:
            return self._serving(own, space, jobs, found)
        own.search = search = SettingSearch(
            space,
            self._default(),
            jobs,
            goal.objective,
            goal.tuning_limit,
            goal.budget,
            goal.seed,
            self._prior(space, jobs, found.times_s),
        )
        search.next()
        self._note(own, found, search.told(_with_power(found)))
        return self._next(own, search)

    def _serving(self, own: PackingSearch, space: Space, jobs: Sequence[PackedJob], found: Measurement) -> Advice:
        """Begin the search of a packing with services."""
        services = [each for name in found.services if (each := self._service(name)) is not None]
        if len(services) != 1:
            self._note(own, found, None)
            return self._over(own, f"{counted(len(services), 'service')} on one device: only one can be tuned")
        goal, budget = self._goal, min(self._goal.budget, BUDGET)
        own.search = ServicePackingSearch(
            space, self._default(), services[0], jobs, _with_power(found), budget, goal.seed, goal.tuning_limit
        )
        self._note(own, found, own.search.measurements[0])
        return self._next(own, own.search)

    def _told(self, own: PackingSearch, search: Search, found: Measurement, last: bool) -> Advice:
        told = search.told(_with_power(found))
        self._note(own, found, told)
        if last:
            return self._over(own, "the requests did not recover from a setting")
        left = self._space()
        if left is None:
            return self._over(own, "nothing can be set any more")
        if {knob.name for knob in search.space.knobs} - {BATCH} > {knob.name for knob in left.knobs}:
            if isinstance(search, ServicePackingSearch):
                return self._over(own, "a knob was lost")
            own.search = search = self._without(own, search, left)
        if len(own.measurements) >= self._goal.budget:
            return self._over(own, SearchEnding.BUDGET.value)
        return self._next(own, search)

    def _of_same_jobs(self, own: PackingSearch, found: Measurement, evaluating: Collection[str]) -> Measurement:
        """Measurement under the names of the jobs that the search began with, matched by class."""
        measured = {*found.times_s, *found.services, *found.overloaded}
        stands = _stands(own.classes, self._named(measured, evaluating))
        if all(own == name for own, name in stands.items()):
            return found

        def renamed(values: Mapping[str, Value]) -> dict[str, Value]:
            return {own: values[name] for own, name in stands.items() if name in values}

        times_s, shares, rates = map(renamed, (found.times_s, found.shares, found.rates))
        own_of = {name: own for own, name in stands.items()}
        return replace(
            found,
            times_s=times_s,
            shares=shares,
            rates=rates,
            services=renamed(found.services),
            overloaded=tuple(own_of.get(name, name) for name in found.overloaded),
        )

    def _without(self, own: PackingSearch, search: SettingSearch, left: Space) -> SettingSearch:
        """New search with the knobs that are left. It keeps measurements with the lost knobs at their default."""
        default = self._default()
        gone = {knob.name for knob in search.space.knobs} - default.keys()
        again = SettingSearch(
            left,
            default,
            search.yardstick.jobs,
            self._goal.objective,
            self._goal.tuning_limit,
            self._goal.budget,  # earlier measurements are counted here, not by the new search
            self._goal.seed,
            self._prior(left, search.yardstick.jobs, own.default_times_s),
        )
        for each in search.measurements:
            if each.score is not None and all(each.requested[name] == search.default[name] for name in gone):
                setting = {name: value for name, value in each.requested.items() if name not in gone}
                again.carry(setting, each.found)
        return again

    def _next(self, own: PackingSearch, search: Search) -> Advice:
        setting = search.next()
        if setting is not None:
            return Advice(self._plain(setting, search))
        assert search.ending is not None
        return self._over(own, search.ending.value)

    def _over(self, own: PackingSearch, why: str) -> Advice:
        own.ending = why
        self._ended(own)
        best = own.search.best if own.search is not None else None
        if own.search is None or best is None:
            return Advice(AS_FOUND, True, why)
        judged = own.search.judged(best)
        slower = max(judged.interference.values(), default=1.0) if judged is not None else 1.0
        return Advice(self._plain(best, own.search), True, why, max(1.0, slower))

    def _note(self, own: PackingSearch, found: Measurement, judged: JudgedMeasurement | None) -> None:
        own.measurements.append((found, judged))
        self._tell(own, found, judged)

    @staticmethod
    def _plain(setting: Mapping[str, float | str], search: Search) -> Setting:
        return setting_of(setting, search.default)

    def _job(self, name: str, job_class: str, default: Measurement) -> PackedJob:
        """Job of the packing with the measurements of its class alone. Unknown power is that of the packing."""
        known = (self._alone if class_of(job_class) == job_class else self._evaluates_alone)(name)
        default_w = default.objective_w
        assert default_w is not None
        # The power alone was measured without the processors. So with them, that of the packing stands for it: all
        # watts of an objective are of the same devices.
        alone_w = known.power_w if known.power_w is not None and default.processors_w is None else default_w
        share = max(1e-3, default.shares.get(name, 1.0))
        most = self._most(name, known.iteration_s, default)
        return PackedJob(name, alone_w, known.iteration_s, share, most, job_class)

    def _most(self, name: str, alone_s: float | None, default: Measurement) -> float | None:
        """Most time of an iteration / time at the default setting by the job's own limit; None without a limit.

        If the limit is already broken at the default setting, the value is 1.
        """
        limit, rate = self._slowdown_limit(name), default.rates.get(name)
        if limit is None or alone_s is None or not rate:
            return limit if limit is None else max(1.0, limit)
        return max(1.0, limit * alone_s * rate)


def _stands(own: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Job of now that stands for each job that a search began with, both with their names in the packing."""
    by_class: dict[str, list[str]] = {}
    for name in sorted(now):
        by_class.setdefault(now[name], []).append(name)
    return {name: by_class[own[name]].pop(0) for name in sorted(own) if by_class.get(own[name])}


def _with_power(found: Measurement) -> Measurement:
    """The measurement with the power that the objective counts. A power of 0 W is none: a counter that stood still."""
    if found.power_w is not None and found.power_w <= 0.0:
        return replace(found, power_w=None)
    return found if found.processors_w is None else replace(found, power_w=found.objective_w, processors_w=None)
