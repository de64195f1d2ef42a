"""A link to an agent that is a child of this process. An actor of Ray uses it on its machine."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence

from ecoshare.cluster.line_writer import LineWriter
from ecoshare.common.printable import last_line

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
    """See `NodeLink`."""

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
        """See `NodeLink`."""

        def read() -> None:
            assert self._process.stdout is not None
            with self._process.stdout as lines:
                for line in lines:
                    heard(line)
            lost(self._last_words())

        self._reader = threading.Thread(target=read, name="ecoshare-agent-out", daemon=True)
        self._reader.start()

    def send(self, line: bytes) -> None:
        """See `NodeLink`."""
        self._writer.put(line)

    def close(self) -> None:
        """See `NodeLink`."""
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
