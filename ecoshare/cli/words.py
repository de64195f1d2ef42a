"""Words after `--`, kept apart from those before: `ecoshare run a.py b.py -- --epochs 3`."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

import typer
from typer.core import TyperCommand

from ecoshare.errors import UsageError

_KEY: Final = "ecoshare.words"
_ALIKE: Final = 0.8
"""From this likeness on, an unknown option is taken for a typing mistake. Then Click names the one that is meant."""


class WordsAfter(TyperCommand):
    """A command whose words after `--` are none of its arguments; `words_after` has them.

    Click takes the `--` away and hands on one list, which does not tell a script from an argument of the scripts.
    """

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override, unused-ignore]
        """What is left of the words before `--`.

        Raises:
            UsageError: An option behind a script is none of this command's.
        """
        place = args.index("--") if "--" in args else len(args)
        ctx.meta[_KEY] = tuple(args[place + 1 :])
        if place == len(args) and not ctx.resilient_parsing:
            self._check_options(args)
        return super().parse_args(ctx, args[:place])

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override, unused-ignore]
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
