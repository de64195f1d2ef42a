"""Server of an embedding table, for `dlrm.py`: it gives rows and takes them back over a socket.

Each answer is late by a delay, which stands for a network. Requests are handled in the order in which they come, so a
row that was stored is never fetched as it was before. The server ends with its only client.
"""

import argparse
import queue
import threading
import time
from multiprocessing.connection import Connection, Listener

import numpy as np


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--dim", type=int, required=True)
    parser.add_argument("--delay", type=float, required=True, help="seconds from a request to its answer")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def answer(client: Connection, answers: "queue.Queue[tuple[float, np.ndarray] | None]") -> None:
    """Send each answer when it is due."""
    while (found := answers.get()) is not None:
        due_s, rows = found
        time.sleep(max(0.0, due_s - time.monotonic()))
        client.send_bytes(rows.tobytes())


def main() -> None:
    args = parse_args()
    rng = np.random.default_rng(args.seed)
    table = rng.normal(scale=0.1, size=(args.rows, args.dim)).astype(np.float32)
    with Listener(family="AF_UNIX") as listener:  # TCP would add its own delays to those of small messages
        print(listener.address, flush=True)
        with listener.accept() as client:
            answers: queue.Queue[tuple[float, np.ndarray] | None] = queue.Queue()
            sender = threading.Thread(target=answer, args=(client, answers))
            sender.start()
            try:
                while True:
                    ids, rows = client.recv()
                    if rows is None:
                        answers.put((time.monotonic() + args.delay, table[ids]))
                    else:
                        table[ids] = rows
            except (EOFError, ConnectionResetError):
                answers.put(None)
                sender.join()


if __name__ == "__main__":
    main()
