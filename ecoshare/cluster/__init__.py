"""Nodes of a run on other machines: the run decides, and an agent on each machine carries out.

::

    run: core, log, API ── RemoteNode ──► NodeLink ──── lines of JSON ────► agent: Node ──► lanes, devices
      one process                         a pipe, or                        one process on each machine
                                          an actor of Ray
"""
