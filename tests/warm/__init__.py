"""Commands and lane servers for tests, forked from processes which have loaded everything.

::

    pytest ──► zygote "command": ecoshare.cli, reports, ...  ──fork──► `ecoshare run ...`   (the controller)
           │                                                                │ asks for a server
           ├─► zygote "server": what a lane server has loaded  ──fork──► lane server ──fork──► jobs
           │
           └─► zygote "script": torch, and nothing of ecoshare ──fork──► a script alone, to compare with

A start costs 20 ms of processor time instead of 4 s. The process of a job is exactly as in a real run: its server was
forked from a process that was started by the same program and has loaded the same modules.

Differences from a real run: a server is not its controller's child, and it never loads. A script alone has torch loaded
already; the slow tests compare every script with `python script`. Tests of the command's
process, of the loading of torch, and of the environment that libraries read while they load start the real command:
they carry the marker `cold`.
"""

from tests.warm.command import (
    COLD,
    ROOT,
    Started,
    ecoshare,
    ending_what_runs,
    fork_script,
    fork_server,
    share_zygotes,
    spawned,
    wait_for,
)

__all__ = [
    "COLD",
    "ROOT",
    "Started",
    "ecoshare",
    "ending_what_runs",
    "fork_script",
    "fork_server",
    "share_zygotes",
    "spawned",
    "wait_for",
]
