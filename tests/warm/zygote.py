"""Zygote: a process that has loaded the modules of its kind, and forks one process of that kind for each request.

A request is a line of JSON with open files: standard input, output and error, and a server's channel as the fourth. The
first answer is the number of the new process, with a handle for it. The second is its exit code, when it has ended.

This module runs in the zygotes alone. The zygote of a lane server must load only modules that a lane server loads, and
the zygote of a script nothing of ecoshare.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import selectors
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

LONGEST_REQUEST = 1 << 20


def main(kind: str, listener: int) -> None:
    """Serve until standard input ends, at the end of the tests; in a forked child, run the request.

    Args:
        kind: "command", "server" or "script".
        listener: Number of the listening socket.
    """
    load, begin = {
        "command": (load_command, begin_command),
        "server": (load_server, begin_server),
        "script": (load_script, begin_script),
    }[kind]
    load()
    gc.collect()
    gc.freeze()
    birth = Zygote(socket.socket(fileno=listener)).serve()
    if birth is not None:
        birth.take_over()
        begin(birth)


@dataclass
class Birth:
    """Request for a new process.

    Attributes:
        request: Environment, folder, whether the process leads a session, and values of its kind.
        files: Descriptors: standard input, output, error, and more.
    """

    request: dict[str, Any]
    files: list[int]

    def take_over(self) -> None:
        """Take the files, session, folder, environment and signals."""
        for target, file in enumerate(self.files[:3]):
            os.dup2(file, target)
            os.close(file)
        if self.request["new_session"]:
            os.setsid()
        os.chdir(self.request["cwd"])
        os.environ.clear()
        os.environ.update(self.request["environment"])
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)


class Zygote:
    """Zygote that forks processes and reports their ends."""

    def __init__(self, listener: socket.socket) -> None:
        """Serve requests at this socket."""
        self._listener = listener
        self._birth: Birth | None = None
        self._over = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(sys.stdin.fileno(), selectors.EVENT_READ, self._end)
        self._selector.register(listener, selectors.EVENT_READ, self._accept)

    def serve(self) -> Birth | None:
        """Serve; returns the request in a forked child, and None in the zygote at the end."""
        while self._birth is None and not self._over:
            for key, _ in self._selector.select():
                key.data()
                if self._birth is not None:
                    break
        return self._birth

    def _end(self) -> None:
        self._over = True

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        try:
            birth = _receive(connection)
        except ConnectionError:  # the asking process was killed
            connection.close()
            return
        pid = os.fork()
        if pid == 0:
            self._drop(connection)
            self._birth = birth
            return
        for each in birth.files:
            os.close(each)
        handle = os.pidfd_open(pid)
        self._selector.register(handle, selectors.EVENT_READ, lambda: self._reap(pid, handle, connection))
        with contextlib.suppress(OSError):
            socket.send_fds(connection, [json.dumps(pid).encode() + b"\n"], [handle])

    def _reap(self, pid: int, handle: int, connection: socket.socket) -> None:
        _, status = os.waitpid(pid, 0)
        self._selector.unregister(handle)
        os.close(handle)
        with contextlib.suppress(OSError):
            connection.sendall(json.dumps(os.waitstatus_to_exitcode(status)).encode() + b"\n")
        connection.close()

    def _drop(self, connection: socket.socket) -> None:
        """Close the descriptors of the zygote in a child."""
        handles = {key.fd for key in self._selector.get_map().values()} | {self._listener.detach(), connection.detach()}
        self._selector.close()
        for handle in handles - {0, -1}:  # a job that writes to all its files would write to the tests
            os.close(handle)


def _receive(connection: socket.socket) -> Birth:
    message, files, _, _ = socket.recv_fds(connection, LONGEST_REQUEST, 4)
    while not message.endswith(b"\n"):
        more = connection.recv(LONGEST_REQUEST)
        if not more:
            raise ConnectionError("a request broke off")
        message += more
    return Birth(json.loads(message), files)


def load_server() -> None:
    """Load the modules of a warm `ecoshare.lane.supervisor.server`."""
    import torch
    import torch._dynamo
    import torch.utils.data  # noqa: F401


def begin_server(birth: Birth) -> None:
    """Run as a lane server with everything loaded."""
    from ecoshare.lane import processes
    from ecoshare.lane.supervisor import server

    # Jobs on a pretended GPU use a stand-in for CUDA, which this torch for processors would be refused for.
    server._built_for = lambda: ("12.6", "6.2", "")
    time.sleep(birth.request["load_s"])
    # The environment of a process that others see is the one in which its program was started.
    name = birth.request["shown"]
    processes.mark(name, os.environ[name])
    server.main([str(birth.files[3]), str(os.getppid())])


def load_script() -> None:
    """Load the modules that scripts load first."""
    import torch
    import torch._dynamo
    import torch.utils.data  # noqa: F401


def begin_script(birth: Birth) -> None:
    """Run as `python` with a script and its arguments."""
    script = Path(birth.request["script"])
    sys.argv = [str(script), *birth.request["words"]]
    sys.path[0] = str(script.parent)
    sys.modules["__main__"] = main = ModuleType("__main__")
    main.__file__ = str(script)
    exec(compile(script.read_bytes(), script, "exec"), vars(main))


def load_command() -> None:
    """Load all modules of all commands, so that no command loads any."""
    import importlib

    import ecoshare
    from ecoshare.lane import interpreter

    folder = Path(ecoshare.__path__[0])
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder.parent).with_suffix("").parts
        if parts[-1] != "__main__" and "integrations" not in parts:  # which load Ray
            importlib.import_module(".".join(part for part in parts if part != "__init__"))
    for name in ("matplotlib.pyplot", "botorch", "torch._dynamo", "tuner", "ecoshare.integrations.optuna"):
        importlib.import_module(name)
    interpreter.keep_operators()


def begin_command(birth: Birth) -> None:
    """Run as `ecoshare` with the words of the request, or as `python` with a script and its arguments."""
    import runpy
    from functools import partial

    from ecoshare import cli
    from ecoshare.runtime.nodes import run_host
    from tests.driver import forked
    from tests.warm.server import WarmServer

    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")  # a terminal is read and written otherwise than a file
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")
    forked.find_library()
    if birth.request["servers"] is not None:
        run_host.Spawned = partial(WarmServer, *birth.request["servers"])  # type: ignore[assignment, attr-defined]
    if (script := birth.request["script"]) is not None:
        sys.argv = [script, *birth.request["words"]]
        sys.path[0] = str(Path(script).parent)
        runpy.run_path(script, run_name="__main__")
    else:
        sys.argv = ["ecoshare", *birth.request["words"]]
        cli.main()
