"""The command classes of this command line: help without noise, and words after `--`."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from ecoshare.errors import UsageError

_KEY: Final = "ecoshare.words"
_ALIKE: Final = 0.8
"""From this likeness on, an unknown option is taken for a typing mistake. Then Click names the one that is meant."""


class HelpfulCommand(TyperCommand):
    """A command whose flags show no type in the help."""

    def get_params(self, ctx: Any) -> Any:
        """All parameters, the help option included."""
        return _without_types(super().get_params(ctx))


class CommandGroup(TyperGroup):
    """The same for a group of commands."""

    def get_params(self, ctx: Any) -> Any:
        """All parameters, the help option included."""
        return _without_types(super().get_params(ctx))


class WordsAfter(HelpfulCommand):
    """A command whose words after `--` are none of its arguments; `words_after` has them.

    Click takes the `--` away and hands on one list, which does not tell a script from an argument of the scripts.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """What is left of the words before `--`.

        Raises:
            UsageError: An option behind a script is none of this command's.
        """
        place = args.index("--") if "--" in args else len(args)
        ctx.meta[_KEY] = tuple(args[place + 1 :])
        if place == len(args) and not ctx.resilient_parsing:
            self._check_options(args)
        return super().parse_args(ctx, args[:place])

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Words of the usage line."""
        return [*super().collect_usage_pieces(ctx), "[-- ARGS]"]

    def _check_options(self, args: list[str]) -> None:
        script = next((number for number, word in enumerate(args) if word.endswith(".py")), len(args))
        own = {name for parameter in self.params for name in (*parameter.opts, *parameter.secondary_opts)}
        own |= {"-h", "--help"}
        for word in args[script + 1 :]:
            name = word.partition("=")[0]
            if word.startswith("-") and name not in own and not get_close_matches(name, own, cutoff=_ALIKE):
                raise UsageError(
                    f"{name} is no option of `ecoshare run`",
                    f"arguments of scripts stand after `--`: `ecoshare run {args[script]} -- {word}`",
                )


def words_after(context: typer.Context) -> tuple[str, ...]:
    """The words that stood after `--`."""
    words: tuple[str, ...] = context.meta[_KEY]
    return words


def _without_types(parameters: Iterable[Any]) -> list[Any]:
    """The parameters; a flag takes no value, so `<bool>` beside it would mislead."""
    found = list(parameters)
    for each in found:
        if getattr(each, "is_flag", False) and each.metavar is None:
            each.metavar = ""
    return found
