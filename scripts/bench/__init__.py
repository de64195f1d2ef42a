"""Benchmarks: `python -m scripts.bench.NAME [--quick] [--json]`, or `scripts/bench_NAME.py` from any folder."""
