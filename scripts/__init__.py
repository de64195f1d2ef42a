"""Commands of this repository; `scripts.bench` has the benchmarks. Not a part of what is installed."""
