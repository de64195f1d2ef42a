"""Root calls of a server that knows nothing of ecoshare, recorded as requests.

From outside nothing shows when a request came. So the time of a call begins when the call wants the turn. A program
that uses `ecoshare.serve` has a record of its own requests instead.
"""

from __future__ import annotations

import threading
import time

from ecoshare.lane.service_turn import ServiceTurn
from ecoshare.serving.request_record import RequestRecorder


class RecordedCalls:
    """Turn of a service for its root calls, with a record of them. Any thread may use it."""

    def __init__(self, turn: ServiceTurn, target_s: float, path: str, opened_s: float) -> None:
        """No call so far.

        Args:
            turn: Turn of the service.
            target_s: Time (s) within which an answer is due.
            path: Path for the record.
            opened_s: Time (s) on the monotonic clock from which the times in the record count.
        """
        self._turn, self._target_s, self._path, self._opened_s = turn, target_s, path, opened_s
        self._recorder: RequestRecorder | None = None
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._began = threading.local()
        self._is_off = False

    def begin(self) -> None:
        """Wait for the turn."""
        self._began.at_s = time.monotonic()
        self._turn.begin(self._began.at_s + self._target_s)
        self._began.turn_s = time.monotonic()

    def end(self) -> None:
        """Give up the turn, and record the call."""
        self._turn.end()
        began_s, now_s = self._began.at_s, time.monotonic()
        with self._lock:
            if self._is_off:
                return
            recorder = self._recorder = self._recorder or RequestRecorder(self._path, self._opened_s)
            recorder.arrived(1)
            recorder.called(1)
            recorder.took(1, now_s - self._began.turn_s)
            recorder.answered(began_s, began_s + self._target_s, now_s)
            if recorder.left_s() <= 0.0:
                recorder.write()
            elif self._timer is None or not self._timer.is_alive():  # no thread outlives a fork
                # No call may come for long, and the displays would lack the last second until then.
                self._timer = threading.Timer(recorder.left_s(), self._write_in_time)
                self._timer.daemon = True
                self._timer.start()

    def _write_in_time(self) -> None:
        with self._lock:
            self._timer = None
            if self._recorder is not None and not self._is_off:
                self._recorder.write()

    def switch_off(self) -> None:
        """Record no more: the program records its requests itself. A call that is not written yet was a warm-up."""
        with self._lock:
            self._is_off, self._recorder = True, None

    def flush(self) -> None:
        """Write what is left."""
        with self._lock:
            if self._recorder is not None:
                self._recorder.write()
