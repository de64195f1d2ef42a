"""The study's process: a listener serves one trial's process, in the thread in which Optuna calls the objective."""

from __future__ import annotations

import selectors
from collections.abc import Callable
from typing import Any

import optuna
from optuna.distributions import distribution_to_json

from ecoshare.integrations.optuna.wire import Channel, accept, described, listen

Outcome = dict[str, Any]
"""Last message of a trial's process, with a key `value`, `pruned` or `failed`."""

_METHODS = frozenset(
    {
        "suggest_float",
        "suggest_uniform",
        "suggest_loguniform",
        "suggest_discrete_uniform",
        "suggest_int",
        "suggest_categorical",
        "report",
        "should_prune",
        "set_user_attr",
        "set_system_attr",
        "set_constraint",
    }
)
_PROPERTIES: dict[str, Callable[[Any], Any]] = {
    "params": lambda params: params,
    "distributions": lambda found: {name: distribution_to_json(each) for name, each in found.items()},
    "user_attrs": lambda attributes: attributes,
    "system_attrs": lambda attributes: attributes,
    "constraints": lambda constraints: constraints,
    "datetime_start": lambda moment: moment.isoformat() if moment is not None else None,
}
_STUDY_METHODS = frozenset({"stop", "set_user_attr"})
_STUDY_PROPERTIES = frozenset({"user_attrs", "best_value", "best_params"})


class Listener:
    """Socket at which a trial's process reaches the trial."""

    def __init__(self, trial: optuna.Trial, name: str) -> None:
        """Listen under a name, see `wire.listen`."""
        self._trial = trial
        self._socket = listen(name)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def serve(self, over: int) -> Outcome | None:
        """Answer the trial's process until `over` is readable; return its outcome, or None without one.

        If the trial is started again, the outcome of the earlier process does not count.

        Args:
            over: File descriptor that becomes readable when the trial is over.
        """
        outcome: Outcome | None = None
        channel: Channel | None = None
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            selector.register(over, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if channel is not None and channel.connection in ready:
                    message = channel.hear()
                    if message is not None and "ask" in message:
                        self._answer(channel, message)
                        continue
                    outcome = message or outcome
                    if message is None:
                        selector.unregister(channel.connection)
                        channel.close()
                        channel = None
                elif self._socket in ready:
                    if (connection := accept(self._socket)) is None:
                        continue
                    if channel is not None:
                        selector.unregister(channel.connection)
                        channel.close()
                    channel, outcome = Channel(connection), None
                    selector.register(channel.connection, selectors.EVENT_READ)
                elif over in ready:
                    if channel is not None:
                        channel.close()
                    return outcome

    def _answer(self, channel: Channel, message: dict[str, Any]) -> None:
        try:
            value = self._called(message["ask"], message["args"], message["options"])
            try:
                channel.tell(value=value)
            except (TypeError, ValueError) as error:
                raise TypeError(f"{message['ask']}: {error}") from error
        except OSError:
            pass  # the process is gone; `over` becomes readable
        except Exception as error:
            channel.tell(error=described(error))

    def _called(self, name: str, args: list[Any], options: dict[str, Any]) -> Any:
        owner, _, member = name.rpartition(".")
        if owner == "study":
            if member in _STUDY_METHODS:
                return getattr(self._trial.study, member)(*args, **options)
            if member in _STUDY_PROPERTIES:
                return getattr(self._trial.study, member)
        elif name in _METHODS:
            return getattr(self._trial, name)(*args, **options)
        elif name in _PROPERTIES:
            return _PROPERTIES[name](getattr(self._trial, name))
        raise AttributeError(f"a trial has no {name!r} in a process of its own")
