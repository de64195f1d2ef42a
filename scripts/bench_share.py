#!/usr/bin/env python3
"""Benchmark of mixes of jobs through ecoshare, from any folder: scripts/bench/share.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.bench.share import main

if __name__ == "__main__":  # a process that multiprocessing spawns imports this file
    main()
