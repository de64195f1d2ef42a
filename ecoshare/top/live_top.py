"""The view of a queue that is up, with keys that change its jobs."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from ecoshare.errors import EcoshareError
from ecoshare.jobs.quantities import format_duration
from ecoshare.queue.queue_documents import QueueStatus
from ecoshare.top.queue_watch import AskableQueue, QueueWatch, in_background
from ecoshare.top.screens import KEPT, CancelQuestion
from ecoshare.top.top_app import TopApp
from ecoshare.top.top_view import TopView

_SILENT_S = 5.0
"""Time (s) without an answer after which the view says so."""

_REDRAW_S = 1.0


class Heard(Message):
    """The queue has answered, or there is a reason why it has not."""

    def __init__(self, answer: QueueStatus | EcoshareError) -> None:
        super().__init__()
        self.answer = answer


class Changed(Message):
    """A change was made, or refused."""

    def __init__(self, words: str, refused: EcoshareError | None) -> None:
        super().__init__()
        self.words, self.refused = words, refused


class LiveTop(TopApp, inherit_bindings=False):
    """Shows a queue until it is quit. If the queue goes down, the view says so, and goes on when it is up again."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "cancel", "cancel"),
        Binding("h", "hold", "hold/release"),
        Binding("r", "retry", "run again", show=False),
        Binding("plus,equals_sign", "priority(1)", "priority", key_display="+ -"),
        Binding("minus", "priority(-1)", "lower", show=False),
        *TopApp.BINDINGS,
    ]
    KEYS = (
        *TopApp.KEYS[:1],
        ("c", "cancel the selected job or sweep, after a question"),
        ("h", "hold the selected job while it waits; release it"),
        ("r", "run the selected job again, if it has failed or was cancelled"),
        ("+, -", "raise and lower its priority, for the policy `priority`"),
        *TopApp.KEYS[1:],
    )

    def __init__(self, queue: AskableQueue, first: QueueStatus) -> None:
        """App for a queue.

        Args:
            queue: The queue.
            first: State that it has told already.
        """
        super().__init__(lambda name, errors: queue.output(name, errors=errors, follow=True, lines=KEPT))
        self._queue = queue
        self._watch = QueueWatch(queue, lambda answer: self._post(Heard(answer)))
        self._heard_s = time.monotonic()
        self.view = TopView.of_queue(first, time.time())

    def on_mount(self) -> None:
        """Begin to ask the queue."""
        self._watch.begin()
        self.set_interval(_REDRAW_S, self._look)

    def on_unmount(self) -> None:
        """Ask no more."""
        self._watch.end()

    def on_heard(self, message: Heard) -> None:
        """Draw the state of the queue, or say why there is none."""
        self._heard_s = time.monotonic()
        if isinstance(message.answer, EcoshareError):
            self.trouble = str(message.answer)
        else:
            self.trouble = ""
            self.view = TopView.of_queue(message.answer, time.time())
        self.draw()

    def on_changed(self, message: Changed) -> None:
        """Say what came of a change."""
        if message.refused is not None:
            self.tell_error(message.refused)
        else:
            self.tell(message.words)
        self._watch.ask_now()

    def _look(self) -> None:
        """Say that there was no answer for some time; the time goes on in the view meanwhile."""
        silent_s = time.monotonic() - self._heard_s
        if silent_s > _SILENT_S:
            self.trouble = f"the queue has not answered for {format_duration(round(silent_s))}"
            self.draw()

    def action_cancel(self) -> None:
        """Ask whether to cancel the selected job, and do so."""
        if (job := self.selected()) is None:
            return
        name = job.name
        if job.has_ended:
            self.tell(f"{name} has ended already", is_wrong=True)
            return

        def answered(how: str | None) -> None:
            if how:
                said = f"{name} is killed" if how == "now" else f"{name} is cancelled"
                self._change(lambda: self._queue.cancel(name, at_once=how == "now"), said)

        self.push_screen(CancelQuestion(name), answered)

    def action_retry(self) -> None:
        """Run the selected job again."""
        if (job := self.selected()) is not None:
            self._change(lambda: self._queue.retry(job.name), f"{job.name} runs again")

    def action_hold(self) -> None:
        """Hold the selected job, or release it."""
        if (job := self.selected()) is None:
            return
        name = job.name
        if job.state == "held":
            self._change(lambda: self._queue.release(name), f"{name} is released")
        else:
            self._change(lambda: self._queue.hold(name), f"{name} is held")

    def action_priority(self, more: int) -> None:
        """Give the selected job a priority that is higher by so much."""
        if (job := self.selected()) is None:
            return
        name, priority = job.name, job.priority + more
        self._change(lambda: self._queue.prioritise(name, priority), f"{name} has priority {priority}")
        if self.view is not None:  # so that the next press counts from here
            jobs = tuple(
                each.model_copy(update={"priority": priority}) if each is job else each for each in self.view.jobs
            )
            self.view = replace(self.view, jobs=jobs)

    def _change(self, call: Callable[[], object], words: str) -> None:
        """Make a change in a thread, since the queue may take its time."""

        def run() -> None:
            try:
                call()
            except EcoshareError as error:
                self._post(Changed(words, error))
            except Exception as error:  # a traceback of the thread would be written over the view
                self._post(Changed(words, EcoshareError(f"{type(error).__name__}: {error}")))
            else:
                self._post(Changed(words, None))

        in_background(run)

    def _post(self, message: Message) -> None:
        with suppress(RuntimeError):  # the app has ended meanwhile
            self.post_message(message)
