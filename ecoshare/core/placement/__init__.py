"""Decides which job runs where: admission, lanes, groups of jobs beside each other, preemption, rounds and gangs."""
