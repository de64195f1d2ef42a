#!/usr/bin/env python3
"""Profiles and joules on a GPU against other tools, from any folder: scripts/bench/gpu/profiles.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.bench.gpu.profiles import main

if __name__ == "__main__":  # a process that multiprocessing spawns imports this file
    main()
