"""Reasons of failures: what ended the script, in one line, whatever was printed before and after."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ecoshare.lane.exit_records import last_words, reason_of
from ecoshare.lane.files import outputs

BAR = "\repoch 0:   0%|          | 0/200 [00:00<?, ?it/s]\repoch 0:  42%|████▎     | 84/200 [00:00<00:00, 833.25it/s]"
"""Progress bar of tqdm. The line is not over."""

TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    main()\n'

TORCHRUN = """E1128 13:30:35.821000 12 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1)
"""

CHILD_FAILED = """
============================================================
acc.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-28_13:30:35
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 12494)  (SIGTERM)
  traceback : Signal 15 (SIGTERM) received by PID 12494
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-28_13:30:35
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 12493)
  error_file: <N/A>
  traceback : {traceback}
============================================================"""
NO_TRACEBACK = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"


class ChildFailedError(Exception):
    """Exception of torchrun."""


class Silent(Exception):
    """Exception of which the message cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError


def logs(folder: Path, errors: str = "", output: str = "") -> Path:
    """Folder of a job that has printed these. The output was written last."""
    for path, text, at_s in zip(outputs(folder), (output, errors), (2.0, 1.0), strict=True):
        path.write_text(text)
        os.utime(path, (at_s, at_s))
    return folder


def raised(act: Callable[[], object]) -> BaseException:
    """Exception that `act` raises."""
    try:
        act()
    except BaseException as error:
        return error
    raise AssertionError("it raises nothing")


def chained() -> None:
    try:
        raise KeyError("epoch")
    except KeyError as error:
        raise FileNotFoundError("checkpoints/last.pt") from error


def fails(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def gives_up_with(error: Exception, code: int) -> Callable[[], None]:
    """Act of many scripts: they catch everything, and exit with a number."""

    def act() -> None:
        try:
            raise error
        except Exception:
            sys.exit(code)

    return act


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (fails(ValueError("first line\nsecond line")), "ValueError: first line"),
        (fails(RuntimeError("\n    An attempt has been made\n    to start")), "RuntimeError: An attempt has been made"),
        (
            fails(subprocess.TimeoutExpired("nvcc", 3)),
            "subprocess.TimeoutExpired: Command 'nvcc' timed out after 3 sec",
        ),
        (fails(UnicodeError("\x1b[31mred\x1b[0m\tand \x07 a bell")), "UnicodeError: red and   a bell"),
        (lambda: compile("def f(:", "train.py", "exec"), "SyntaxError: invalid syntax (train.py, line 1)"),
        (chained, "FileNotFoundError: checkpoints/last.pt"),
        (
            fails(ExceptionGroup("workers", [OSError("full")])),
            "ExceptionGroup: workers (1 sub-exception): OSError: full",
        ),
        (fails(AssertionError()), "AssertionError at test_exit_records.py:"),
        (fails(Silent()), f"{__name__}.Silent at test_exit_records.py:"),
        (fails(ValueError("x" * 999)), f"ValueError: {'x' * 287}…"),
        (
            fails(OSError("Caught OSError in worker 0.\nOriginal " + TRACEBACK + "OSError: image 7\n")),
            "OSError: image 7",
        ),
        (lambda: sys.exit("no data in data/train\nbye"), "no data in data/train"),
        (lambda: sys.exit(3), "exit code 3: diverged"),
        (lambda: sys.exit(10**30), "exit code 255: diverged"),
        (gives_up_with(OSError(28, "No space left"), 2), "exit code 2: diverged (OSError: [Errno 28] No space left)"),
        (gives_up_with(ValueError("diverged"), 2), "exit code 2: diverged"),
        (gives_up_with(StopIteration(), 2), "exit code 2: diverged"),
    ],
)
def test_the_reason_is_what_ended_the_script(act: Callable[[], None], reason: str, tmp_path: Path) -> None:
    told = reason_of(raised(act), logs(tmp_path, "an older line\n", "diverged\n"))
    assert told.startswith(reason) and len(told) <= 300


def test_a_script_that_ends_well_has_no_reason(tmp_path: Path) -> None:
    for code in (None, 0, False):
        assert reason_of(SystemExit(code), logs(tmp_path, "warning\n")) == ""


@pytest.mark.parametrize(
    ("errors", "output", "words"),
    [
        (BAR, "loss is nan, stopping\n", "loss is nan, stopping"),
        (f"{BAR}\n", "", ""),
        (f"{BAR}bad batch\n", "", "bad batch"),
        (f"{BAR}\r{' ' * 60}\rbad batch\n{BAR}", "", "bad batch"),  # `tqdm.write` prints so
        ("\rDownloading 10%\rDownloading 100%\n", "", ""),
        ("\x1b[32m━━━━━━━━\x1b[0m 84/200 0:00:12\n", "", ""),
        ("x.py:3: UserWarning: old thing\n  warnings.warn('old thing')\n", "", ""),
        ("E: no config\n=======\n\n", "", "E: no config"),
        (f"{TRACEBACK}hydra.errors.MissingConfig: no such file\n\nSet the environment variable\n", "epoch 1\n",
         "hydra.errors.MissingConfig: no such file"),
        (f"{BAR}{TRACEBACK}ValueError: nan at 50\n{BAR}\n", "", "ValueError: nan at 50"),
        (f"{TRACEBACK}ValueError: handled\n" + "epoch\n" * 20, "diverged\n", "diverged"),
        (f"{TRACEBACK}KeyError: 1\n\nDuring handling of the above:\n\n{TRACEBACK}OSError: 2\n", "", "OSError: 2"),
        ("╭─── Traceback (most recent call last) ───╮\n│ main() │\n╰────╯\nLookupError: boxed\n", "",
         "LookupError: boxed"),
        (f"{TRACEBACK}RuntimeError: \n    on two lines\n", "", "RuntimeError: on two lines"),
        ("terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error\nframe #0: f\n", "",
         "c10::Error: CUDA error"),
        ("Fatal Python error: Segmentation fault\n\nThread 0x1:\n  File \"x.py\", line 3\n", "",
         "Fatal Python error: Segmentation fault"),
    ],
)  # fmt: skip
def test_a_log_tells_what_says_more_than_a_progress_bar(errors: str, output: str, words: str, tmp_path: Path) -> None:
    assert last_words(logs(tmp_path, errors, output)) == words


def test_errors_that_were_written_last_say_more_than_the_output(tmp_path: Path) -> None:
    folder = logs(tmp_path, "config.yaml: no key lr\n", "epoch 3\n")
    os.utime(outputs(folder)[1], (3.0, 3.0))
    assert last_words(folder) == "config.yaml: no key lr"
    assert last_words(logs(tmp_path, "", "epoch 3\n"), killed=True) == "", "an epoch is no reason for a signal"


def marked(mark: str, text: str) -> str:
    """Text with a mark before each line, as `init_process_group` lets a rank print its traceback."""
    return "".join(f"{mark}{line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("error", "errors", "reason"),
    [
        (subprocess.CalledProcessError(1, ["python", "acc.py"]), f"{TRACEBACK}RuntimeError: 1x5 and 4x1\n",
         "RuntimeError: 1x5 and 4x1"),
        (subprocess.CalledProcessError(1, ["python"], "", f"{TRACEBACK}OSError: kept\n".encode()), "", "OSError: kept"),
        (subprocess.CalledProcessError(2, "tar"), "tar: x: Cannot open\n",
         "CalledProcessError: Command 'tar' returned non-zero exit status 2. (tar: x: Cannot open)"),
        (ChildFailedError(CHILD_FAILED.format(code=1, traceback=NO_TRACEBACK)),
         f"{TRACEBACK}RuntimeError: 1x5 and 4x1\n{TORCHRUN}", "RuntimeError: 1x5 and 4x1"),
        (ChildFailedError(CHILD_FAILED.format(code=1, traceback=NO_TRACEBACK)),
         marked("[rank1]: ", f"{TRACEBACK}ValueError: no data")
         + marked("[rank0]: ", f"{TRACEBACK}RuntimeError: Connection closed by peer"), "ValueError: no data"),
        (ChildFailedError(CHILD_FAILED.format(code=1, traceback=marked("  ", f"{TRACEBACK}OSError: recorded").strip())),
         "", "OSError: recorded"),
        (ChildFailedError(CHILD_FAILED.format(code=7, traceback=NO_TRACEBACK)), f"no data\n{TORCHRUN}",
         "ChildFailedError: acc.py FAILED: exit code 7 (no data)"),
        (ChildFailedError(CHILD_FAILED.format(code=-9, traceback="Signal 9 (SIGKILL) received by PID 12493")), "",
         "ChildFailedError: acc.py FAILED: Signal 9 (SIGKILL) received by PID 12493"),
    ],
)  # fmt: skip
def test_an_exception_that_tells_of_a_child_gives_that_of_the_child(
    error: BaseException, errors: str, reason: str, tmp_path: Path
) -> None:
    assert reason_of(error, logs(tmp_path, errors)) == reason


def test_a_script_that_replaces_its_logs_does_not_hold_up_its_supervisor(tmp_path: Path) -> None:
    """If it failed, one job could let the supervisor of all jobs wait for ever, or fill its memory."""
    output, errors = outputs(tmp_path)
    os.mkfifo(errors)
    output.symlink_to("/dev/zero")
    assert last_words(tmp_path) == ""
    errors.unlink()
    errors.write_bytes(b"\0" * (1 << 20) + b"\nno data\n")
    with contextlib.suppress(OSError):
        os.truncate(errors, 1 << 40)  # a hole: as large as a file can be
    assert last_words(tmp_path) in ("no data", "")
