"""The optimizer: proposes settings, records their results and reports the best setting so far."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tuner.acquisition import CautiousImprovement, RelativeObjective, constraint
from tuner.evaluations import Evaluation, EvaluationStatus
from tuner.objective import Limit, Objective
from tuner.prior import Prior
from tuner.response_model import ResponseModel
from tuner.response_process import ResponseProcess, hypotheses
from tuner.space import Setting, Space

SCHEMA_VERSION = 1

_CAUTION = 0.5
"""Exponent of the probability of feasibility in the score. The expected gain already contains that probability once.
See docs/decisions/0010."""


@dataclass(frozen=True)
class Best:
    """The best measured setting.

    Attributes:
        objective: Estimated objective of the setting, given all evaluations.
        feasible: Probability that the setting keeps every limit.
    """

    setting: Setting
    objective: float
    feasible: float


class ConstrainedTuner:
    """Minimises an objective over a discrete space under limits, with few evaluations and few violations.

    1. The first evaluation is the default setting: limits and objective are relative to it.
    2. `tell` conditions the model (`ResponseModel`) on all evaluations.
    3. `ask` returns the setting of the whole space with the largest score (`tuner.acquisition`): botorch's qLogNEI
       under the limits, plus half of the logarithm of the probability that they are kept. The samples of the model
       include the noise of the best setting so far and of the default. The penalty is there because a violation also
       slows down the jobs that run.

    Equal seeds and evaluations give equal answers. The tuner uses one thread, because training jobs run beside it.

    Attributes:
        space: Space of the settings.
        default: Default setting.
        limits: Limits, relative to the default or absolute.
        trials: Evaluations so far.
        model: botorch model of the responses, given the evaluations. Each evaluation makes a new one.
        objective: botorch objective: minus the logarithm of the objective.
        constraints: botorch constraints, one for each limit.
        spread: Factor of the noise of each observable, (n_observables,).
        outlook: Expectations at all settings, each (n_settings,), given the evaluations.

    Examples:
        >>> from tuner import ConstrainedTuner, Knob, Limit, Role, Space, energy
        >>> space = Space.product(Knob("gpu_clock", (900.0, 1200.0, 1500.0), Role.CORE_CLOCK))
        >>> default = {"gpu_clock": 1500.0}
        >>> tuner = ConstrainedTuner(space, energy({"time_s": 250.0}), [Limit("time_s", 1.1)], default)
        >>> tuner.ask()
        {'gpu_clock': 1500.0}
        >>> tuner.tell(default, {"power_w": 250.0, "time_s": 0.100})
        >>> tuner.tell({"gpu_clock": 1200.0}, {"power_w": 190.0, "time_s": 0.104})
        >>> tuner.best().setting
        {'gpu_clock': 1200.0}
    """

    def __init__(
        self,
        space: Space,
        objective: Objective,
        limits: Sequence[Limit],
        default: Setting,
        prior: Prior | None = None,
        seed: int = 0,
        plain: bool = False,
    ) -> None:
        """Make a tuner without evaluations.

        Args:
            prior: Prior of the observables. None for the physical model's prior of the times that the limits name.
            plain: Use the prior's level but not its structure, for comparison.

        Raises:
            ValueError: The default is not in the space, or the prior lacks an observable that a limit names.
        """
        with one_thread():
            self.space, self.default, self.limits = space, dict(default), tuple(limits)
            self.trials: list[Evaluation] = []
            try:
                self._at = space.index(default)
            except KeyError:
                raise ValueError(f"the default {dict(default)} is not in the space") from None
            if prior is None:
                from tuner.physics import grey_box

                prior = grey_box(space, sorted({limit.observable for limit in limits}), default, seed)
            unknown = {limit.observable for limit in limits} - set(prior.observables)
            if unknown:
                raise ValueError(f"the prior knows nothing of {', '.join(sorted(unknown))}")
            self._process = ResponseProcess(space, prior, hypotheses(0.0 if plain else prior.trust), seed)
            self.spread = prior.spread
            self.objective = RelativeObjective(objective, prior.observables)
            self.constraints = [constraint(limit, prior.observables) for limit in limits]
            self._look()

    def ask(self, sure: float = 0.0) -> Setting:
        """The setting to evaluate next: the default until it is measured.

        Args:
            sure: Least probability that the setting keeps the limits. Above 0, only untried settings count while there
                are any; if none of them reaches `sure`, the likeliest one is returned.

        Raises:
            RuntimeError: Every setting has failed or was stopped early.
        """
        if not any(
            trial.status is EvaluationStatus.MEASURED and self._place(trial) == self._at for trial in self.trials
        ):
            return dict(self.default)
        if not bool((self._score > -torch.inf).any()):
            raise RuntimeError("every setting has failed")
        score = self._score if sure <= 0.0 else self._score_of_likely(sure)
        return dict(self.space.settings[int(score.argmax())])

    def tell(
        self, setting: Setting, observed: Mapping[str, float], status: EvaluationStatus = EvaluationStatus.MEASURED
    ) -> None:
        """Record the result of an evaluation.

        Args:
            observed: Positive values by observable of the prior. Other names are stored but not used.

        Raises:
            ValueError: The setting is not in the space, or a number is not positive.
        """
        self._tell([Evaluation(dict(setting), dict(observed), status)])

    def best(self) -> Best | None:
        """Best measured setting that keeps the limits with a probability over 0.5; None if there is none."""
        told = sorted({self._place(trial) for trial in self.trials if trial.status is EvaluationStatus.MEASURED})
        kept = [place for place in told if self._feasible[place] >= 0.5]
        if not kept:
            return None
        place = min(kept, key=lambda each: (float(self._mean[each]), each))
        return Best(dict(self.space.settings[place]), math.exp(self._mean[place]), float(self._feasible[place]))

    def feasible(self, setting: Setting) -> float:
        """Probability that a setting keeps every limit, by all evaluations.

        Raises:
            KeyError: The setting is not in the space.
        """
        return float(self._feasible[self.space.index(setting)])

    def upper(self, observable: str, confidence: float) -> Tensor:  # (n_settings,)
        """Upper bound of an observable at every setting, in the order of the space.

        Args:
            observable: Name of an observable of the prior.
            confidence: Probability, by all evaluations, that the observable is below the bound.
        """
        with one_thread():
            return self.model.upper(observable, confidence)

    @property
    def baseline(self) -> Tensor:
        """Points of the model that were measured, each once, (N, d); the default's if there are none."""
        told = {self._place(trial) for trial in self.trials if trial.status is EvaluationStatus.MEASURED}
        return self.model.points[sorted(told) or [self._at]]

    @property
    def expected_gain(self) -> float:
        """Largest expected improvement of any setting, as a fraction of the best objective so far."""
        return float(self._gain.max())

    def save(self, path: Path) -> None:
        """Write the evaluations to `path` atomically: write a file beside it, then rename that file."""
        data = {
            "schema_version": SCHEMA_VERSION,
            "default": self.default,
            "trials": [trial.as_dict() for trial in self.trials],
        }
        # `ecoshare.base.disk` does the same; this package stands alone and must not import it.
        beside = path.with_name(path.name + ".new")
        beside.write_text(json.dumps(data, indent=1) + "\n")
        beside.replace(path)

    def load(self, path: Path) -> None:
        """Add the evaluations that another tuner of the same space saved.

        Raises:
            ValueError: The file has another schema version or another default, or a setting is not in the space.
        """
        data = json.loads(path.read_text())
        if data.get("schema_version") != SCHEMA_VERSION or data["default"] != self.default:
            raise ValueError(f"{path} holds no trials of this space")
        self._tell([Evaluation.from_dict(each) for each in data["trials"]])

    def _tell(self, trials: Sequence[Evaluation]) -> None:
        """Record evaluations, then update the scores of all settings once."""
        for trial in trials:
            if any(not math.isfinite(value) or value <= 0.0 for value in trial.observed.values()):
                raise ValueError(f"observables are positive numbers: {dict(trial.observed)}")
            try:
                self.space.index(trial.setting)
            except KeyError:
                raise ValueError(f"{dict(trial.setting)} is not in the space") from None
        self.trials += trials
        with one_thread():
            self._look()

    def _place(self, trial: Evaluation) -> int:
        return self.space.index(trial.setting)

    def _look(self) -> None:
        """Update the model and the scores of all settings. This runs after each evaluation, so that `ask` is cheap."""
        logs = self._process.condition(self.trials)
        self.model = ResponseModel(self.space, self._process.observables, self.default, logs)
        acquisition = CautiousImprovement(self.model, self.baseline, self.objective, self.constraints, _CAUTION)
        outlook = acquisition.outlook(self.model.points[:, None])
        self.outlook = outlook
        self._feasible, self._mean = outlook.log_feasible.exp(), outlook.mean
        self._score, self._gain = outlook.score.clone(), outlook.log_gain.exp()
        closed = [
            self._place(trial)
            for trial in self.trials
            if trial.status in (EvaluationStatus.FAILED, EvaluationStatus.CENSORED)
        ]
        self._score[closed] = -torch.inf

    def _score_of_likely(self, sure: float) -> Tensor:  # (n,)
        new = self._score > -torch.inf
        new[[self._place(trial) for trial in self.trials]] = False
        likely = new & (self._feasible >= sure)
        if bool(likely.any()):
            return torch.where(likely, self._score, -torch.inf)
        return torch.where(new, self._feasible, -torch.inf) if bool(new.any()) else self._score


@contextmanager
def one_thread() -> Iterator[None]:
    """Context manager: no gradients and one thread, because training jobs run beside the tuner."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_num_threads(before)
