"""The messages between a run and one agent, on the side of the run."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

from ecoshare.cluster.agent_messages import AgentFailed, AgentMessage, decoded, encoded
from ecoshare.cluster.node_link import NodeLink
from ecoshare.errors import UnfitEnvironment, UsageError

_MEANWHILE_S = 1.0

Answer = TypeVar("Answer")


class AgentLine:
    """Messages between a run and one agent.

    Attributes:
        name: Name of the node in the run.
    """

    def __init__(self, name: str, link: NodeLink) -> None:
        """Begin to listen.

        Args:
            name: Name of the node.
            link: The link, which nothing else uses.
        """
        self.name, self._link = name, link
        self._inbox: SimpleQueue[bytes | str] = SimpleQueue()  # text: the reason why no more lines come
        self._wake: Callable[[], object] = lambda: None
        link.listen(self._put, self._put)

    def _put(self, line: bytes | str) -> None:
        self._inbox.put(line)
        self._wake()

    def send(self, message: AgentMessage) -> None:
        """Send a message. It is lost if the agent has gone."""
        self._link.send(encoded(message))

    def answer(self, kind: type[Answer], within_s: float, meanwhile: Callable[[], None] = lambda: None) -> Answer:
        """The next message, which must be of this kind. No loop hears the agent yet.

        Args:
            kind: Kind of the message.
            within_s: Longest time (s) to wait.
            meanwhile: Called each second until it is there.

        Raises:
            UnfitEnvironment: The agent does not answer in time, has ended, or cannot do what it was asked for.
            UsageError: The user has asked for something that does not exist there.
        """
        until_s, line = time.monotonic() + within_s, None
        while line is None:
            try:
                line = self._inbox.get(timeout=_MEANWHILE_S)
            except Empty:
                if time.monotonic() > until_s:
                    raise UnfitEnvironment(f"the node {self.name} does not answer within {within_s:g} s") from None
                meanwhile()
        if isinstance(line, str):
            raise UnfitEnvironment(f"the node {self.name} is lost: {line}")
        try:
            message = decoded(line)
        except ValueError as error:
            raise UnfitEnvironment(
                f"the node {self.name} sends what this version of ecoshare does not know: {error}",
                "install the same version on all nodes",
            ) from error
        if isinstance(message, AgentFailed):
            kind_of_error = UsageError if message.is_usage else UnfitEnvironment
            raise kind_of_error(f"the node {self.name}: {message.error}", message.hint)
        if not isinstance(message, kind):
            raise UnfitEnvironment(f"the node {self.name} answers with {type(message).__name__}")
        return message

    def hear(self, heard: Callable[[AgentMessage], None], lost: Callable[[str], None]) -> None:
        """Pass on each message in the running loop, from now on.

        Args:
            heard: Gets each message.
            lost: Gets the reason, one line, when no more messages come.
        """
        loop = asyncio.get_running_loop()

        def pass_on() -> None:
            with contextlib.suppress(Empty):
                while True:
                    line = self._inbox.get_nowait()
                    if isinstance(line, str):
                        lost(line)
                        continue
                    try:
                        message = decoded(line)
                    except ValueError as error:
                        lost(f"its agent is not understood: {error}")
                        continue
                    heard(message)

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(pass_on)

        self._wake = wake
        pass_on()

    def close(self) -> None:
        """End the agent, if it has not ended."""
        self._link.close()
