"""Command classes of this command line: help without noise, words after `--`, mistakes in the style of all others."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from ecoshare.errors import UsageError, did_you_mean

_KEY: Final = "ecoshare.words"
_ALIKE: Final = 0.8
"""Similarity from which an unknown option counts as a typing mistake, and the option that was meant is named."""

Mistake: Final[type[Any]] = next(each for each in typer.BadParameter.__mro__ if each.__name__ == "ClickException")
"""Error of the parser of the command line. The versions of Typer have it in different modules."""

_VALUES = {"int": "N", "float": "NUMBER", "str": "TEXT", "path": "PATH"}
"""Words for values of options, by the words for their types in Typer's help."""

_EXPECTED = (
    (r"valid integer", "a whole number"),
    (r"valid (?:number|float)", "a number"),
    (r"greater than or equal to (\S+)", r"at least \1"),
    (r"less than or equal to (\S+)", r"at most \1"),
)
"""Words for what a value must be, by the words of the parser."""


class HelpfulCommand(TyperCommand):
    """A command with help that has no types of Python."""

    def get_params(self, ctx: Any) -> Any:
        """Parameters of the command, the help option included."""
        return _without_types(super().get_params(ctx), ctx)


class CommandGroup(TyperGroup):
    """A group of commands with help that has no types of Python."""

    def get_params(self, ctx: Any) -> Any:
        """Parameters of the command, the help option included."""
        return _without_types(super().get_params(ctx), ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Command that the first word names.

        Raises:
            UsageError: There is no such command.
        """
        if not ctx.resilient_parsing and args and not args[0].startswith("-") and not self.get_command(ctx, args[0]):
            known = [name for name in self.list_commands(ctx) if not self.commands[name].hidden]
            hint = did_you_mean(args[0], known) or f"`{ctx.command_path} --help` lists the commands"
            raise UsageError(f"`{ctx.command_path}` has no command {args[0]!r}", hint)
        return super().resolve_command(ctx, args)


class OfferedCommands(CommandGroup):
    """A group to which installed packages add commands.

    A package offers a `typer.Typer` with commands under the entry point `ecoshare.commands`, by the name of the group.
    It is loaded when the commands of the group are asked for: the help of `ecoshare` does not need it.
    """

    _is_offered = False

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all commands, in order."""
        self._load_offered()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Command of a name; None if there is none."""
        self._load_offered()
        return super().get_command(ctx, cmd_name)

    def _load_offered(self) -> None:
        if not self._is_offered:
            from importlib.metadata import entry_points

            self._is_offered = True
            for entry in entry_points(group="ecoshare.commands", name=self.name or ""):
                self.commands.update(typer.main.get_group(entry.load()).commands)


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


def told(mistake: Any) -> UsageError:
    """Mistake that the parser of the command line has found, as an error in the words of all others."""
    context = getattr(mistake, "ctx", None)
    command = "ecoshare" if context is None else context.command_path
    hint, words = f"`{command} --help` lists its options" if context is not None else "", mistake.format_message()
    parameter, name = getattr(mistake, "param", None), getattr(mistake, "option_name", "")
    if parameter is not None:
        is_option = parameter.param_type_name == "option"
        name = max(parameter.opts, key=len) if is_option else (parameter.metavar or parameter.name.upper()).strip("[].")
    if getattr(mistake, "possibilities", None) is not None:
        close = [each for each in mistake.possibilities if each != name]
        words, hint = f"{name} is no option of `{command}`", did_you_mean(name, close) or hint
    elif hasattr(mistake, "param_type"):
        words = f"{name} is missing"
    elif parameter is not None:
        known = [match.expand(text) for form, text in _EXPECTED if (match := re.search(form, mistake.message))]
        value = _value(mistake)
        words = f"{name}{value}: {'expected ' + known[0] if known else mistake.message}"
    elif name:
        takes = "it takes no value" if "not take" in words else "its value is missing"
        words = f"{name}: {takes}"
    elif extra := re.search(r"extra arguments?(?:\(s\))? \((.*)\)", words):
        words = f"{extra[1]}: `{command}` takes no such word"
    return UsageError(words.rstrip("."), hint)


def _value(mistake: Any) -> str:
    """Value that was wrong, with a blank before it; empty if it is not known."""
    cause = getattr(mistake.__cause__, "errors", None)
    found = (
        [each["input"] for each in cause()]
        if cause is not None
        else re.findall(r"^'?(.*?)'? is not", str(mistake.message))
    )
    return f" {found[0]}" if found else ""


def _without_types(parameters: Iterable[Any], context: Any) -> list[Any]:
    """Parameters without types of Python. A flag takes no value, an argument has a name, other options get a word."""
    found = list(parameters)
    for each in found:
        if each.param_type_name == "argument":
            each.display_type_rich = lambda **_: None
        elif each.metavar is None:
            known = (
                ""
                if getattr(each, "is_flag", False) or not hasattr(each, "display_type")
                else each.display_type(context)
            )
            each.metavar = _VALUES.get(re.sub(r"list\[|]| range|[<>]", "", known).lower(), known)
    return found
