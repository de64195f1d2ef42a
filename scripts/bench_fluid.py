#!/usr/bin/env python3
"""Benchmark of searches with trials of changing width, from any folder: scripts/bench/fluid.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.bench.fluid import main

if __name__ == "__main__":  # a process that multiprocessing spawns imports this file
    main()
