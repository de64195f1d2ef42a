"""Command classes of this command line: help without noise, and words after `--`."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from ecoshare.errors import UsageError

_KEY: Final = "ecoshare.words"
_ALIKE: Final = 0.8
"""Similarity from which an unknown option counts as a typing mistake. Click then names the option that was meant."""


class HelpfulCommand(TyperCommand):
    """A command with help that shows no type beside flags."""

    def get_params(self, ctx: Any) -> Any:
        """Parameters of the command, the help option included."""
        return _without_types(super().get_params(ctx))


class CommandGroup(TyperGroup):
    """A group of commands with help that shows no type beside flags."""

    def get_params(self, ctx: Any) -> Any:
        """Parameters of the command, the help option included."""
        return _without_types(super().get_params(ctx))


class WordsAfter(HelpfulCommand):
    """A command that keeps words after `--` apart from its own arguments; `words_after` returns them.

    Click removes the `--` and passes one list on, in which a script looks like an argument of the scripts.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words before `--`; return the words that are left.

        Raises:
            UsageError: An option after a script is unknown to this command.
        """
        place = args.index("--") if "--" in args else len(args)
        ctx.meta[_KEY] = tuple(args[place + 1 :])
        if place == len(args) and not ctx.resilient_parsing:
            self._check_options(args)
        return super().parse_args(ctx, args[:place])

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Words of the usage line, with `[-- ARGS]` at the end."""
        return [*super().collect_usage_pieces(ctx), "[-- ARGS]"]

    def _check_options(self, args: list[str]) -> None:
        script = next((number for number, word in enumerate(args) if word.endswith(".py")), len(args))
        own = {name for parameter in self.params for name in (*parameter.opts, *parameter.secondary_opts)}
        own |= {"-h", "--help"}
        for word in args[script + 1 :]:
            name = word.partition("=")[0]
            if word.startswith("-") and name not in own and not get_close_matches(name, own, cutoff=_ALIKE):
                raise UsageError(
                    f"{name} is no option of `ecoshare {self.name}`",
                    f"arguments of scripts stand after `--`: `ecoshare {self.name} {args[script]} -- {word}`",
                )


def words_after(context: typer.Context) -> tuple[str, ...]:
    """Words that stood after `--` on the command line."""
    words: tuple[str, ...] = context.meta[_KEY]
    return words


def _without_types(parameters: Iterable[Any]) -> list[Any]:
    """Parameters without the type of flags: a flag takes no value, so `<bool>` beside it would mislead."""
    found = list(parameters)
    for each in found:
        if getattr(each, "is_flag", False) and each.metavar is None:
            each.metavar = ""
    return found
