"""Run a script as ranks on one machine, and print the bytes that the loopback device has sent meanwhile.

unshare --map-root-user --net python count_bytes.py RANKS SCRIPT [ARGUMENT ...]

In a network of its own, as here, no other program adds to them.
"""

import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

SET_FLAGS, UP = 0x8914, 0x1


def sent_bytes() -> int:
    lines = Path("/proc/self/net/dev").read_text().splitlines()
    return next(int(line.split()[9]) for line in lines if line.strip().startswith("lo:"))


def main() -> None:
    ranks, command = int(sys.argv[1]), [sys.executable, *sys.argv[2:]]
    with socket.socket() as free:
        fcntl.ioctl(free, SET_FLAGS, struct.pack("16sh", b"lo", UP))
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    here = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
    before = sent_bytes()
    started = [
        subprocess.Popen(command, env={**os.environ, **here, "RANK": str(rank)}, stdout=subprocess.DEVNULL)
        for rank in range(ranks)
    ]
    # PyTorch may abort a process of gloo that has done its work (its pull request 179291).
    if not {rank.wait() for rank in started} <= {0, -signal.SIGABRT}:
        raise SystemExit("a rank has failed")
    print(sent_bytes() - before)


if __name__ == "__main__":
    main()
