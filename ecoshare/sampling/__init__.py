"""Samplers choose the next trial of a sweep: grids, random draws, and Optuna's samplers."""
