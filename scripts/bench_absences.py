#!/usr/bin/env python3
"""Benchmark of jobs that leave their turn to load data, from any folder: scripts/bench/absences.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.bench.absences import main

if __name__ == "__main__":  # a process that multiprocessing spawns imports this file
    main()
