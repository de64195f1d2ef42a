"""Answers the core's questions to the tuner: what to try next for a packing, and when its search is over.

The first trial of a packing is the default setting; how the jobs share their lanes' turns is known with it, and with
that the search begins. Both drivers ask here, the live one and the simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ecoshare.advisers.advice import Advice, Alone
from ecoshare.advisers.setting_evaluation import MeasuredRates, PackedJob
from ecoshare.advisers.setting_search import SearchEnding, SettingSearch, TriedSetting
from ecoshare.core.commands import AskSetting
from ecoshare.core.events import Measurement, MeasurementStatus, Packing, Setting
from ecoshare.core.goal import Goal
from tuner import EvaluationStatus, Prior, Space

_MOST_DEFAULTS = 3
"""Tries to measure the default setting."""


@dataclass(slots=True)
class PackingSearch:
    """The search of one packing.

    Attributes:
        search: None until the default setting was measured.
        trials: What was measured, in order; with the search's own word on each, where it has one.
    """

    packing: Packing
    search: SettingSearch | None = None
    trials: list[tuple[Measurement, TriedSetting | None]] = field(default_factory=list)
    ending: str = ""

    @property
    def default_times_s(self) -> Mapping[str, float]:
        """By job, at the default setting; empty before that was measured."""
        if self.search is None:
            return {}
        return next(trial.times_s for trial, _ in self.trials if trial.status is MeasurementStatus.MEASURED)


class TunerAdviser:
    """Keeps a search for each packing that it was asked about.

    Attributes:
        searches: By packing.
    """

    def __init__(
        self,
        space: Callable[[], Space | None],
        default: Callable[[], dict[str, float | str]],
        alone: Callable[[str], Alone],
        goal: Goal,
        told: Callable[[PackingSearch, Measurement, TriedSetting | None], None] = lambda _search, _trial, _outcome: (
            None
        ),
        prior: Callable[
            [Space, Sequence[PackedJob], Mapping[str, float]], Prior | None
        ] = lambda _space, _jobs, _times: None,
        class_of: Callable[[str], str] = lambda name: name,
        slowdown: Callable[[str], float | None] = lambda _name: None,
        ended: Callable[[PackingSearch], None] = lambda _search: None,
    ) -> None:
        """An adviser that was asked nothing.

        Args:
            space: What can still be set; None where nothing can.
            default: The setting that the device was found with, for the same knobs.
            alone: By the name of a job: what is known of its class.
            told: Called with every trial of a search, and the search's word on it.
            prior: Of a packing's observables, by its jobs and their times at the default setting; else the physical
                model's.
            class_of: Of a job, by its name: the packing may come back with other jobs of its classes.
            slowdown: Of a job, by its name: most that it may be slower than alone; None for any.
            ended: Called with every search that is over.
        """
        self.searches: dict[Packing, PackingSearch] = {}
        self._space, self._default, self._alone, self._goal = space, default, alone, goal
        self._tell, self._prior, self._class_of = told, prior, class_of
        self._slowdown, self._ended = slowdown, ended

    def answer(self, ask: AskSetting) -> Advice:
        """The answer to a question of the core."""
        own = self.searches.setdefault(ask.packing, PackingSearch(ask.packing))
        try:
            if ask.measurement is None:  # again, where the packing was gone for a while: the same question is open
                return Advice(()) if own.search is None else self._next(own, own.search)
            if own.search is None:
                return self._default_told(own, ask.measurement)
            return self._told(own, own.search, self._of_same_jobs(own.search, ask.measurement))
        except Exception as defect:  # no run ends for a search
            return self._over(own, f"the tuner failed: {defect!r}")

    def most_s(self, jobs: Sequence[str]) -> dict[str, float]:
        """By job: what its iterations may take by its limit, where jobs of these classes are being searched."""
        classes = sorted(map(self._class_of, jobs))
        for own in self.searches.values():
            if own.search is None or own.ending or sorted(name for lane in own.packing for name in lane) != classes:
                continue
            times_s, most = own.default_times_s, own.search.yardstick.most
            return {name: most[mine] * times_s[mine] for mine, name in self._stands(own.search, jobs).items()}
        return {}

    def _default_told(self, own: PackingSearch, trial: Measurement) -> Advice:
        if trial.status is not MeasurementStatus.MEASURED or trial.power_w is None:
            self._note(own, trial, None)
            if trial.status is not MeasurementStatus.FAILED and len(own.trials) < _MOST_DEFAULTS:
                return Advice(())
            words = trial.note or ", ".join(trial.throttles) or trial.status.value
            return self._over(own, f"the default setting could not be measured: {words}")
        space = self._space()
        if space is None:
            return self._over(own, "nothing can be set")
        goal = self._goal
        jobs = [self._job(name, trial) for name in sorted(trial.times_s)]
        own.search = SettingSearch(
            space,
            self._default(),
            jobs,
            goal.objective,
            goal.tuning_limit,
            goal.budget,
            goal.seed,
            self._prior(space, jobs, trial.times_s),
        )
        own.search.next()
        self._note(own, trial, own.search.told(_measured(trial)))
        return self._next(own, own.search)

    def _told(self, own: PackingSearch, search: SettingSearch, trial: Measurement) -> Advice:
        told = search.told(
            _measured(trial) if trial.status in (MeasurementStatus.MEASURED, MeasurementStatus.CENSORED) else None,
            EvaluationStatus(trial.status.value),
        )
        self._note(own, trial, told)
        left = self._space()
        if left is None:
            return self._over(own, "nothing can be set any more")
        if len(left.knobs) < len(search.space.knobs):
            own.search = search = self._without(own, search, left)
        if len(own.trials) >= self._goal.budget:
            return self._over(own, SearchEnding.BUDGET.value)
        return self._next(own, search)

    def _of_same_jobs(self, search: SettingSearch, trial: Measurement) -> Measurement:
        """A trial as if it were of the jobs that the search began with: those of the same classes stand for them."""
        stands = self._stands(search, trial.times_s)
        if all(own == name for own, name in stands.items()):
            return trial

        def renamed(values: Mapping[str, float]) -> dict[str, float]:
            return {own: values[name] for own, name in stands.items() if name in values}

        times_s, shares, rates = map(renamed, (trial.times_s, trial.shares, trial.rates))
        return replace(trial, times_s=times_s, shares=shares, rates=rates)

    def _stands(self, search: SettingSearch, jobs: Iterable[str]) -> dict[str, str]:
        """For each job that the search began with, the one of these that stands for it."""
        by_class: dict[str, list[str]] = {}
        for name in sorted(jobs):
            by_class.setdefault(self._class_of(name), []).append(name)
        names = sorted(job.name for job in search.yardstick.jobs)
        return {own: by_class[self._class_of(own)].pop(0) for own in names if by_class.get(self._class_of(own))}

    def _without(self, own: PackingSearch, search: SettingSearch, left: Space) -> SettingSearch:
        """The same search with the knobs that are left: it keeps trials in which the others were at their default."""
        default = self._default()
        gone = {knob.name for knob in search.space.knobs} - default.keys()
        again = SettingSearch(
            left,
            default,
            search.yardstick.jobs,
            self._goal.objective,
            self._goal.tuning_limit,
            self._goal.budget,  # the trials before are counted here, not by the new one
            self._goal.seed,
            self._prior(left, search.yardstick.jobs, own.default_times_s),
        )
        for trial in search.trials:
            if trial.judged is not None and all(trial.requested[name] == search.default[name] for name in gone):
                setting = {name: value for name, value in trial.requested.items() if name not in gone}
                assert trial.power_w is not None
                again.carry(setting, MeasuredRates(trial.power_w, trial.times_s, trial.rates))
        return again

    def _next(self, own: PackingSearch, search: SettingSearch) -> Advice:
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
            return Advice((), True, why)
        judged = own.search.judged(best)
        slower = max(judged.interference.values()) if judged is not None else 1.0
        return Advice(self._plain(best, own.search), True, why, max(1.0, slower))

    def _note(self, own: PackingSearch, trial: Measurement, outcome: TriedSetting | None) -> None:
        own.trials.append((trial, outcome))
        self._tell(own, trial, outcome)

    @staticmethod
    def _plain(setting: Mapping[str, float | str], search: SettingSearch) -> Setting:
        return () if dict(setting) == search.default else tuple(sorted(setting.items()))

    def _job(self, name: str, default: Measurement) -> PackedJob:
        """A job, by what is known of it alone; watts that nobody knows are those of the packing."""
        known = self._alone(name)
        assert default.power_w is not None
        alone_w = known.power_w if known.power_w is not None else default.power_w
        share = max(1e-3, default.shares.get(name, 1.0))
        return PackedJob(name, alone_w, known.iteration_s, share, self._most(name, known.iteration_s, default))

    def _most(self, name: str, alone_s: float | None, default: Measurement) -> float | None:
        """What its own limit leaves of its time at the default setting; one that is broken there already, nothing."""
        limit, rate = self._slowdown(name), default.rates.get(name)
        if limit is None or alone_s is None or not rate:
            return limit if limit is None else max(1.0, limit)
        return max(1.0, limit * alone_s * rate)


def _measured(trial: Measurement) -> MeasuredRates | None:
    if trial.power_w is None or trial.power_w <= 0.0:
        return None
    return MeasuredRates(trial.power_w, trial.times_s, trial.rates)
