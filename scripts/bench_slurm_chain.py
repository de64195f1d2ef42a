#!/usr/bin/env python3
"""Benchmark of a chain of allocations on a real Slurm, from any folder: scripts/bench/slurm_chain.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts.bench.slurm_chain import main

if __name__ == "__main__":
    main()
