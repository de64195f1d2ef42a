"""Draws report.html and trace.pftrace when a run is over.

The result of the run is already written. An error here only prints a line, and Ctrl-C ends only the drawing.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ecoshare.record.run_data import RunData, with_output, with_traces
from ecoshare.record.run_folder import RunFolder, write_bytes
from ecoshare.reporting import exports

_MOST_MARKS = 250_000
"""Most marks for which the trace is written without a request: it then takes four seconds and 20 MB."""


def draw(folder: RunFolder, data: RunData, tell: Callable[[str], None]) -> bool:
    """Write both files, and return whether the report exists. Errors are not raised but passed to `tell` as a line."""
    drawn = False
    try:
        with _stopped_by_interrupt():
            data = with_traces(data, folder)
            drawn = _write(folder.report, exports.html, with_output(data, folder), tell)
            if (marks := sum(map(len, data.traces.values()))) <= _MOST_MARKS:
                _write(folder.trace, exports.perfetto, data, tell)
            else:
                folder.trace.unlink(missing_ok=True)
                command = f"ecoshare export {data.summary.run} --format perfetto --output trace.pftrace"
                tell(f"{marks} marks are many for a trace; `{command}` writes it all the same")
    except KeyboardInterrupt:
        tell("drawing was interrupted; `ecoshare export` draws what is missing")
    except Exception as error:
        tell(f"nothing is drawn: {error!r}")
    return drawn


def _write(path: Path, content: Callable[[RunData], bytes], data: RunData, tell: Callable[[str], None]) -> bool:
    """Write a file. If that fails, remove the file of an earlier session, since it is out of date."""
    try:
        write_bytes(path, content(data))
    except BaseException as error:
        path.unlink(missing_ok=True)
        interrupted = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # C modules may raise ImportError instead
        if interrupted or not isinstance(error, Exception):
            raise KeyboardInterrupt from error
        tell(f"{path.name} is not drawn: {error!r}")
        return False
    return True


@contextmanager
def _stopped_by_interrupt() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # signals are handled in the main thread only
        yield
        return

    def stop(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one must not interrupt the clean-up
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
