"""`ecoshare top`: one view of devices and jobs, of a queue that is up or of a run that was recorded.

::

    queue ──► QueueWatch ──► TopView ──┐
                                       ├──► TopApp: devices, jobs, keys          (Textual)
    run folder ──► RecordedRun ────────┘      └─► screens: output of a job, explanation, help, question

Only the modules that draw import Textual, so that no other command loads it.
"""
