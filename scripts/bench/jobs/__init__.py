"""Training scripts that the benchmarks run as jobs, by path. They import nothing of this package."""
