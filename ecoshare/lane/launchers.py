"""Decides from a command whether it is a launcher: a program that starts other processes for its work on the device.

The answer is in this module alone. So ranks that take turns themselves can replace it later.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePath

_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torch.distributed.launch",
    "accelerate.commands.launch": "accelerate",
    "accelerate.commands.accelerate_cli": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
    "deepspeed.launcher.launch": "deepspeed",
    "horovod.runner.launch": "horovodrun",
}
"""Names of launchers by the module that `python -m` runs."""

_PROGRAMS = frozenset({"torchrun", "accelerate", "deepspeed", "horovodrun"})
"""File names of launchers. A script such as `deepspeed.py` is the user's own."""

_RANK_VARIABLES = ("RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK")
"""Variables that give a process its number among those that train together."""

_BEFORE = frozenset({"env", "exec", "nice", "nohup", "stdbuf", "time"})
"""Programs that run the command after them."""

_SHELLS = frozenset({"sh", "bash", "dash", "zsh"})
_PYTHON = re.compile(r"(python|pypy)[\d.]*")
_WITH_VALUE = frozenset({"-W", "-X"})
_SEPARATORS = frozenset({"&&", "||", ";", "|", "&"})


def launcher_of(script: str | None, module: str | None, args: Sequence[str]) -> str:
    """Name of the launcher that a Python program is, such as `torchrun`; empty if it is none that is known.

    Args:
        script: Path of the script; None if `module` names a module to run as `python -m` would.
        module: Name of the module; None for a script.
        args: Arguments of the program.
    """
    if script is None:
        name = _MODULES.get(module or "", "")
    else:
        name = PurePath(script).name
        name = name if name in _PROGRAMS else ""
    has_commands = name == "accelerate" and module != "accelerate.commands.launch"
    return "" if has_commands and list(args[:1]) != ["launch"] else name


def launcher_in(command: str | Sequence[str]) -> str:
    """Name of the launcher that a command line starts; empty if it starts none that is known.

    Args:
        command: Words, or one text for a shell.
    """
    if isinstance(command, str):
        try:
            words = shlex.split(command)
        except ValueError:
            return ""
        return next(filter(None, map(_launcher, _commands(words))), "")
    return _launcher(list(command))


def rank_in(environment: Mapping[str, str] | None) -> str:
    """Variable that makes a child process a rank; empty if there is none.

    Args:
        environment: Environment of the child; None for that of this process, which makes no rank.
    """
    given = environment or {}
    return next((name for name in _RANK_VARIABLES if name in given and given[name] != os.environ.get(name)), "")


def _commands(words: Sequence[str]) -> list[list[str]]:
    """Commands of a shell's text, each without what separates it from the next one."""
    commands: list[list[str]] = [[]]
    for word in words:
        if word in _SEPARATORS:
            commands.append([])
        else:
            commands[-1].append(word)
    return commands


def _launcher(words: list[str]) -> str:
    while words and (PurePath(words[0]).name in _BEFORE or "=" in words[0] or words[0].startswith("-")):
        words = words[1:]
    if not words:
        return ""
    program, rest = PurePath(words[0]).name, words[1:]
    if program in _SHELLS:
        return launcher_in(rest[1]) if len(rest) > 1 and rest[0].endswith("c") and rest[0].startswith("-") else ""
    if not _PYTHON.fullmatch(program):
        return launcher_of(words[0], None, rest)
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        rest = rest[2:] if rest[0] in _WITH_VALUE else rest[1:]
    if rest[:1] == ["-m"]:
        return launcher_of(None, rest[1], rest[2:]) if len(rest) > 1 else ""
    return launcher_of(rest[0], None, rest[1:]) if rest else ""
