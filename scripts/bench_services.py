#!/usr/bin/env python3
"""Benchmark of services with a latency target, from any folder: scripts/bench/services.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.bench.services import main

if __name__ == "__main__":  # a process that multiprocessing spawns imports this file
    main()
