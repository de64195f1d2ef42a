"""How an attempt of a job has ended: its record, and the reason in one line.

Records outlive processes, not the machine: to wait until a record is on the disk would take milliseconds. After a power
cut the controller's log counts, which is on the disk before an end is acted on. An end that is in neither was never
acted on, so the job runs again.

The reason is told in the process of the job, when its script is over (`reason_of`): functions of `atexit` and
finalisers still print. The supervisor has it from the job's slot. A process that is killed tells nothing, so the
supervisor reads what was printed (`last_words`):

    the script raises                            the type of the exception, and the first line of its message
    sys.exit("no data")                          the text
    an exception that tells of a child process   the exception of the child, as the child has printed it
    sys.exit(3), os._exit(3), a signal           a traceback that ends the output, or else its last line that says more
                                                 than a progress bar
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ecoshare.base.disk import atomic_write
from ecoshare.base.documents import open_own
from ecoshare.errors import exit_code
from ecoshare.lane.files import make_folder, outputs
from ecoshare.lane.messages import Ended, fields_of

_MOST = 300
"""Most characters of a reason."""

_TAIL_BYTES = 1 << 16
"""Part of a log, from its end, that is searched for a reason."""

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
"""Control sequence of a terminal (ECMA-48, CSI), mostly colour."""

_BAR = re.compile(r".*\[\d+:\d\d(?:<[\d:?]+)?, [^\][]*\]|.*[█▉▊▋▌▍▎▏━╸╺]{3}.*")
"""Progress bar: of tqdm, which ends with `[00:12<00:30, 5.1it/s]`, or one that is drawn with blocks."""

_WARNING = re.compile(r"\S.*:\d+: \w*Warning: ")
"""First line of a warning of Python. The second is the line of the program, indented."""

_BEGIN = "Traceback (most recent call last)"
_TRACEBACK = re.compile(rf"((?:\[\w+\]: ?)*[ |]*).*{re.escape(_BEGIN)}")
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:\([\w.]+\))?(?:: |:?$)")
"""First line of a traceback, and beginning of the line that tells the exception. A mark before both is the rank that
prints them, or the indentation in a group of exceptions."""

_ABORT = re.compile(r"terminate called after throwing an instance of '(.+)'|Fatal Python error: .*")
_ABORT_SAID = re.compile(r"\s*what\(\): +(.*)")
"""Lines that the C++ library and Python's `faulthandler` print before the process aborts."""

_MOST_AFTER = 16
"""Most lines after a traceback that ends the output: those of a long message, and Hydra's hint."""

_OF_A_CHILD = frozenset({"CalledProcessError", "ChildFailedError"})
"""Exceptions of `subprocess` and of torchrun, which say no more than that a process has failed."""

_OF_TORCHRUN = re.compile(r"Setting OMP_NUM_THREADS|.*\btorch/distributed/(elastic/|run\.py)")
"""Line that torchrun itself prints."""

_ROOT_CAUSE = re.compile(
    r"Root Cause.*?\brank +: (\d+).*?\bexitcode +: (-?\d+).*?\btraceback +: (Signal [^\n]*)?", re.DOTALL
)
"""Rank that failed first in the message of a `ChildFailedError`, with its exit code and the signal that ended it."""


def exit_path(folder: Path, attempt: int) -> Path:
    """Path of the record of an attempt, in the folder of its job."""
    return folder / f"exit-{attempt}.json"


def exit_paths(folder: Path) -> list[Path]:
    """Paths of all records in the folder of a job, in no order."""
    return list(folder.glob("exit-*.json"))


def write(folder: Path, ended: Ended) -> None:
    """Write the record of an attempt beside its logs, atomically.

    Raises:
        OSError: If there is no room or no permission.
    """
    make_folder(folder)  # made again if the job has removed it
    atomic_write(exit_path(folder, ended.attempt), json.dumps(fields_of(ended)))


def reason_of(error: BaseException, folder: Path) -> str:
    """Reason for the end of a script, in one line; empty if it has ended well.

    Call this before the traceback of `error` is printed: child processes have printed theirs above it.

    Args:
        error: Exception that ended the script.
        folder: Folder of the job, with its logs.
    """
    if not isinstance(error, SystemExit):
        return one_line(_told_by(error, folder))
    if not isinstance(error.code, int):
        return one_line(_first_line(_message(error.code))) if error.code is not None else ""
    if not error.code:
        return ""
    said, cause = last_words(folder), error.__cause__ or error.__context__
    if isinstance(cause, Exception) and (message := _first_line(_message(cause))) and message not in said:
        told = _told_by(cause, folder)
        said = f"{said} ({told})" if said else told
    return one_line(f"exit code {exit_code(error.code)}" + (f": {said}" if said else ""))


def last_words(folder: Path, killed: bool = False) -> str:
    """Words in the logs of a job that tell of its end, in one line; empty if there are none.

    Args:
        folder: Folder of the job.
        killed: Whether a signal has ended the process. Then stdout tells no reason, and stderr may.
    """
    output, errors = outputs(folder)
    lines, errors_s = _tail(errors)
    told, place = _last_exception(lines)
    if told and sum(1 for _ in _meaningful(lines[place + 1 :])) <= _MOST_AFTER:
        return one_line(told)
    said, place = next(_meaningful(lines), ("", -1))
    if not killed:
        printed, printed_s = _tail(output)
        is_last = bool(said) and not any(line.strip() for line in lines[place + 1 :])
        if not (is_last and errors_s >= printed_s):  # a progress bar may have come after a warning of long ago
            said = next(_meaningful(printed), (said, -1))[0]
    return one_line(said)


def last_line(path: Path) -> str:
    """Last line of a file that says something, made printable; empty if there is none."""
    lines, _ = _tail(path)
    return one_line(_last_exception(lines)[0] or next(_meaningful(lines), ("", -1))[0])


def one_line(text: str) -> str:
    """Text as one line of printable characters, cut to the length of a reason."""
    text = "".join(each if each.isprintable() else " " for each in _ESCAPE.sub("", text)).strip()
    return text if len(text) <= _MOST else f"{text[: _MOST - 1]}…"


def _told_by(error: BaseException, folder: Path) -> str:
    """Type and first line of an exception; those of the child process that it tells of, if there is one."""
    text, kind = _message(error), type(error)
    if found := _last_exception(text.splitlines())[0]:  # from a worker of a `DataLoader`, or of torch.multiprocessing
        return found
    if kind.__name__ in _OF_A_CHILD:
        return _told_by_child(error, text, folder)
    own = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
    name, first = own + kind.__qualname__, _first_line(text)
    if isinstance(error, BaseExceptionGroup):
        first += f": {_told_by(error.exceptions[0], folder)}"
    return f"{name}: {first}" if first else name + _where(error)


def _told_by_child(error: BaseException, text: str, folder: Path) -> str:
    """Exception that a child process has printed, or else how it has ended, with the last line that it has printed.

    Args:
        error: Exception that tells of the child.
        text: Message of that exception.
        folder: Folder of the job.
    """
    kept = [getattr(error, name, None) for name in ("stderr", "output")]  # `capture_output` of `subprocess`
    texts = [each.decode(errors="replace") if isinstance(each, bytes) else each for each in kept]
    logs = [_lines(each) for each in texts if isinstance(each, str)]
    logs = logs or [_tail(path)[0] for path in reversed(outputs(folder))]
    root = _ROOT_CAUSE.search(text)
    of_rank = [line for line in logs[0] if root is not None and line.startswith(f"[rank{root[1]}]")]
    for lines in (of_rank, *logs):
        if found := _last_exception(lines)[0]:
            return found
    how = f"{type(error).__name__}: {_first_line(text)}"
    if root is not None and root[3]:
        return f"{how}: {root[3]}"
    said = next((line for line, _ in _meaningful(logs[0]) if not _OF_TORCHRUN.match(line)), "")
    return how + (f": exit code {root[2]}" if root is not None else "") + (f" ({said})" if said else "")


def _message(value: Any) -> str:
    """Text of an exception or of an object that a script exits with; empty if it has none that can be had."""
    try:
        return str(value)
    except Exception:
        return ""


def _first_line(text: str) -> str:
    """First line with a letter or a digit; empty if there is none."""
    return next((line.strip() for line in text.splitlines() if any(map(str.isalnum, line))), "")


def _where(error: BaseException) -> str:
    """Place at which an exception was raised: it says more than the type alone."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f" at {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace is not None else ""


def _last_exception(lines: Sequence[str]) -> tuple[str, int]:
    """Exception of the last traceback, or cause of the last abort, with the place of its line.

    The text is empty if there is none.
    """
    for place in reversed(range(len(lines))):
        if (abort := _ABORT.search(lines[place])) is not None:
            said = _ABORT_SAID.match(lines[place + 1]) if place + 1 < len(lines) else None
            return (abort[1] or abort[0]) + (f": {said[1]}" if said is not None else ""), len(lines)
        if _BEGIN not in lines[place] or (begin := _TRACEBACK.match(lines[place])) is None:
            continue
        for end in range(place + 1, len(lines)):
            line = lines[end].removeprefix(begin[1])
            if not lines[end].startswith(begin[1]) or not _EXCEPTION.match(line):
                continue
            if line.rstrip().endswith(":"):  # the message begins with a line break
                line = f"{line.rstrip()} {_first_line(chr(10).join(lines[end + 1 :]))}"
            return line.strip(), end
    return "", -1


def _meaningful(lines: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Lines that say something, each with its place, the last first: no progress bars, and no warnings of Python."""
    for place in reversed(range(len(lines))):
        bar = _BAR.match(lines[place])
        line = lines[place][bar.end() :] if bar is not None else lines[place]
        warns = _WARNING.match(lines[place - 1 if line[:1].isspace() and place else place])
        if any(map(str.isalnum, line)) and warns is None:
            yield line.strip(" │┃"), place


def _tail(path: Path) -> tuple[list[str], float]:
    """Last lines of a file, and the time (s) of the last write to it; none if it is no regular file."""
    try:
        with open_own(path) as file:
            facts = os.fstat(file.fileno())
            data = os.pread(file.fileno(), _TAIL_BYTES, max(0, facts.st_size - _TAIL_BYTES))
    except OSError:
        return [], 0.0
    return _lines(data.decode(errors="replace")), facts.st_mtime


def _lines(text: str) -> list[str]:
    """Lines as a terminal shows them, without colours. A line that was written over itself has its last state."""
    return [_shown(re.split(r"[\r\b]+", line)) for line in _ESCAPE.sub("", text).split("\n")]


def _shown(states: Sequence[str]) -> str:
    """Last state of a line; empty if only its numbers have changed, as those of a progress bar do."""
    states = [each for each in states if each.strip()]
    if len(states) > 1 and re.sub(r"[\d.:]+", "", states[-1]) == re.sub(r"[\d.:]+", "", states[-2]):
        return ""
    return states[-1] if states else ""
