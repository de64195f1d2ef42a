"""A question before a job is cancelled."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, RichLog, Static

from ecoshare.base.printable import OutputLines
from ecoshare.errors import EcoshareError
from ecoshare.reporting.figures import broken, printable
from ecoshare.top.queue_watch import in_background


class CancelQuestion(ModalScreen[str]):
    """Asks whether to cancel a job. The answer is `boundary`, `now`, or empty for no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer('boundary')", "yes"),
        Binding("k", "answer('now')", "kill it"),
        Binding("n,escape,q,enter", "answer('')", "no"),
        Binding("ctrl+c,ctrl+q", "app.quit", "quit", show=False, priority=True),
    ]

    def __init__(self, job: str) -> None:
        """Question about a job or sweep of this name."""
        super().__init__()
        self._job = job

    def compose(self) -> ComposeResult:
        """Widgets of the screen."""
        with Vertical(id="question"):
            yield Static(Text.assemble("cancel ", (printable(self._job), "bold"), "?"), markup=False)
            for key, words in (("y", "yes, at its next boundary"), ("k", "yes, kill it at once"), ("n", "no")):
                yield Static(Text.assemble("  ", (key, "bold"), f"  {words}"), markup=False)

    def action_answer(self, how: str) -> None:
        """Close with this answer."""
        self.dismiss(how)


_LOOK_S = 0.1


class TextScreen(ModalScreen[None]):
    """Text that may take some time to make."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "back", key_display="q"),
        Binding("ctrl+c,ctrl+q", "app.quit", "quit", show=False, priority=True),
        Binding("down", "scroll(1)", "down", show=False),
        Binding("up", "scroll(-1)", "up", show=False),
    ]

    def __init__(self, title: str, make: Callable[[], list[str]]) -> None:
        """Screen that is empty at first.

        Args:
            title: First line.
            make: Returns the lines; called in a thread. It may raise `EcoshareError`.
        """
        super().__init__()
        self._title, self._make = title, make
        self._lines: list[str] | None = None

    def compose(self) -> ComposeResult:
        """Widgets of the screen."""
        yield Static(Text(printable(self._title), style="bold"), classes="title", markup=False)
        with VerticalScroll(classes="reading"):
            yield Static(Text("one moment: the log is read ..."), id="text", markup=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to make the text."""
        in_background(self._run)
        self.set_interval(_LOOK_S, self._draw)
        self.query_one(VerticalScroll).focus()

    def on_resize(self) -> None:
        """Break the lines anew."""
        self._shown_for = 0
        self._draw()

    _shown_for = 0
    """Width for which the text was drawn last."""

    def _run(self) -> None:
        try:
            self._lines = self._make()
        except EcoshareError as error:
            self._lines = [str(error), *([f"hint: {error.hint}"] if error.hint else [])]
        except Exception as error:  # a damaged record may lead to any error, and the view goes on
            self._lines = [f"this cannot be explained: {type(error).__name__}: {error}"]

    def _draw(self) -> None:
        width = self.size.width - 4
        if self._lines is None or width < 1 or self._shown_for == width:
            return
        self._shown_for = width
        whole = Text()
        for line in self._lines:
            indent = len(line) - len(line.lstrip(" "))
            for part in broken(Text(line[:indent] + printable(line[indent:])), width):
                whole.append_text(part).append("\n")
        self.query_one("#text", Static).update(whole)

    def action_scroll(self, lines: int) -> None:
        """Scroll by some lines."""
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)


KEPT = 2_000
"""Number of last lines that are kept."""


class OutputFollower:
    """The last lines of an output that may go on.

    A thread that waits for output of a silent job cannot be ended. `pause` therefore lets it end with the next output,
    and `begin` takes it up again if it still waits.
    """

    def __init__(self, source: Callable[[], Iterator[bytes]]) -> None:
        """Follower that has not begun.

        Args:
            source: Returns the bytes of the output as they come; raises `EcoshareError`.
        """
        self._source = source
        self._lock = threading.Lock()
        self._lines: deque[str] = deque(maxlen=KEPT)
        self._count = 0
        self._unfinished = ""
        self._is_wanted = self._is_alive = self._is_over = False
        self._error = ""

    def begin(self) -> None:
        """Follow the output, from its last lines on if it is not followed yet."""
        with self._lock:
            self._is_wanted = True
            if self._is_alive:
                return
            self._is_alive, self._is_over, self._error = True, False, ""
            self._lines.clear()
            self._count, self._unfinished = 0, ""
        in_background(self._run)

    def pause(self) -> None:
        """Do not follow the output any more."""
        with self._lock:
            self._is_wanted = False

    def since(self, count: int) -> tuple[list[str], int]:
        """Lines after so many of all lines, as far as they are kept, and the number of all lines now."""
        with self._lock:
            new = self._count - count
            return ([] if new <= 0 else list(self._lines)[-new:]), self._count

    @property
    def unfinished(self) -> str:
        """Last line, if it has no end yet."""
        with self._lock:
            return self._unfinished

    @property
    def state(self) -> str:
        """Words about the end of the output; empty while it is followed."""
        with self._lock:
            return self._error or ("the end" if self._is_over else "")

    def _run(self) -> None:
        lines, error = OutputLines(), ""
        try:
            for chunk in self._source():
                found = lines.take(chunk)
                with self._lock:
                    self._lines.extend(found)
                    self._count += len(found)
                    self._unfinished = lines.unfinished
                    if not self._is_wanted:
                        self._is_alive = False
                        return
        except EcoshareError as problem:
            error = str(problem)
        except Exception as problem:  # said in the view, which would wait for ever otherwise
            error = f"{type(problem).__name__}: {problem}"
        with self._lock:
            self._is_alive, self._is_over, self._error = False, True, error


_EVERY_S = 0.2


class OutputScreen(ModalScreen[None]):
    """Last lines of the output or the errors of a job. It stays at the end unless it is scrolled back."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "back", key_display="q"),
        Binding("ctrl+c,ctrl+q", "app.quit", "quit", show=False, priority=True),
        Binding("s", "switch", "output/errors"),
        Binding("end", "to_end", "to the end"),
    ]

    def __init__(self, job: str, follow: Callable[[str, bool], OutputFollower]) -> None:
        """Screen for a job.

        Args:
            job: Name of the job or trial.
            follow: Returns the follower of a job's output, or of its errors if the second argument is true.
        """
        super().__init__()
        self._job, self._follow = job, follow
        self._errors = False
        self._follower = follow(job, False)
        self._count = 0

    def compose(self) -> ComposeResult:
        """Widgets of the screen."""
        yield Static(classes="title", markup=False)
        yield RichLog(max_lines=KEPT, wrap=True, min_width=1, markup=False, highlight=False)
        yield Static(id="unfinished", markup=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to follow."""
        self._begin()
        self.query_one(RichLog).focus()
        self.set_interval(_EVERY_S, self._draw)

    def on_unmount(self) -> None:
        """Do not follow any more."""
        self._follower.pause()

    def on_resize(self) -> None:
        """Break the lines anew."""
        self._count = 0
        self.query_one(RichLog).clear()

    def action_switch(self) -> None:
        """Show the errors instead of the output, or the output again."""
        self._follower.pause()
        self._errors = not self._errors
        self._follower = self._follow(self._job, self._errors)
        self.query_one(RichLog).clear()
        self._begin()

    def action_to_end(self) -> None:
        """Go to the last line, and stay there."""
        self.query_one(RichLog).scroll_end(animate=False)

    def _begin(self) -> None:
        self._count = 0
        self._follower.begin()
        self._draw()

    def _draw(self) -> None:
        log, follower = self.query_one(RichLog), self._follower
        new, self._count = follower.since(self._count)
        stays = log.is_vertical_scroll_end
        for line in new:
            log.write(Text(line), scroll_end=False)
        if new and stays:
            log.scroll_end(animate=False)
        unfinished = self.query_one("#unfinished", Static)
        unfinished.display = bool(follower.unfinished)
        unfinished.update(Text(follower.unfinished, no_wrap=True, overflow="ellipsis"))
        which = "stderr" if self._errors else "stdout"
        state = f"   ({follower.state})" if follower.state else ""
        title = Text.assemble((printable(self._job), "bold"), f"   {which}{state}", no_wrap=True, overflow="ellipsis")
        self.query_one(".title", Static).update(title)
