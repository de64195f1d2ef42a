"""Checks of a command that meets something hostile: a documented exit code, and one clear error."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import resource
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import typer

from ecoshare.errors import EcoshareError, InvalidJobFile, UnfitEnvironment
from ecoshare.runtime.nodes import cleanup
from scripts.fuzz.rounds import ROOT, Lost
from tests.warm import Started, wait_for

CODES = frozenset({0, 1, 2, 3, 4, 5, 6, 130})
"""Exit codes of docs/commands.md."""

_PLACE = re.compile(r"[^:]+:\d+:\d+: ")
_RAISED = re.compile(r"^(\w[\w.]*(?:Error|Exception|Exit|Interrupt|Warning|Expired|StopIteration)\w*)(?::|$)", re.M)
_TRACEBACK = re.compile(r"^\s*(?:Traceback \(most recent|Exception ignored in|Fatal Python error)", re.M)
_FRAME = re.compile(r'File "([^"]+)", line \d+, in (\S+)')
_SHOWN = 2_000


@dataclass(frozen=True)
class Called:
    """Finished command.

    Attributes:
        code: Exit code, negative for a signal.
    """

    words: str
    code: int
    stdout: str
    stderr: str


def called(words: str, function: Callable[[], Any]) -> Called:
    """Run a command in this process: errors give words and exit codes as in `ecoshare.cli.entry`; defects raise."""
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            function()
        except EcoshareError as error:
            prefix = "" if isinstance(error, InvalidJobFile) else "error: "
            for line in str(error).splitlines():
                err.write(f"{prefix}{line}\n")
            if error.hint:
                err.write(f"hint: {error.hint}\n")
            code = error.exit_code
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            err.write(f"error: {place}{error.strerror or error}\n")
            code = UnfitEnvironment.exit_code
        except typer.Exit as end:
            code = end.exit_code
    return Called(words, code, out.getvalue(), err.getvalue())


def started(
    *words: str | os.PathLike[str],
    limit_s: float = 60.0,
    memory_bytes: int = 12 << 30,
    **how: Any,
) -> Called:
    """Run a real command to its end.

    Args:
        memory_bytes: Limit on its address space.
        how: Options of `Started`.

    Raises:
        Lost: The command does not end within the limit.
    """
    process = Started(*words, **how)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        resource.prlimit(process.pid, resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    return ended(process, limit_s)


def ended(process: Started, limit_s: float = 60.0) -> Called:
    """A command that was started, when it is over.

    Raises:
        Lost: The command does not end within the limit.
    """
    words = " ".join(process.words)
    try:
        code = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10.0)
        raise Lost("hangs", f"`{words}` was not over within {limit_s} s\n{process.stderr[-_SHOWN:]}") from None
    stderr = os.pread(process._err, 1 << 20, 0).decode(errors="replace")
    return Called(words, code, process.written.decode(errors="replace"), stderr)


@contextlib.contextmanager
def queue_up(state: Mapping[str, str], *options: str) -> Iterator[Started]:
    """Context manager: a queue on the processors that answers, or has ended. At the end its process is gone.

    Args:
        state: Environment of its commands.
        options: Other options of `ecoshare up`.
    """
    words = ("up", "--device", "cpu", "--no-profiles", *options)
    process = Started(*words, environment=state, new_session=True)
    try:
        wait_for(lambda: process.poll() is not None or started("status", environment=state).code == 0, 60.0)
        yield process
    finally:
        if process.poll() is None:
            process.kill()


def judge(done: Called, named: Collection[str] = (), codes: Collection[int] = CODES) -> None:
    """Check the end of a command.

    Args:
        named: If the command failed, one of these must be in its error.

    Raises:
        Lost: The end is not a documented one.
    """

    def lose(finding: str) -> NoReturn:
        raise Lost(finding, f"`{done.words}` left with {done.code}\n{done.stderr[-_SHOWN:]}")

    if _TRACEBACK.search(done.stderr):
        lose(raised(done.stderr))
    if done.code not in codes:
        lose(f"exit code {done.code}")
    lines = done.stderr.splitlines()
    if not all(line.isprintable() for line in lines):
        lose("control characters in the error")
    if done.code in (0, 130) or done.code < 0:
        return
    places = [line for line in lines if _PLACE.match(line)]
    errors = [line for line in lines if line.startswith("error: ")]
    usage = done.code == 2 and any("Usage" in line for line in lines)  # Typer's own words
    if done.code == InvalidJobFile.exit_code and not places:
        lose("exit code 3 without file, line and column")
    if not places and not errors and not usage:
        lose(f"exit code {done.code} without an error in words")
    if len(errors) > 1:
        lose(f"{len(errors) if len(errors) < 4 else 'many'} lines of error: {_general(errors[0])}")
    said = "\n".join([*places, *errors])
    if len(said) > 20_000:
        lose("an error of more than 20,000 characters")
    if named and not any(name in said for name in named):
        lose(f"the error does not name the file: {_general(said)}")


def is_json(done: Called) -> None:
    """Check that what a command printed is JSON, as other programs read it.

    Raises:
        Lost: The output is no JSON.
    """

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is no JSON")

    try:
        json.loads(done.stdout, parse_constant=refuse)
    except ValueError as error:
        words = re.sub(r"\d+", "N", str(error))
        raise Lost(f"stdout of `{done.words.split()[0]}` is no JSON: {words}", done.stdout[:300]) from None


def raised(stderr: str) -> str:
    """A traceback in short: the type of the exception, and the last place in ecoshare."""
    own = [(file, name) for file, name in _FRAME.findall(stderr) if f"{ROOT}/ecoshare/" in file]
    place = f"{own[-1][0].removeprefix(f'{ROOT}/')}:{own[-1][1]}" if own else "elsewhere"
    found = _RAISED.findall(stderr)
    return f"traceback: {found[-1].rpartition('.')[2] if found else 'exception'} in {place}"


def _general(line: str) -> str:
    """An error without what differs from round to round."""
    line = re.sub(r"validation errors? for .*", "validation error", re.sub(r"/\S*/", "…/", line))
    return re.sub(r"\d+", "N", line)[:120]


def nothing_left(token: str, within_s: float = 15.0) -> None:
    """Wait until no process and no folder in memory of the run with this token is there.

    Raises:
        Lost: A process or folder stays.
    """
    until_s = time.monotonic() + within_s
    while (members := cleanup.members(token)) or cleanup.shared_path(token).exists():
        if time.monotonic() > until_s:
            left = [_described(pid) for pid in members]
            cleanup.end_all(token)
            what = "a process stays" if left else "a folder in memory stays"
            raise Lost(what, "\n".join(left) or str(cleanup.shared_path(token)))
        time.sleep(0.02)


def _described(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        state = re.search(r"State:.*", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return f"{pid}: gone by now"
    return f"{pid}: {words[:200]} {state[0] if state else ''}"


def token_of(run: Path) -> str:
    """The token that marks the processes of a run."""
    return str(json.loads((run / "environment.json").read_text())["token"])


def environment(**own: str) -> Mapping[str, str]:
    """The environment of this process with changes."""
    return {**os.environ, **own}
