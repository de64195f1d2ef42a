"""A queue: a run that stays open. Commands and programs of the same user submit jobs to it over a socket.

::

    ecoshare submit, status, ... ──► client ══ HTTP on a Unix socket ══► server, routes
                                                                            │ calls
    queue.db ◄── JobStore ◄───────────────────────────────────────────── LiveQueue
    (what was submitted, and how it ended)                                  │ submit, requests │ ends
                                                                        runtime/run.py   ──► core, log, lanes

`opening.py` opens a queue, and goes on with one that was stopped or killed. The core decides, as in any run.
"""
