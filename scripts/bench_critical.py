#!/usr/bin/env python3
"""Benchmark of our own planner on drawn traces, from any folder: scripts/bench/critical.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.bench.critical import main

if __name__ == "__main__":  # a process that multiprocessing spawns imports this file
    main()
