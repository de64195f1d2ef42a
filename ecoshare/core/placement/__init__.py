"""Placement of jobs: admission, lanes, groups of co-located jobs, preemption, rounds and gangs."""
