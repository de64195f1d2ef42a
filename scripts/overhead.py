#!/usr/bin/env python3
"""Cost of measuring for the measured jobs, from any folder: scripts/bench/measure_overhead.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.bench.measure_overhead import main

if __name__ == "__main__":  # a process that multiprocessing spawns imports this file
    main()
