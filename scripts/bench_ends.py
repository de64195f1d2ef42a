#!/usr/bin/env python3
"""Benchmark of report, trace and explanations of long runs, from any folder: scripts/bench/ends.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.bench.ends import main

if __name__ == "__main__":  # a process that multiprocessing spawns imports this file
    main()
