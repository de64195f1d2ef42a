"""What the next trial of a sweep is: grids, random draws, and Optuna's samplers."""
