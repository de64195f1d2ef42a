"""Commands of Slurm, each run to its end: their output, or the reason in one line why there is none."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence

from ecoshare.common.printable import last_line
from ecoshare.errors import UnfitEnvironment

_ANSWERS_WITHIN_S = 60.0
"""Longest time (s) of a command of Slurm: its controller may be busy."""


def asked(command: Sequence[str], text: str | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Output of a command of Slurm.

    Args:
        command: The command line.
        text: Text for its stdin; None for none.
        environment: Environment of the command; None for that of this process.

    Raises:
        UnfitEnvironment: It is not installed, does not end, or fails.
    """
    name = command[0]
    if shutil.which(name) is None:
        raise UnfitEnvironment(f"{name} is not there: Slurm is not installed, or not in PATH")
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=_ANSWERS_WITHIN_S, env=environment
        )
    except subprocess.TimeoutExpired:
        raise UnfitEnvironment(f"{name} does not answer within {_ANSWERS_WITHIN_S:g} s") from None
    if done.returncode != 0:
        said = last_line(done.stderr)
        for prefix in ("error", "fatal"):
            said = said.removeprefix(f"{name}: {prefix}: ")
        raise UnfitEnvironment(f"{name}: {said or f'exit code {done.returncode}'}")
    return done.stdout


def submitted(words: Sequence[str] = (), text: str | None = None, environment: Mapping[str, str] | None = None) -> int:
    """ID of the job that `sbatch` makes of a batch script.

    Args:
        words: Further words of the command line, such as the path of the script.
        text: The script, if `words` name none.
        environment: Environment that the job gets; None for that of this process.

    Raises:
        UnfitEnvironment: Slurm refuses the job, or does not answer.
    """
    said = asked(["sbatch", "--parsable", *words], text, environment).strip().partition(";")[0]
    if not said.isdecimal():
        raise UnfitEnvironment(f"sbatch names no job: {said!r}")
    return int(said)
