#!/usr/bin/env python3
"""Benchmark of PAL on GPUs of different speeds, from any folder: scripts/bench/pal.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.bench.pal import main

if __name__ == "__main__":  # a process that multiprocessing spawns imports this file
    main()
