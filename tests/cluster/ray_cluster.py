"""A real Ray of several nodes on this machine: each listens on a loopback address of its own.

`ray stop` is never used: it ends every Ray process of the machine.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.runtime.running import parent
from tests.warm import wait_for

_STARTS_WITHIN_S, _ENDS_WITHIN_S = 120.0, 60.0
_PORTS = ("--min-worker-port", "0", "--max-worker-port", "0", "--dashboard-agent-listen-port", "0")


class RayCluster:
    """Nodes of a Ray on this machine. The first one is the head.

    Attributes:
        address: Address of the cluster, for `--address`.
        nodes: Address of each node.
    """

    def __init__(self, folder: Path, count: int, network: int = 0) -> None:
        """A cluster without nodes yet.

        Args:
            folder: Folder for its logs, with a short path: Ray keeps sockets there.
            count: Number of nodes.
            network: Third number of the addresses of its nodes, for clusters beside each other.
        """
        self.nodes = [f"127.0.{network}.{number}" for number in range(2, 2 + count)]
        with socket.socket() as free:
            free.bind((self.nodes[0], 0))
            port = free.getsockname()[1] % 9000 + 20_000  # outside the ports of workers
        self.address = f"{self.nodes[0]}:{port}"
        self._folder, self._port = folder, port
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start each node that is not there. The head must have lived on."""
        for node in self.nodes:
            if node in self._started and self._started[node].poll() is None:
                continue
            if node == self.nodes[0]:
                own = ("--head", "--port", str(self._port), "--include-dashboard", "false")
                self._start(node, *own, "--temp-dir", str(self._folder / "r"))
            else:
                self._start(node, "--address", self.address)

    def _start(self, node: str, *options: str) -> None:
        command = [str(Path(sys.executable).with_name("ray")), "start", "--block", "--disable-usage-stats", *_PORTS]
        sizes = ("--num-cpus", "2", "--object-store-memory", "100000000")
        log = self._folder / f"{node}.log"
        with log.open("wb") as out:
            child = subprocess.Popen(
                [*command, "--node-ip-address", node, *options, *sizes],
                stdout=out,
                stderr=out,
                env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "HOME": str(self._folder)},
            )
        self._started[node] = child
        wait_for(lambda: b"Ray runtime started" in log.read_bytes() or child.poll() is not None, _STARTS_WITHIN_S)
        assert child.poll() is None, log.read_text()

    def end(self) -> None:
        """End all nodes."""
        for child in reversed(self._started.values()):
            child.terminate()
        for child in reversed(self._started.values()):
            child.wait(_ENDS_WITHIN_S)

    def raylet(self, node: str) -> int:
        """Process ID of the raylet of a node; 0 if it has none."""
        mark = f"--node_ip_address={node}".encode()
        return next((pid for pid, words in self._processes() if words[0].endswith(b"/raylet") and mark in words), 0)

    def actors(self, node: str | None = None) -> list[int]:
        """Process IDs of the actors that hold agents: of one node, or of all, those without a raylet included."""
        found = [pid for pid, words in self._processes() if words[0].startswith(b"ray::AgentActor")]
        if node is None:
            return found
        raylet, own = self.raylet(node), list[int]()
        for pid in found:
            with contextlib.suppress(OSError):
                if parent(pid) == raylet:
                    own.append(pid)
        return own

    def _processes(self) -> Iterator[tuple[int, list[bytes]]]:
        """Processes of this cluster with their command lines. Agents have the environment of their run instead."""
        mark = f"HOME={self._folder}".encode()
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (path / "environ").read_bytes().split(b"\0"):
                    yield int(path.name), (path / "cmdline").read_bytes().split(b"\0")


@contextlib.contextmanager
def ray_cluster(count: int, network: int = 0) -> Iterator[RayCluster]:
    """Context manager: a cluster of some nodes, which ends with it."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as name:
        cluster = RayCluster(Path(name), count, network)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.end()
