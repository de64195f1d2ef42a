#!/usr/bin/env python3
"""Benchmark of ten thousand trials in one sweep, from any folder: scripts/bench/many.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.bench.many import main

if __name__ == "__main__":  # a process that multiprocessing spawns imports this file
    main()
