"""Real driver, node, log and resume in virtual time, with a stand-in for what runs the lanes.

::

    run_opening.start ──► Driver ──► Node ──► lane tables (real) ◄── VirtualLanes: jobs, which iterate in virtual time
                            │          └────► messages (real)    ◄──► and die, hang, answer late or never, as told
                            └── event log, samples, summary (real)

Time passes only when nothing is left to do at a moment (`VirtualClock`), so a run of an hour takes a second, and the
same run twice gives the same log. Nothing here starts a process or asks the machine for the time.
"""
