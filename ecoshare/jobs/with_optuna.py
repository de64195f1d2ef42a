"""Optuna's own samplers and pruners (https://optuna.org; Akiba et al., KDD 2019), with the study on disk."""

from __future__ import annotations

import hashlib
import inspect
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import Trial, TrialState

from ecoshare.jobs.trial_sampler import Choice, Dimension, Space, Values

Options = Mapping[str, Any]


def check(kind: str, name: str) -> None:
    """Check that Optuna has a sampler or pruner of this name.

    Args:
        kind: `samplers` or `pruners`.

    Raises:
        ValueError: Optuna has none of this name.
    """
    known = _known(kind)
    if name not in known:
        close = get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
        raise ValueError(f"optuna {optuna.__version__} has no {kind[:-1]} {name!r}; {hint}")


@dataclass(slots=True)
class OptunaSampler:
    """Sampler that asks an Optuna study for trials and tells it their results.

    Attributes:
        study: The study; its trial n is trial n of the sweep.
    """

    space: Space
    trials: int
    study: optuna.Study
    _trials: dict[int, Trial] = field(default_factory=dict)
    _over: bool = False

    @classmethod
    def open(
        cls,
        path: Path,
        name: str,
        space: Space,
        trials: int,
        maximise: bool,
        sampler: tuple[str, Options],
        pruner: tuple[str, Options] | None,
        seed: int,
    ) -> OptunaSampler:
        """Open a sampler with its study in the journal at `path`; an existing study is continued.

        Args:
            sampler: Name in `optuna.samplers`, and its options.
            pruner: Name in `optuna.pruners`, and its options; None for no pruner.

        Raises:
            ValueError: The sampler or the pruner refuses its options.
        """
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        path = path.resolve()  # the journal's lock is a link to this path
        # A killed session may have left the lock. No other process writes: this session has locked the run's log.
        path.with_name(path.name + ".lock").unlink(missing_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study = optuna.create_study(
                storage=JournalStorage(JournalFileBackend(str(path))),
                study_name=name,
                load_if_exists=True,
                direction="maximize" if maximise else "minimize",
                pruner=_make("pruners", *pruner) if pruner is not None else optuna.pruners.NopPruner(),
            )
            study.sampler = _make("samplers", *sampler, seed=_seed(seed, len(study.get_trials(deepcopy=False))))
        return cls(space, trials, study)

    def draw(self, number: int) -> Values | None:
        trial = self._known(number)
        if number >= self.trials or (self._over and trial is None):
            return None
        if trial is None:
            trial = self.study.ask()
            assert trial.number == number, f"the study is at trial {trial.number}, the sweep at {number}"
            self._trials[number] = trial
        # Optuna returns the same value again for a name that the trial already has, also from a killed session.
        return tuple((name, _suggested(trial, name, dimension)) for name, dimension in self.space.items())

    def reported(self, number: int, step: int, value: float) -> str:
        trial = self._known(number)
        assert trial is not None, "only trials that were drawn report"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a restarted trial reports a step twice; Optuna keeps the first value
            trial.report(value, step)
        return f"step {step}: {type(self.study.pruner).__name__} of optuna" if trial.should_prune() else ""

    def ended(self, number: int, value: float | None, pruned: bool) -> None:
        trial = self._known(number)
        if trial is None or self._is_finished(number):
            return
        try:
            if pruned:
                self.study.tell(trial, state=TrialState.PRUNED)
            elif value is None or value != value:
                self.study.tell(trial, state=TrialState.FAIL)
            else:
                self.study.tell(trial, value)
        except RuntimeError:
            # An exhausted sampler stops the study, which Optuna allows only inside `optimize`.
            if not self._is_finished(number):
                raise
            self._over = True
        self._trials.pop(number, None)

    def _is_finished(self, number: int) -> bool:
        return self.study.get_trials(deepcopy=False)[number].state.is_finished()

    def _known(self, number: int) -> Trial | None:
        """The trial of this number in the study, from this or an earlier session; None if there is none."""
        if number not in self._trials:
            frozen = self.study.get_trials(deepcopy=False)
            if number >= len(frozen):
                return None
            self._trials[number] = Trial(self.study, frozen[number]._trial_id)
        return self._trials[number]


def _suggested(trial: Trial, name: str, dimension: Dimension) -> str:
    if isinstance(dimension, Choice):
        return str(trial.suggest_categorical(name, dimension.words))
    if dimension.whole:
        low, high = int(dimension.low), int(dimension.high)
        return dimension.text(trial.suggest_int(name, low, high, log=dimension.log))
    return dimension.text(trial.suggest_float(name, dimension.low, dimension.high, log=dimension.log))


def _seed(seed: int, drawn: int) -> int:
    """Seed for a session that continues after `drawn` trials; an equal seed would repeat the same draws."""
    if not drawn:
        return seed
    return int.from_bytes(hashlib.sha256(f"{seed}/{drawn}".encode()).digest()[:4])


def _known(kind: str) -> list[str]:
    module = getattr(optuna, kind)
    base = optuna.samplers.BaseSampler if kind == "samplers" else optuna.pruners.BasePruner
    return [name for name in module.__all__ if _is_kind(module, name, base)]


def _is_kind(module: ModuleType, name: str, base: type) -> bool:
    each = getattr(module, name)
    return inspect.isclass(each) and issubclass(each, base) and not inspect.isabstract(each)


def _make(kind: str, name: str, options: Options, **also: Any) -> Any:
    made = getattr(getattr(optuna, kind), name)
    known = inspect.signature(made).parameters
    # Pass only the arguments that the class takes: not every sampler has a seed.
    arguments = {**{each: value for each, value in also.items() if each in known}, **options}
    try:
        return made(**arguments)
    except (TypeError, ValueError) as error:
        raise ValueError(f"optuna's {name}: {error}") from error
