"""Placement strategies, one for each kind of policy."""
