#!/usr/bin/env python3
"""Benchmark of runs on several nodes, from any folder: scripts/bench/cluster.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.bench.cluster import main

if __name__ == "__main__":
    main()
