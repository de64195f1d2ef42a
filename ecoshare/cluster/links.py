"""Carries lines between a run and the agent of a node."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Protocol

from ecoshare.base.printable import last_line
from ecoshare.runtime.nodes.run_host import LocalHost


class NodeLink(Protocol):
    """A way to an agent. Its calls return at once, and may be made in any thread."""

    def listen(self, heard: Callable[[bytes], None], lost: Callable[[str], None]) -> None:
        """Begin to pass on the lines of the agent, in a thread.

        Args:
            heard: Gets each line.
            lost: Gets the reason, one line, when no more lines come; called once.
        """
        ...

    def send(self, line: bytes, can_wait: bool = False) -> None:
        """Send a line. It is lost if the agent has gone. One that can wait may come some tenths of a second later."""
        ...

    def close(self) -> None:
        """End the agent, if it has not ended."""
        ...


@dataclass(frozen=True, slots=True)
class NodeStart:
    """A machine on which the agent of a run can be started.

    Attributes:
        name: Name of the node in the run.
        address: Address of the machine for the other ones.
        start: Starts the agent.
        give_back: Gives the machine back to its engine, after the agent has ended; None if the run must keep it.
    """

    name: str
    address: str
    start: Callable[[], NodeLink]
    give_back: Callable[[], None] | None = None


class LookForNodes(Protocol):
    """Machines that come and go while a run goes on. The calls may take a while, and are made in a thread."""

    def present(self) -> Sequence[NodeStart]:
        """Machines that are there now, those of the run included. One that was given back has another name then."""
        ...

    def ask(self, nodes: int) -> None:
        """Ask the engine for so many machines in all, if it can start some; 0 if the run needs no more."""
        ...


class LineWriter:
    """Writes lines in a thread, those that have come meanwhile at once.

    Lines that can wait may be kept for a moment, and come with the next one that cannot.
    """

    def __init__(
        self,
        write: Callable[[Sequence[bytes]], object],
        end: Callable[[], object] = lambda: None,
        lingers_s: float = 0.0,
    ) -> None:
        """Start the thread.

        Args:
            write: Writes lines, in order. An `OSError` means that the reader has gone: nothing more is written then.
            end: Called in the thread when no more lines are written.
            lingers_s: Longest time (s) for which lines that can wait are kept.
        """
        self._write, self._end, self._lingers_s = write, end, lingers_s
        self._lines: SimpleQueue[tuple[bytes | None, bool]] = SimpleQueue()  # None at the end; whether it can wait
        self._thread = threading.Thread(target=self._write_all, name="ecoshare-lines", daemon=True)
        self._thread.start()

    def put(self, line: bytes, can_wait: bool = False) -> None:
        """Write a line soon; one that can wait may come later."""
        self._lines.put((line, can_wait))

    def close(self) -> None:
        """Write nothing after the lines that were put."""
        self._lines.put((None, False))

    def join(self, within_s: float) -> None:
        """Wait until all is written after `close`, for at most this time (s)."""
        self._thread.join(within_s)

    def _write_all(self) -> None:
        with contextlib.suppress(OSError):
            try:
                is_over = False
                while not is_over:
                    found = self._batch()
                    is_over = None in found
                    if lines := [line for line in found if line is not None]:
                        self._write(lines)
            finally:
                self._end()

    def _batch(self) -> list[bytes | None]:
        line, can_wait = self._lines.get()
        found, until_s = [line], time.monotonic() + self._lingers_s
        with contextlib.suppress(Empty):
            while can_wait:
                line, can_wait = self._lines.get(timeout=max(0.0, until_s - time.monotonic()))
                found.append(line)
        while not self._lines.empty():
            found.append(self._lines.get()[0])
        return found


_CHUNK_BYTES = 1 << 20

_ENDS_WITHIN_S = 10.0
"""Time (s) for an agent to end by itself when its stdin has ended."""


def agent_command(name: str, options: Sequence[str]) -> list[str]:
    """Command line of an agent.

    Args:
        name: Name of the node in its run.
        options: Options of `ecoshare agent`.
    """
    return [sys.executable, "-m", "ecoshare", "agent", name, *options]


class ProcessLink:
    """Link to an agent that is a child of this process."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start an agent.

        Args:
            command: Command line, see `agent_command`.
            environment: Environment of the agent; None for that of this process.

        Raises:
            OSError: The process cannot be created.
        """
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env=dict(environment) if environment is not None else None,
            start_new_session=True,  # a Ctrl-C in the terminal is for the run
        )
        assert self._process.stdin is not None
        self._writer = LineWriter(self._write, self._process.stdin.close)
        self._reader: threading.Thread | None = None

    @property
    def pid(self) -> int:
        """Process ID of the agent."""
        return self._process.pid

    def listen(self, heard: Callable[[bytes], None], lost: Callable[[str], None]) -> None:

        def read() -> None:
            assert self._process.stdout is not None
            rest = b""
            with self._process.stdout as out:
                while chunk := os.read(out.fileno(), _CHUNK_BYTES):  # all that is there, so that lines go on together
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        heard(line + b"\n")
            lost(self._last_words())

        self._reader = threading.Thread(target=read, name="ecoshare-agent-out", daemon=True)
        self._reader.start()

    def send(self, line: bytes, can_wait: bool = False) -> None:
        self._writer.put(line, can_wait)

    def close(self) -> None:
        self._writer.close()
        try:
            self._process.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its guard ends what it has started
            self._process.wait()
        self._writer.join(_ENDS_WITHIN_S)
        if self._reader is not None:
            self._reader.join(_ENDS_WITHIN_S)
        self._said.close()

    def _write(self, lines: Sequence[bytes]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.writelines(lines)
        self._process.stdin.flush()

    def _last_words(self) -> str:
        code = self._process.wait()
        self._said.seek(0)
        said = last_line(self._said.read().decode(errors="replace"))
        return f"its agent has ended with exit code {code}" + (f": {said}" if said else "")


@dataclass(frozen=True, slots=True)
class BegunAgent:
    """Parts of an agent that exist before it knows its run.

    Attributes:
        name: Name of the node in the run.
        token: Token that marks the processes of the run on this node.
        shared: Private folder in memory, for lane tables and sockets.
        log: File for the stderr of the servers of the lanes, in that folder.
        host: Provides these servers. The first one loads torch already.
        shares_processors: Whether the engine gives the processors to other work, too.
        unpacked: Folder that was shipped to this machine; None if none was.
    """

    name: str
    token: str
    shared: Path
    log: Path
    host: LocalHost
    shares_processors: bool
    unpacked: Path | None = None
