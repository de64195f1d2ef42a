"""A screen with a text to read: the help, or the explanation of a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Static

from ecoshare.errors import EcoshareError
from ecoshare.reporting.figures import printable
from ecoshare.reporting.prose import broken
from ecoshare.top.queue_watch import in_background

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
