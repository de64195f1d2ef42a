"""Touches the machine: which devices there are, and how processes share them."""
