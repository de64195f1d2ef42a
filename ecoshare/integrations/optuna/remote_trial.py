"""The trial's process: it runs the objective and forwards calls on its trial to the study's process.

::

    study's process                      trial's process
      Trial.suggest_float(...)  ◄──────── trial.suggest_float(...)
                       0.1      ────────►            0.1
      the objective's value     ◄──────── its end
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, json_to_distribution
from optuna.trial import BaseTrial

import ecoshare
from ecoshare.integrations.optuna.wire import Channel, Elsewhere, connect, described, rebuilt
from ecoshare.jobs.sweep import trial_number
from ecoshare.lane import cuts
from ecoshare.lane.messages import PRUNED
from ecoshare.lane.runner import DerivedSeeds

Choice = None | bool | int | float | str
_CHOICES = (type(None), bool, int, float, str)


class RemoteTrial(BaseTrial):
    """Proxy that the objective gets for an `optuna.trial.Trial` in another process.

    Attributes:
        study: The part of the study that is available here; see `RemoteStudy`.
    """

    def __init__(self, channel: Channel, number: int, study: optuna.Study) -> None:
        """Proxy for the trial with this number, with its study at the other end of `channel`."""
        self._channel = channel
        self._number = number
        self.study = study

    def ask(self, name: str, *args: Any, **options: Any) -> Any:
        """Call a method or read a property of the trial in the study's process.

        Raises:
            Exception: The call raised it in the study's process.
        """
        self._channel.tell(ask=name, args=args, options=options)
        answer = self._channel.hear()
        if answer is None:
            raise ConnectionError("the process of the study is gone")
        if (failure := answer.get("error")) is not None:
            error = rebuilt(failure) or RuntimeError(f"{failure['name']}: {failure['said']}")
            raise error from Elsewhere(failure["trace"])
        return answer["value"]

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        return float(self.ask("suggest_float", name, low, high, step=step, log=log))

    def suggest_uniform(self, name: str, low: float, high: float) -> float:
        return float(self.ask("suggest_uniform", name, low, high))

    def suggest_loguniform(self, name: str, low: float, high: float) -> float:
        return float(self.ask("suggest_loguniform", name, low, high))

    def suggest_discrete_uniform(self, name: str, low: float, high: float, q: float) -> float:
        return float(self.ask("suggest_discrete_uniform", name, low, high, q))

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        return int(self.ask("suggest_int", name, low, high, step=step, log=log))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        for choice in choices:
            if not isinstance(choice, _CHOICES):
                raise ValueError(
                    f"{name}: {choice!r} cannot be told between processes; choices are None, bool, int, float or str, "
                    "such as the key of a dict that has the real ones"
                )
        return self.ask("suggest_categorical", name, list(choices))

    def report(self, value: float, step: int) -> None:
        try:
            value = float(value)
        except (TypeError, ValueError):
            raise TypeError(f"The `value` argument is of type '{type(value)}' but supposed to be a float.") from None
        self.ask("report", value, step)
        ecoshare.report(value=value)

    def should_prune(self) -> bool:
        return bool(self.ask("should_prune"))

    def set_user_attr(self, key: str, value: Any) -> None:
        self.ask("set_user_attr", key, value)

    def set_system_attr(self, key: str, value: Any) -> None:
        self.ask("set_system_attr", key, value)

    def set_constraint(self, key: str, value: float) -> None:
        self.ask("set_constraint", key, value)

    @property
    def number(self) -> int:
        return self._number

    @property
    def params(self) -> dict[str, Any]:
        return dict(self.ask("params"))

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        return {name: json_to_distribution(text) for name, text in self.ask("distributions").items()}

    @property
    def user_attrs(self) -> dict[str, Any]:
        return dict(self.ask("user_attrs"))

    @property
    def system_attrs(self) -> dict[str, Any]:
        return dict(self.ask("system_attrs"))

    @property
    def constraints(self) -> dict[str, float]:
        return dict(self.ask("constraints"))

    @property
    def datetime_start(self) -> datetime.datetime | None:
        text = self.ask("datetime_start")
        return datetime.datetime.fromisoformat(text) if text is not None else None


class RemoteStudy(optuna.Study):
    """The study in a trial's process: its attributes, `stop`, and its best trial so far.

    The objective may hold its own reference to the study, but must not use the forked storage.
    """

    _remote: RemoteTrial

    @classmethod
    def become(cls, study: optuna.Study, trial: RemoteTrial) -> None:
        """Turn this study object into a remote study in place, so that every reference sees it."""
        known = {name: vars(study)[name] for name in ("study_name", "_study_id", "_directions", "sampler", "pruner")}
        vars(study).clear()
        vars(study).update(known, _remote=trial, _storage=_NotHere())
        study.__class__ = cls

    def stop(self) -> None:
        self._remote.ask("study.stop")

    @property
    def user_attrs(self) -> dict[str, Any]:
        return dict(self._remote.ask("study.user_attrs"))

    @property
    def best_value(self) -> float:
        return float(self._remote.ask("study.best_value"))

    @property
    def best_params(self) -> dict[str, Any]:
        return dict(self._remote.ask("study.best_params"))

    def set_user_attr(self, key: str, value: Any) -> None:
        self._remote.ask("study.set_user_attr", key, value)


class _NotHere:
    """Placeholder for the study's storage in a process that must not use it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(
            "the study is in the process that called ecoshare's optimize; a trial has its stop(), study_name, "
            "direction(s), user_attrs, set_user_attr(), best_value and best_params"
        )


class Objective:
    """Callable that the lanes' server calls with the name of a trial's job."""

    def __init__(
        self,
        function: Callable[[Any], Any],
        study: optuna.Study,
        catch: tuple[type[Exception], ...],
        socket_of: Callable[[int], str],
    ) -> None:
        """Wrap the objective; `socket_of` maps the number of a trial to the name of its socket."""
        self._function = function
        self._study = study
        self._catch = catch
        self._socket_of = socket_of
        self._seeds = DerivedSeeds()

    def __call__(self, name: str) -> None:
        """Run the objective, and send its outcome to the study's process.

        Raises:
            SystemExit: The trial was pruned.
            BaseException: The objective raised it.
        """
        number = trial_number(name)
        channel = Channel(connect(self._socket_of(number)))
        trial = RemoteTrial(channel, number, self._study)
        RemoteStudy.become(self._study, trial)
        self._seeds.set(number)
        try:
            value = self._function(trial)
        except optuna.TrialPruned as error:
            channel.tell(pruned=str(error))
            raise SystemExit(PRUNED) from None
        except BaseException as error:
            caught = next((place for place, kind in enumerate(self._catch) if isinstance(error, kind)), None)
            error = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
            channel.tell(failed=described(error), caught=caught)
            raise error from error.__cause__
        if isinstance(value, Sequence) and not isinstance(value, str):
            channel.tell(value=[_plain(each) for each in value])
            return
        plain = _plain(value)
        channel.tell(value=plain)
        if isinstance(plain, float):
            ecoshare.report(value=plain)


cuts.passes_on(Objective.__call__)


def _plain(value: Any) -> float | str | None:
    """The value as a number; otherwise None or a text, which Optuna refuses."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None if value is None else value if isinstance(value, str) else repr(value)
