"""Metrics for Prometheus: their names, types and meanings, and sets of samples."""
