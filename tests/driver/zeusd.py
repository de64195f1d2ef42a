"""Small zeusd: the part of its HTTP interface that sets GPUs, on a Unix socket, for the fake driver of this process.

Requests and answers are those that `zeus.utils.zeusd` sends and reads.
"""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pynvml


class Zeusd:
    """Daemon that answers at `socket` while it is entered."""

    def __init__(self, socket: Path, groups: tuple[str, ...] = ("gpu-read", "gpu-control"), gpus: int = 8) -> None:
        """Offer these groups of the interface, and show at most this number of GPUs."""
        self.socket, self.groups, self.gpus = socket, groups, gpus

    def __enter__(self) -> Zeusd:
        pynvml.nvmlInit()
        discovered = self._discovered()  # once, as the daemon does: before a GPU is lost

        class Handler(BaseHTTPRequestHandler):
            """Answer one request."""

            def address_string(self) -> str:
                return "a socket"

            def log_message(self, format: str, *args: Any) -> None:
                """Write no log."""

            def do_GET(self) -> None:
                self._answer(200, discovered)

            def do_POST(self) -> None:
                parts = urlsplit(self.path)
                given = {name: values[0] for name, values in parse_qs(parts.query).items()}
                try:
                    _SETTERS[parts.path](pynvml.nvmlDeviceGetHandleByIndex(int(given["gpu_ids"])), given)
                except pynvml.NVMLError as error:
                    self._answer(500, str(error))
                else:
                    self._answer(200, {})

            def _answer(self, status: int, body: Any) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._server = socketserver.UnixStreamServer(str(self.socket), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self.socket.unlink()
        pynvml.nvmlShutdown()

    def _discovered(self) -> dict[str, Any]:
        shown = range(min(self.gpus, pynvml.nvmlDeviceGetCount()))
        names = [pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(each)) for each in shown]
        return {
            "gpus": [{"id": place, "name": name} for place, name in enumerate(names)],
            "cpus": [],
            "enabled_api_groups": list(self.groups),
            "auth_required": False,
        }


_SETTERS: dict[str, Callable[[Any, dict[str, str]], None]] = {
    "/gpu/set_power_limit": lambda gpu, given: pynvml.nvmlDeviceSetPowerManagementLimit(
        gpu, int(given["power_limit_mw"])
    ),
    "/gpu/set_gpu_locked_clocks": lambda gpu, given: pynvml.nvmlDeviceSetGpuLockedClocks(
        gpu, int(given["min_clock_mhz"]), int(given["max_clock_mhz"])
    ),
    "/gpu/reset_gpu_locked_clocks": lambda gpu, given: pynvml.nvmlDeviceResetGpuLockedClocks(gpu),
    "/gpu/set_mem_locked_clocks": lambda gpu, given: pynvml.nvmlDeviceSetMemoryLockedClocks(
        gpu, int(given["min_clock_mhz"]), int(given["max_clock_mhz"])
    ),
    "/gpu/reset_mem_locked_clocks": lambda gpu, given: pynvml.nvmlDeviceResetMemoryLockedClocks(gpu),
}
