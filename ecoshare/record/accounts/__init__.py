"""Accounts of a run: joules and turns, split among its jobs."""
