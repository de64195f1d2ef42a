#!/usr/bin/env python3
"""Benchmark of the joules that missing knowledge costs, from any folder: scripts/bench/energy_parts.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.bench.energy_parts import main

if __name__ == "__main__":  # a process that multiprocessing spawns imports this file
    main()
