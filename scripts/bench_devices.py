#!/usr/bin/env python3
"""Benchmark of several devices in one run, from any folder: scripts/bench/devices.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.bench.devices import main

if __name__ == "__main__":  # a process that multiprocessing spawns imports this file
    main()
