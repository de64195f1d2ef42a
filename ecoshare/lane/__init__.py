"""Runs jobs: the warm server, the runner inside a job's process, and the turn that jobs of a lane hand on.

Lives in users' processes, so it imports the standard library, `ecoshare.core.turns`, `ecoshare.common.atomic_write`,
`ecoshare.common.documents` and, late, torch; nothing else.
"""
