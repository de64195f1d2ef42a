"""Commands of this repository; `scripts.bench` has the benchmarks. An installation does not include them."""
