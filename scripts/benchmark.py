#!/usr/bin/env python3
"""Runs a benchmark, from any folder: `scripts/benchmark.py NAME [--quick] [--json] [--data DIR]`.

Each `scripts/bench_NAME.py` is a link to this file, which runs the benchmark that it is called by.
"""

import sys
from importlib import import_module
from pathlib import Path

SCRIPTS = Path(__file__).parent
NAMES = sorted(each.stem.removeprefix("bench_") for each in SCRIPTS.glob("bench_*.py"))

sys.path.insert(0, str(SCRIPTS.parent))


def main() -> None:
    """Run the benchmark that the link or the first word names."""
    name = Path(sys.argv[0]).stem.removeprefix("bench_")
    if name not in NAMES:
        if sys.argv[1:2] in ([], ["-h"], ["--help"]):
            raise SystemExit(
                f"benchmarks: {', '.join(NAMES)}\nscripts/benchmark.py NAME --help tells the options of one"
            )
        name = sys.argv.pop(1).replace("-", "_")
        if name not in NAMES:
            raise SystemExit(f"error: no benchmark {name!r}\nhint: there are {', '.join(NAMES)}")
    import_module(f"scripts.bench.{name}").main()


if __name__ == "__main__":  # a process that multiprocessing spawns imports this file
    main()
