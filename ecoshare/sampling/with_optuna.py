"""Optuna's samplers and pruners as they are (https://optuna.org; Akiba et al., KDD 2019), the study on the disk."""

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

from ecoshare.sampling.sweep_space import Choice, Dimension, Space, Values

Options = Mapping[str, Any]


def check(kind: str, name: str) -> None:
    """See that Optuna has such a sampler or pruner.

    Args:
        kind: `samplers` or `pruners`.

    Raises:
        ValueError: It has none of this name.
    """
    known = _known(kind)
    if name not in known:
        close = get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
        raise ValueError(f"optuna {optuna.__version__} has no {kind[:-1]} {name!r}; {hint}")


@dataclass(slots=True)
class OptunaSampler:
    """A study that is asked for trials, and told what became of them.

    Attributes:
        study: The study; number n of it is trial n of the sweep.
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
        """A sampler whose study is in the journal at `path`, where it may be already.

        Args:
            sampler: Name in `optuna.samplers`, and its options; `pruner` likewise, or None for none.

        Raises:
            ValueError: The options are not as these want them.
        """
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        path = path.resolve()  # the journal's lock is a link to it
        # A killed session may have left the lock, and nobody else writes: the run's log is locked by this session.
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
        """See `Sampler`."""
        trial = self._known(number)
        if number >= self.trials or (self._over and trial is None):
            return None
        if trial is None:
            trial = self.study.ask()
            assert trial.number == number, f"the study is at trial {trial.number}, the sweep at {number}"
            self._trials[number] = trial
        # What it has been given already, here or in a killed session, stays.
        return tuple((name, _suggested(trial, name, dimension)) for name, dimension in self.space.items())

    def reported(self, number: int, step: int, value: float) -> str:
        """See `Sampler`."""
        trial = self._known(number)
        assert trial is not None, "only trials that were drawn report"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a trial that was started again reports a step twice: the first counts
            trial.report(value, step)
        return f"step {step}: {type(self.study.pruner).__name__} of optuna" if trial.should_prune() else ""

    def ended(self, number: int, value: float | None, pruned: bool) -> None:
        """See `Sampler`."""
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
            # A sampler that has tried everything stops the study, which Optuna allows inside `optimize` only.
            if not self._is_finished(number):
                raise
            self._over = True
        self._trials.pop(number, None)

    def _is_finished(self, number: int) -> bool:
        return self.study.get_trials(deepcopy=False)[number].state.is_finished()

    def _known(self, number: int) -> Trial | None:
        """A trial that the study has, from this session or an earlier one."""
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
    """Of a session that goes on with so many trials: the same again would draw the same trials again."""
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
    # What it does not take cannot be given: not every sampler draws by chance.
    arguments = {**{each: value for each, value in also.items() if each in known}, **options}
    try:
        return made(**arguments)
    except (TypeError, ValueError) as error:
        raise ValueError(f"optuna's {name}: {error}") from error
