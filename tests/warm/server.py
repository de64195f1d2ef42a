"""Lane server that is forked from a zygote, in place of `ecoshare.runtime.nodes.warm_server.Spawned`."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from ecoshare.runtime.nodes.cleanup import TOKEN
from ecoshare.runtime.nodes.warm_server import Child, LaneServer, environment
from tests.warm.client import ZygoteChild


def fork(zygote: str, token: str, log: Path, channel: socket.socket, load_s: float = 0.0) -> ZygoteChild:
    """Let the zygote fork a server for the controller at the other end of `channel`.

    Args:
        load_s: Time (s) after which the server is ready, as if it loaded torch meanwhile.
    """
    request = {"environment": environment(token), "cwd": str(Path.cwd()), "new_session": True, "shown": TOKEN}
    request["load_s"] = load_s
    with log.open("ab") as errors, Path(os.devnull).open("r+b") as nothing:
        return ZygoteChild(zygote, request, [nothing.fileno(), nothing.fileno(), errors.fileno(), channel.fileno()])


class WarmServer:
    """See the module; the methods are those of `Spawned`."""

    def __init__(self, zygote: str, load_s: float, token: str, log: Path) -> None:
        """Let the zygote fork the server."""
        self._channel, theirs = socket.socketpair()
        with theirs:
            child = fork(zygote, token, log, theirs, load_s)

        def reap() -> int:
            code = child.wait()
            assert code is not None
            return code

        self._process = Child(child.pid, reap)

    async def connect(self) -> LaneServer:
        return await LaneServer.connect(self._process, self._channel)

    def end(self) -> None:
        self._channel.close()
        self._process.end()
