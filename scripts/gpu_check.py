#!/usr/bin/env python3
"""All checks that need a GPU, from any folder: scripts/bench/gpu/check.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.bench.gpu.check import main

if __name__ == "__main__":  # a process that multiprocessing spawns imports this file
    main()
