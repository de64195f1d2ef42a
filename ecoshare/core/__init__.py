"""Decides who runs where, in which order and how long a turn lasts.

Pure: no threads, files, sockets, clocks, NVML or torch, and nothing of ecoshare's other parts. A driver hands in
events and carries out commands (`scheduler.Scheduler.handle`); the live runtime and the simulator are two such
drivers. A check in the tests holds these imports.

This file imports nothing, because `ecoshare.core.turns` is loaded into the processes of users' jobs.
"""
