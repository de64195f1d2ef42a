"""A question before a job is cancelled."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from ecoshare.reporting.figures import printable


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
