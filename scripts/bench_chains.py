#!/usr/bin/env python3
"""Benchmark of chains of allocations, from any folder: scripts/bench/chains.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.bench.chains import main

if __name__ == "__main__":  # a process that multiprocessing spawns imports this file
    main()
