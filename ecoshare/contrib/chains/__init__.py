"""Chains of batch jobs: when to submit the successor, from a prediction of the wait; and a simulated queue to judge it.

::

    squeue, sacct  ──►  QueueSight  ──►  WaitPredictor  ──►  Provisioner: submit now, or look again in t seconds
    BackfillQueue  ──►      │
    (virtual time)          └─ the same value from both

No module here runs a command or reads a clock.
"""
