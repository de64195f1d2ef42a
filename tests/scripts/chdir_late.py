"""A module that chdir.py imports after it has changed the current folder."""

FACTOR = 0.5
