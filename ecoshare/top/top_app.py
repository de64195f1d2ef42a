"""The view in the terminal: what a live queue and a played run have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Static

from ecoshare.errors import EcoshareError
from ecoshare.queue.queue_documents import JobStatus
from ecoshare.reporting.explanation_text import lines_of
from ecoshare.reporting.figures import printable
from ecoshare.top.jobs_table import JobsTable, device_rows
from ecoshare.top.screens import OutputFollower, OutputScreen, TextScreen
from ecoshare.top.top_view import TopView

OutputOf = Callable[[str, bool], Iterator[bytes]]
"""Output of a job or trial: its name, and whether its errors are meant. It may raise `EcoshareError`."""

_TOLD_S = 10.0
"""Time (s) for which a message stays."""

_LEGEND = (
    ("▶", "the job that has the turn of its lane; after a +, the jobs that share the lane with it"),
    ("joules", "of a device all of them, of a job those beyond idle that are attributed to it"),
    ("ends in", "time for the iterations that are left, at the rate so far"),
    ("slowdown", "wall time of an iteration, waits included / the same without them"),
)


class TopApp(App[None]):
    """Devices above jobs, and keys for the selected job. A subclass brings the views.

    The terminal's own colours are used, so that the view suits a light and a dark terminal. It can be read without any:
    states are words, and the selected row is reversed.
    """

    CSS_PATH = "top.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("l", "output", "logs"),
        Binding("e", "explain", "explain"),
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("q", "quit", "quit"),
        Binding("ctrl+c,ctrl+q", "quit", "quit", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", "to the background", show=False),
    ]
    KEYS: ClassVar[tuple[tuple[str, str], ...]] = (
        ("up, down", "select a job"),
        ("l", "follow the output of the selected job; s switches to its errors"),
        ("e", "why the selected job waited, shared the device or ran alone"),
        ("q, Ctrl-C", "quit"),
    )
    """Keys in words, for the help."""
    DRAWN: ClassVar[tuple[str, ...]] = ("#head", "#warnings", "#device-rows", "JobsTable", "#below", "#message")
    """Selectors of the widgets of the main screen that a view is drawn in."""

    def __init__(self, output_of: OutputOf) -> None:
        """App without a view.

        Args:
            output_of: Returns the output of a job, or of a trial of a sweep, as it comes.
        """
        super().__init__(ansi_color=True)
        self._output_of = output_of
        self.theme = "ansi-dark"
        self.view: TopView | None = None
        self.trouble = ""
        """Reason why the view is not the state of now; empty if it is."""
        self._followers: dict[tuple[str, bool], OutputFollower] = {}
        self._messages = 0

    def compose(self) -> ComposeResult:
        """Widgets of the main screen."""
        yield Static(id="head", markup=False)
        yield Static(id="warnings", markup=False)
        with VerticalScroll(id="devices", can_focus=False):
            yield Static(id="device-rows", markup=False)
        yield JobsTable()
        yield Static(id="below", markup=False)
        yield Static(id="message", markup=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Draw the first view."""
        self._jobs.focus()
        self.draw()

    def on_resize(self) -> None:
        """Draw for the new size."""
        self.call_after_refresh(self.draw)

    def on_unmount(self) -> None:
        """Follow no output any more."""
        for follower in self._followers.values():
            follower.pause()

    @property
    def _main(self) -> Screen[object]:
        return self.screen_stack[0]

    @property
    def _is_closed(self) -> bool:
        """Whether screens or widgets of the main one are gone. Messages that came before may be handled after it."""
        return not self.screen_stack or not all(map(self._main.query, self.DRAWN))

    @property
    def _jobs(self) -> JobsTable:
        return self._main.query_one(JobsTable)

    def draw(self) -> None:
        """Draw the view, below any other screen, too."""
        width = self.size.width
        view = self.view
        if view is None or width < 1 or self._is_closed:
            return
        self._static("head").update(self._head(view, width))
        self._static("warnings", "; ".join(view.warnings))
        self._static("device-rows").update(Text("\n").join(device_rows(view.devices, width - 2)))
        self._jobs.show(view, width)
        self._static("below", self._below(view))

    def _head(self, view: TopView, width: int) -> Text:
        """First line: what is wrong, else the facts for which there is room."""
        title, *facts = view.facts()
        words = Text().append(printable(title), style="bold")
        if self.trouble:
            words.append(f"   {printable(self.trouble)}", style="bold yellow")
            words.truncate(width - 2, overflow="ellipsis")
            return words
        for fact in facts:
            if words.cell_len + 3 + cell_len(fact) > width - 2:
                break
            words.append("   ").append(printable(fact))
        return words

    def _below(self, view: TopView) -> str:
        """Line below the jobs: why the selected one did not succeed, or how many are not listed."""
        job = view.job(self._jobs.selected)
        return f"{job.name}: {job.reason}" if job is not None and job.reason else view.below()

    def on_data_table_row_highlighted(self) -> None:
        """Say about the job that is selected now what is to be said."""
        if self.view is not None and not self._is_closed:
            self._static("below", self._below(self.view))

    def _static(self, name: str, words: str | None = None) -> Static:
        """A line of the main screen; with words, it shows them, and is hidden if they are empty."""
        line = self._main.query_one(f"#{name}", Static)
        if words is not None:
            line.update(Text(printable(words), no_wrap=True, overflow="ellipsis"))
            line.display = bool(words)
        return line

    def tell(self, words: str, is_wrong: bool = False) -> None:
        """Show a message for some seconds."""
        if self._is_closed:
            return
        self._messages += 1
        number = self._messages
        self._static("message", words).set_class(is_wrong, "wrong")

        def over() -> None:
            if number == self._messages and not self._is_closed:
                self._static("message", "")

        self.set_timer(_TOLD_S, over)

    def tell_error(self, error: EcoshareError) -> None:
        """Show an error for some seconds."""
        self.tell(str(error) + (f" ({error.hint})" if error.hint else ""), is_wrong=True)

    @property
    def selected_name(self) -> str:
        """Name of the selected job; empty if there is none."""
        return self._jobs.selected

    def selected(self) -> JobStatus | None:
        """The selected job; None if there is none, which is told."""
        job = self.view.job(self._jobs.selected) if self.view is not None else None
        if job is None:
            self.tell("there is no job")
        return job

    def on_data_table_row_selected(self) -> None:
        """Show the output of the job on which Enter was pressed, or a mouse button twice."""
        self.action_output()

    def action_help(self) -> None:
        """Show the keys."""
        wide = max(len(keys) for keys, _ in self.KEYS)
        keys, words = ([f"  {word:<{wide}}  {means}" for word, means in part] for part in (self.KEYS, _LEGEND))
        self.push_screen(TextScreen("keys and words", lambda: [*keys, "", *words]))

    def action_output(self) -> None:
        """Show the output of the selected job."""
        if name := self._job_or_trial():
            self.push_screen(OutputScreen(name, self._follower))

    def action_explain(self) -> None:
        """Show the explanation of the selected job."""
        if (name := self._job_or_trial()) and (job := self.selected()) is not None:
            self.push_screen(TextScreen(f"explain {name}", lambda: lines_of(Path(job.run), name)))

    def _job_or_trial(self) -> str:
        """Name of the selected job, or of a trial of the selected sweep; empty if there is none, which is told."""
        job = self.selected()
        if job is None or self.view is None:
            return ""
        if job.trials is None or (trial := self.view.trial_of(job.name)):
            return job.name if job.trials is None else trial
        self.tell(f"{job.name} is a sweep, and none of its trials is in a lane now")
        return ""

    def _follower(self, name: str, errors: bool) -> OutputFollower:
        """Follower of an output. There is one for each output: see `OutputFollower.pause`."""
        key = name, errors
        if key not in self._followers:
            self._followers[key] = OutputFollower(lambda: self._output_of(name, errors))
        return self._followers[key]
