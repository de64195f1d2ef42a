"""Checks that need a GPU: `scripts/gpu_check.py`."""
