"""Machines without a job are given back: Slurm lends them to others, and an autoscaler of Ray ends them.

::

    no job for some time ──► the run goes on without its devices ──► agent ends, settings are put back ──► given back
                             (a segment of the log)

A machine stays while a job waits, or is still to come, and the last one stays in any case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from ecoshare.cluster.remote_node import RemoteNode
from ecoshare.errors import EcoshareError
from ecoshare.jobs.quantities import format_duration
from ecoshare.runtime.nodes.run_node import LeavingDevices, NodeRun

_LOOK_S = 1.0
"""Time (s) between two looks."""


class IdleNodes:
    """Gives machines back.

    Attributes:
        leaving: Nodes that the run does without.
    """

    def __init__(
        self,
        idle_s: float,
        run: NodeRun,
        nodes: list[RemoteNode],
        note: Callable[[str], None],
        left: Callable[[str], None],
    ) -> None:
        """Nothing is given back yet.

        Args:
            idle_s: Time (s) without a job after which a machine is given back.
            run: The run.
            nodes: Nodes of the run; those that leave are taken out.
            note: Gets notes for the user.
            left: Gets the name of each node that has left.
        """
        self._idle_s, self._run, self._nodes, self._note, self._told = idle_s, run, nodes, note, left
        self._busy_s = dict[str, float]()  # time at which a node last had a job, by its name
        self.leaving = list[RemoteNode]()

    async def keep(self) -> None:
        """Look for machines without a job until cancelled."""
        while True:
            for node in reversed(self._nodes):  # jobs that come begin on the first ones
                now_s = self._run.now_s()
                if node.live or node.is_measuring:
                    self._busy_s[node.name] = now_s
                is_idle = now_s - self._busy_s.setdefault(node.name, now_s) >= self._idle_s
                if is_idle and not node.lost and node.give_back is not None:
                    self._run.leave(LeavingDevices(frozenset(node.devices), partial(self._left, node)))
            await asyncio.sleep(_LOOK_S)

    def _left(self, node: RemoteNode) -> None:
        self._nodes.remove(node)
        self.leaving.append(node)
        self._told(node.name)
        self._run.begin(self._give_back(node, self._run.now_s()))

    async def _give_back(self, node: RemoteNode, at_s: float) -> None:
        await node.finish()
        await node.close()
        assert node.give_back is not None, "the run must not keep it"
        try:
            await asyncio.to_thread(node.give_back)
        except EcoshareError as error:
            self._note(f"the node {node.name} is not used any more, and could not be given back: {error}")
            return
        idle, at = format_duration(self._idle_s), format_duration(at_s)
        self._note(f"the node {node.name} was given back at {at}, after {idle} without a job")
