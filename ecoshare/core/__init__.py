"""Decides which job runs where, in which order, and how long a turn lasts.

The package is pure: it uses no threads, files, sockets, clocks, NVML or torch, and of ecoshare only `common`. A driver
hands in events and carries out commands (`scheduler.Scheduler.handle`). The live runtime and the simulator are two such
drivers. A test checks the imports.

This file imports nothing, because `ecoshare.core.turns` is loaded into the processes of users' jobs.
"""
