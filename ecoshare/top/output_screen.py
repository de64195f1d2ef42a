"""A screen that shows the output of a job as it comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Footer, RichLog, Static

from ecoshare.reporting.figures import printable
from ecoshare.top.output_follower import KEPT, OutputFollower

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
