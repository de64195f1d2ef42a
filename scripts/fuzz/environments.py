"""Environments, limits, streams and folders of a command: it works, or names the obstacle."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from scripts.fuzz.commands import CODES, Called, ended, judge, nothing_left, token_of
from scripts.fuzz.rounds import Lost, Play, Round, main
from tests.runtime.running import job_file, slow_steps, words
from tests.warm import Started, ecoshare

LIMIT_S = 60.0
MIB = 1 << 20

_WRAPPER = """
import json, os, resource, shutil, sys
how = json.loads(sys.argv[1])
os.umask(how.get("umask", 0o22))
for name, most in how.get("limits", {}).items():
    resource.setrlimit(getattr(resource, name), (most, most))
for number in how.get("close", []):
    os.close(number)
    setattr(sys, ("stdin", "stdout", "stderr")[number], None)  # as Python has it where it starts like that
if how.get("remove"):
    shutil.rmtree(os.getcwd())
if how.get("user"):
    os.setgroups([]); os.setgid(how["user"]); os.setuid(how["user"])
sys.argv = ["ecoshare", *sys.argv[2:]]
from ecoshare.cli import main
main()
"""
"""Program that changes its surroundings and then becomes a command."""

_JUNK = (
    *("", " ", "0", "-1", "1e9", "x" * 5000, "/dev/null", "/dev/full", "/proc/1", "a:b", "é\udce9", "%s", "relative/x"),
)
_VARIABLES = (
    *("HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "TMPDIR", "TEMP", "USER"),
    *("LANG", "LC_ALL", "LC_CTYPE", "TERM", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TZ"),
    *("ECOSHARE_PROFILES", "ECOSHARE_STATE", "ECOSHARE_RUN", "ECOSHARE_ATTEMPT", "ECOSHARE_JOB", "LOGNAME"),
    *("ECOSHARE_ASSUME_QUIET", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY", "PATH"),
)


def prepare(folder: Path) -> Play:
    """Make a run to show, and a script that changes surroundings."""
    path = job_file(folder, slow_steps("a", 5, 2))
    if (done := ecoshare(*words(path))).returncode:
        raise RuntimeError(done.stderr)
    (wrapper := folder / "wrapper.py").write_text(_WRAPPER)
    shown = (folder / "ecoshare-runs" / "latest").resolve()

    def play(one: Round) -> None:
        (cwd := one.folder / "cwd").mkdir()
        own = job_file(cwd, slow_steps("a", 5, 2), {"name": "b", "script": str(path.parent / "b.py"), "retries": 1})
        (path.parent / "b.py").write_text("print('b')\n")
        commands: dict[str, list[str]] = {
            "run": ["run", own.name, "--device", "cpu", *one.dice.choice([["--no-report"], ["--json"], []])],
            "export": ["export", str(shown), "--format", one.dice.choice(["json", "csv", "perfetto"])],
            "explain": ["explain", str(shown), *one.dice.choice([[], ["--json"]])],
            "simulate": ["simulate", str(shown)],
            "plan": ["run", own.name, "--device", "cpu", "--dry-run"],
            "profiles": ["profiles", "list"],
            "devices": ["devices"],
            "restore": ["restore"],
            "init": ["init", "--example"],
            "schema": ["schema"],
        }
        one.kind = one.dice.choices(list(commands), [8, 2, 1, 1, 2, 1, 1, 1, 1, 1])[0]
        surroundings = Surroundings(one)
        one.story.append(f"ecoshare {' '.join(commands[one.kind])}")
        with ExitStack() as stack:
            done = surroundings.call(commands[one.kind], wrapper, cwd, stack)
        run = cwd / "ecoshare-runs" / "latest"
        if (run / "environment.json").is_file():
            nothing_left(token_of(run))
        judge_here(done, surroundings)

    return play


class Surroundings:
    """Surroundings of a command.

    Attributes:
        how: Options of the wrapper: limits, umask, descriptors to close.
        streams: Descriptors in place of the standard ones, by name.
        environment: Whole environment.
    """

    def __init__(self, one: Round) -> None:
        """Random surroundings of a round."""
        self.how: dict[str, Any] = {}
        self.streams: dict[str, str] = {}
        self.environment = dict(os.environ)
        ways: dict[str, Callable[[Random], str]] = {
            "variables": self._variables,
            "limits": self._limits,
            "streams": self._streams,
            "place": self._place,
        }
        for way in one.dice.choices(list(ways), [6, 3, 3, 2], k=one.dice.choice([1, 1, 2])):
            one.story.append(ways[way](one.dice))

    def _variables(self, dice: Random) -> str:
        if dice.random() < 0.1:
            self.environment = {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}
            return "an empty environment"
        changed: dict[str, str | None] = {}
        for name in dice.sample(_VARIABLES, dice.choice([1, 1, 2, 4])):
            new = changed[name] = dice.choice([None, *_JUNK])
            if new is None:
                self.environment.pop(name, None)
            else:
                self.environment[name] = new
        return f"variables {changed!r:.200}"

    def _limits(self, dice: Random) -> str:
        name, most = dice.choice(
            [
                ("RLIMIT_NOFILE", dice.choice([8, 16, 32, 64])),
                ("RLIMIT_FSIZE", dice.choice([0, 100, 4096])),
                ("RLIMIT_NPROC", dice.choice([0, 1])),
                ("RLIMIT_CORE", 0),
                ("RLIMIT_STACK", 256 << 10),
                ("RLIMIT_AS", dice.choice([1024 * MIB, 4096 * MIB])),
                ("RLIMIT_MEMLOCK", 0),
                ("RLIMIT_CPU", 1),
            ]
        )
        self.how["limits"] = {name: most}
        return f"{name} of {most}"

    def _streams(self, dice: Random) -> str:
        if dice.random() < 0.4:
            self.how["close"] = dice.sample([0, 1, 2], dice.choice([1, 1, 2, 3]))
            return f"closed {self.how['close']}"
        self.streams[dice.choice(["stdin", "stdout", "stderr"])] = dice.choice(["full", "pipe", "null"])
        return f"streams {self.streams}"

    def _place(self, dice: Random) -> str:
        match dice.choice(["removed", "umask", *(["read-only"] if _is_everybodys(Path(sys.base_prefix)) else [])]):
            case "removed":
                self.how["remove"] = True
                return "the working folder is removed"
            case "umask":
                self.how["umask"] = dice.choice([0, 0o777, 0o277])
                return f"umask {self.how['umask']:o}"
        self.how["user"] = 65534 if os.geteuid() == 0 else None
        return "a user that may write nowhere"

    def call(self, line: list[str], wrapper: Path, cwd: Path, stack: ExitStack) -> Called:
        """Run the command in these surroundings to its end."""
        streams = {name: self._open(kind, stack) for name, kind in self.streams.items()}
        process = Started(
            json.dumps(self.how),
            *line,
            script=wrapper,
            cwd=cwd,
            environment=self.environment,
            **streams,  # type: ignore[arg-type]
        )
        return ended(process, LIMIT_S)

    def _open(self, kind: str, stack: ExitStack) -> int:
        if kind == "pipe":
            reading, writing = os.pipe()
            os.close(reading)  # the reader is gone
            number = writing
        else:
            number = os.open(f"/dev/{kind}", os.O_RDWR)
        stack.callback(os.close, number)
        return number


def _is_everybodys(folder: Path) -> bool:
    """Whether another user may read the content of a folder."""
    return all(each.stat().st_mode & stat.S_IXOTH for each in (folder, *folder.parents))


def judge_here(done: Called, surroundings: Surroundings) -> None:
    """Check the end as for any command; errors are invisible if stderr is no file, and some limits end by a signal."""
    limits = surroundings.how.get("limits", {})
    hidden = (
        "stderr" in surroundings.streams
        or 2 in surroundings.how.get("close", [])
        or limits.get("RLIMIT_FSIZE", 999) < 999
    )
    if "RLIMIT_CPU" in limits and done.code in (-24, -9):
        return
    if surroundings.streams.get("stdout") == "pipe" and done.code == 1:
        return  # like other programs without a reader
    if surroundings.environment.keys() & {"FORCE_COLOR", "TTY_COMPATIBLE"}:
        done = replace(done, stderr=re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", done.stderr))
    if hidden:
        if done.code not in CODES:
            raise Lost(f"exit code {done.code} with stderr away", done.stdout[-500:])
        return
    judge(done)


if __name__ == "__main__":
    main("environments", __doc__, prepare)
