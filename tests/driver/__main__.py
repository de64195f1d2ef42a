"""Program that pretends to use a GPU until its end: `python -m tests.driver --compute 0.8 --memory 0.3`."""

from __future__ import annotations

import argparse
import os
import time

from tests.driver.pretend import Pretend


def main() -> None:
    """Put one load on a GPU, print a line, and wait."""
    parser = argparse.ArgumentParser(description="Pretend to use a GPU of a fake driver.")
    parser.add_argument("--state", default=os.environ.get("FAKE_NVML_STATE"))
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--compute", type=float, default=0.0)
    parser.add_argument("--memory", type=float, default=0.0)
    parser.add_argument("--used-bytes", type=int, default=0)
    parser.add_argument("--for-s", type=float, default=1e9)
    given = parser.parse_args()
    Pretend(given.state, given.gpu).load(None, given.compute, given.memory, given.used_bytes)
    print("loaded", flush=True)
    time.sleep(given.for_s)


if __name__ == "__main__":
    main()
