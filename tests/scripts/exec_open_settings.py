"""Settings that exec_open.py runs in its own namespace."""

steps = 14
learning_rate = 0.2
