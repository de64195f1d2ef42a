#!/usr/bin/env python3
"""Benchmark of searches for the settings of services, from any folder: scripts/bench/service_tuning.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.bench.service_tuning import main

if __name__ == "__main__":  # a process that multiprocessing spawns imports this file
    main()
