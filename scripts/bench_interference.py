#!/usr/bin/env python3
"""Benchmark of predicted speeds of pairs, from any folder: scripts/bench/interference.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.bench.interference import main

if __name__ == "__main__":  # a process that multiprocessing spawns imports this file
    main()
