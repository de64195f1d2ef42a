#!/usr/bin/env python3
"""Benchmark of a queue that is killed, and that many clients ask, from any folder: scripts/bench/queue.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.bench.queue import main

if __name__ == "__main__":
    main()
