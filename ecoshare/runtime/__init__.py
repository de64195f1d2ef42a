"""Drives the core in real time, with real processes."""
