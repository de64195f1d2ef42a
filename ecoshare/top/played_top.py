"""The view of a recorded run, which is played at any speed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Static

from ecoshare.base import documents
from ecoshare.errors import EcoshareError, UsageError
from ecoshare.jobs.quantities import format_duration
from ecoshare.lane.files import outputs
from ecoshare.top.jobs_table import JobsTable
from ecoshare.top.queue_watch import in_background
from ecoshare.top.recorded_run import RecordedRun
from ecoshare.top.top_app import TopApp

STEP_S = 10.0
"""Time (s) of the run by which the arrow keys go on or back."""

_FRAME_S = 0.25
_READ_AGAIN_S = 2.0
_REST = 10.0
"""The record of a run in progress is read again after at least so many times as long as it took the last time."""

_CHUNK_BYTES = 1 << 16
_MOST_OUTPUT_BYTES = 1 << 20
_SLOWEST, _FASTEST = 1 / 64, 65_536.0


class ReadAgain(Message):
    """The record was read again, or cannot be read any more."""

    def __init__(self, run: RecordedRun | None, error: str) -> None:
        super().__init__()
        self.run, self.error = run, error


class PlayedTop(TopApp, inherit_bindings=False):
    """Plays a recorded run. A run in progress goes on at the end of its record, as it is written."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pause", "pause"),
        Binding("left", "move(-1)", "move", priority=True, key_display="← →"),
        Binding("right", "move(1)", "on", show=False, priority=True),
        Binding("plus,equals_sign", "faster(2.0)", "speed", key_display="+ -"),
        Binding("minus", "faster(0.5)", "slower", show=False),
        Binding("home", "go_to_begin", "begin", show=False, priority=True),
        Binding("end", "go_to_end", "end", show=False, priority=True),
        *TopApp.BINDINGS,
    ]
    DRAWN = (*TopApp.DRAWN, "#progress")
    KEYS = (
        ("space", "pause, and go on"),
        ("left, right", f"{STEP_S:.0f} s of the run back, or on"),
        ("home, end", "the begin and the end of the record"),
        ("+, -", "twice and half the speed"),
        *TopApp.KEYS,
    )

    def __init__(self, run: RecordedRun, speed: float, from_s: float) -> None:
        """App for a run.

        Args:
            run: Record of the run.
            speed: Seconds of the run in one second.
            from_s: Time (s) of the run to begin at.
        """
        super().__init__(self._recorded_output)
        self._run, self._speed = run, speed
        self._at_s = min(from_s, run.end_s)
        self._drawn_s = time.monotonic()
        self.is_paused = False
        self._reading = False
        self._read_s = time.monotonic()
        self._took_s = 0.0
        self.view = run.at(self._at_s)

    @property
    def at_s(self) -> float:
        """Time (s) of the run that is shown."""
        return self._at_s

    @property
    def speed(self) -> float:
        """Seconds of the run in one second."""
        return self._speed

    def compose(self) -> ComposeResult:
        """Widgets of the main screen, with a line for the progress."""
        for widget in super().compose():
            yield widget
            if isinstance(widget, JobsTable):
                yield Static(id="progress", markup=False)

    def on_mount(self) -> None:
        """Begin to play."""
        self._drawn_s = time.monotonic()
        self.set_interval(_FRAME_S, self._play)

    def _play(self) -> None:
        """Go on by the time since the last frame."""
        now_s = time.monotonic()
        passed_s, self._drawn_s = now_s - self._drawn_s, now_s
        if not self.is_paused and self._at_s < self._run.end_s:
            self.go_to(self._at_s + passed_s * self._speed)
        if self._run.goes_on and self._at_s >= self._run.end_s:
            self._read_again(now_s)

    def go_to(self, at_s: float) -> None:
        """Show the run at this time (s), or at the nearest that it has."""
        self._at_s = min(max(0.0, at_s), self._run.end_s)
        self.view = self._run.at(self._at_s)
        self.draw()

    def draw(self) -> None:
        """Draw the view and the progress."""
        super().draw()
        if self.size.width and not self._is_closed:
            self._static("progress").update(self._progress(self.size.width - 2))

    def _progress(self, width: int) -> Text:
        """A bar with the time: `▶ 1 min 20 s of 10 min  x20  ━━━━━━────────`."""
        end_s = self._run.end_s
        is_over = self._at_s >= end_s
        mark = "❚❚" if self.is_paused else "■ " if is_over and not self._run.goes_on else "▶ "
        times = f"{format_duration(round(self._at_s, 1))} of {format_duration(round(end_s, 1))}"
        ends = " so far" if self._run.goes_on else ""
        words = Text.assemble((f"{mark} ", "bold"), f"{times}{ends}   x{self._speed:g}   ")
        room = width - words.cell_len
        if room >= 10:
            done = round(room * (self._at_s / end_s if end_s > 0.0 else 1.0))
            words.append("━" * done, style="green").append("─" * (room - done), style="bright_black")
        words.truncate(width)
        return words

    def action_pause(self) -> None:
        """Stop the time, or let it go on."""
        self.is_paused = not self.is_paused
        self.draw()

    def action_move(self, steps: int) -> None:
        """Go on or back."""
        self.go_to(self._at_s + steps * STEP_S)

    def action_faster(self, factor: float) -> None:
        """Play at another speed."""
        self._speed = min(max(_SLOWEST, self._speed * factor), _FASTEST)
        self.draw()

    def action_go_to_begin(self) -> None:
        """Show the begin of the run."""
        self.go_to(0.0)

    def action_go_to_end(self) -> None:
        """Show the end of the record."""
        self.go_to(self._run.end_s)

    def _read_again(self, now_s: float) -> None:
        """Read what a run in progress has written meanwhile, in a thread."""
        if self._reading or now_s - self._read_s < max(_READ_AGAIN_S, _REST * self._took_s):
            return
        self._reading, self._read_s = True, now_s

        def run() -> None:
            run, error = None, ""
            try:
                run = RecordedRun(self._run.folder)
            except EcoshareError as problem:
                error = str(problem)
            with suppress(RuntimeError):  # the app has ended meanwhile
                self.post_message(ReadAgain(run, error))

        in_background(run)

    def on_read_again(self, message: ReadAgain) -> None:
        """Go on with what the run has written."""
        self._reading = False
        self._took_s = time.monotonic() - self._read_s
        self.trouble = message.error
        if message.run is not None:
            self._run = message.run
            if not self.is_paused:  # the record is shown at its end, as a live view would
                self._at_s = self._run.end_s
        self.go_to(self._at_s)

    def _recorded_output(self, name: str, errors: bool) -> Iterator[bytes]:
        """Output of the last attempt of a job or trial, to its present end."""
        path = outputs(self._run.folder.job(name))[errors]
        try:
            with documents.open_regular(path) as file:
                end = file.seek(0, 2)
                file.seek(max(0, end - _MOST_OUTPUT_BYTES))
                while chunk := file.read(_CHUNK_BYTES):
                    yield chunk
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror or error}") from error
