"""Runs jobs: the warm server, the runner inside a job's process, and the turn that jobs of a lane hand on.

The package runs in users' processes. So it imports only the standard library, `ecoshare.core.turns`,
`ecoshare.base.disk`, `ecoshare.base.documents` and, late, torch and numpy.
"""
