"""Several nodes as one: each command goes to the node of its device, its lane or its job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any

from ecoshare.cluster.idle_nodes import IdleNodes
from ecoshare.cluster.node_joining import JoiningNode, NodeJoining
from ecoshare.cluster.remote_gang import RemoteGang
from ecoshare.cluster.remote_node import NodeSetup, RemoteNode
from ecoshare.core.commands import (
    ApplySetting,
    AwaitRequests,
    KillJob,
    LimitMemory,
    MeasureSetting,
    MoveJob,
    OpenLane,
    ParkJob,
    ProfileJob,
    ResumeJob,
    SetCaching,
    SetShares,
    StartJob,
)
from ecoshare.devices.knob import KnobSpec
from ecoshare.lane.messages import Ready
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.samples import SampleFile
from ecoshare.runtime.nodes.run_node import AttemptReading, DeviceReading, NodeRun
from ecoshare.values.attempt import Usage


class JoinedNodes:
    """All nodes of a run; see `RunNode`."""

    def __init__(
        self,
        setups: Sequence[NodeSetup],
        folder: RunFolder,
        joining: NodeJoining | None,
        idle_s: float | None,
        left: Callable[[str], None],
        run: NodeRun,
    ) -> None:
        """Nodes that have been opened.

        Args:
            setups: Facts about each node.
            folder: The run folder.
            joining: Opens nodes of machines that come later; None if none can.
            idle_s: Time (s) without a job after which a machine is given back; None to keep all.
            left: Gets the name of each node that was given back.
            run: The run.
        """
        self._samples = SampleFile(folder.samples, *run.hear_samples)
        self._run, self._joining = run, joining
        self._owners: dict[str, RemoteNode | RemoteGang] = {}  # of each job in progress
        self._nodes: list[RemoteNode] = []
        self._idle = None if idle_s is None else IdleNodes(idle_s, run, self._nodes, setups[0].notes.append, left)
        self._of_device: dict[str, RemoteNode] = {}
        self._of_lane: dict[int, RemoteNode] = {}
        self.knobs: dict[str, Sequence[KnobSpec]] = {}
        for setup in setups:
            self._add(setup)

    def _add(self, setup: NodeSetup) -> RemoteNode:
        self._nodes.append(node := RemoteNode(setup, self._run, self._samples.write, self._owners))
        self._of_device.update(dict.fromkeys(setup.devices, node))
        self.knobs.update({each: setup.knobs[each].specs for each in setup.devices if each in setup.knobs})
        return node

    def _count(self) -> int:
        return sum(not node.lost for node in self._nodes)

    def _join(self, found: JoiningNode) -> None:
        self._run.begin(self._add(found.setup).keep())
        self._run.join(found.devices)

    # Life

    @property
    def ready(self) -> Ready | None:
        """See `RunNode`: that of the first node which has one."""
        return next((node.ready for node in self._nodes if node.ready is not None), None)

    @property
    def is_measuring(self) -> bool:
        """See `RunNode`."""
        return any(node.is_measuring for node in self._nodes)

    waited = False
    """See `RunNode`. Runs that only measure need one machine."""

    async def open(self) -> None:
        """See `RunNode`. The agents have opened their nodes already."""

    def works(self) -> Iterator[Coroutine[Any, Any, None]]:
        """See `RunNode`."""
        yield from [node.keep() for node in self._nodes]
        if self._joining is not None:
            yield self._joining.keep(self._count, self._run.waiting_jobs, self._join)
        if self._idle is not None:
            yield self._idle.keep()

    async def first_samples(self) -> None:
        """See `RunNode`."""
        await asyncio.gather(*(node.first_samples() for node in self._nodes))

    def keep_only(self, names: Collection[str]) -> None:
        """See `RunNode`."""
        for node in self._nodes:
            node.keep_only(names)

    def end_silent_server(self) -> None:
        """See `RunNode`."""
        for node in self._nodes:
            node.end_silent_server()

    async def finish(self) -> None:
        """See `RunNode`."""
        await asyncio.gather(*(node.finish() for node in self._nodes))

    async def close(self) -> None:
        """See `RunNode`."""
        leaving = self._idle.leaving if self._idle is not None else ()
        await asyncio.gather(*(node.close() for node in (*self._nodes, *leaving)))
        self._samples.close()

    # Readings

    @property
    def in_progress(self) -> Collection[str]:
        """See `NodeReadings`."""
        return self._owners.keys()

    def attempt(self, name: str) -> AttemptReading:
        """See `NodeReadings`."""
        return self._owners[name].attempt(name) or AttemptReading(Usage(), (), ())

    def device(self, name: str) -> DeviceReading:
        """See `NodeReadings`."""
        return self._of_device[name].device(name)

    # Commands

    def open_lane(self, command: OpenLane, now_s: float) -> None:
        """See `NodeCommands`."""
        self._of_lane[command.lane] = self._of_device[command.device]
        self._on_device(command, now_s)

    def start_job(self, command: StartJob, now_s: float) -> None:
        """See `NodeCommands`."""
        parts: dict[RemoteNode, list[int]] = {}
        for lane in sorted(command.lanes):
            parts.setdefault(self._of_lane[lane], []).append(lane)
        if len(parts) == 1:
            next(iter(parts)).carry_out(command)
            return
        lanes = [(node, tuple(own)) for node, own in parts.items()]
        gang = RemoteGang(command, lanes, self._run, partial(self._owners.__delitem__, command.job))
        self._owners[command.job] = gang
        gang.begin()

    def _on_device(
        self,
        command: OpenLane | SetCaching | ApplySetting | MeasureSetting | AwaitRequests,
        now_s: float,
    ) -> None:
        """See `NodeCommands`."""
        self._of_device[command.device].carry_out(command)

    set_caching = apply_setting = measure_setting = await_requests = _on_device

    def set_shares(self, command: SetShares, now_s: float) -> None:
        """See `NodeCommands`."""
        self._of_lane[command.lane].carry_out(command)

    def _of_attempt(self, command: LimitMemory | ParkJob | ResumeJob | MoveJob | KillJob, now_s: float) -> None:
        """See `NodeCommands`."""
        if (node := self._owners.get(command.job)) is not None:  # else its end is on the way to the core
            node.carry_out(command)

    limit_memory = park_job = resume_job = move_job = kill_job = _of_attempt

    def profile_job(self, command: ProfileJob, now_s: float) -> None:
        """See `NodeCommands`. If the attempt has ended meanwhile, any node tells so."""
        well = next((node for node in self._nodes if not node.lost), self._nodes[0])
        self._owners.get(command.job, well).carry_out(command)
