"""A mix of eight small jobs on one device, run in several ways: the first part of `scripts/gpu_check.py`."""
