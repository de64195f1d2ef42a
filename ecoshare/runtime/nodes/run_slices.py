"""A run that shares its devices with other runs of the machine works in slices of seconds.

::

    other runs ◄──► DeviceSlices ──begin──► lanes open   ──► jobs take turns as ever
                    (its thread)  ──end───► lanes closed ──► each holder hands over at its boundary, or is cut
                                  ◄─ended── no lane has a holder any more

Jobs of the run start outside of its slices, too, and wait for their turn. A window or a measurement is not interrupted:
the slice ends after it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from ecoshare.base.clock import loop_s
from ecoshare.core.events import SliceChanged
from ecoshare.core.slices import ENDS_WITHIN_S
from ecoshare.devices.device_slices import DeviceSlices, ListedMember
from ecoshare.lane import cuts
from ecoshare.lane.tables.lane_table import LaneTable
from ecoshare.lane.tables.table_layout import NO_SLOT
from ecoshare.runtime.measuring.device_session import DeviceSession
from ecoshare.runtime.nodes.run_node import NodeRun

_LOOK_S = 0.05
"""Time (s) between two looks whether jobs want their turn, and whether other runs are there."""

_DRAIN_LOOK_S = 0.004
"""Time (s) between two looks at lanes that are closed, and between two wishes for a cut."""

_MOST_TOLD = 3
"""Most other runs that are named at once."""

_UNUSED_S = 0.2
"""Time (s) without a job that wants its turn, after which the run leaves its slice to the others."""


class RunSlices:
    """Opens and closes the lanes of a run on this machine."""

    def __init__(
        self,
        keys: Collection[str],
        tables: Mapping[int, LaneTable],
        sessions: Collection[DeviceSession],
        run: NodeRun,
    ) -> None:
        """No slice so far: the lanes are to be closed when they are made.

        Args:
            keys: Keys of the devices; empty if no other run can share them.
            tables: Tables of the lanes.
            sessions: Sessions of the devices.
            run: The run.
        """
        self.is_closed = bool(keys)
        self._keys, self._tables, self._sessions, self._run = keys, tables, sessions, run
        self._told = SliceChanged(0.0, True, 0)
        self._present: Sequence[ListedMember] = ()
        self._wanted_s = self._counted_s = 0.0
        self._shared_s: tuple[float, float] | None = None

    @property
    def shared_s(self) -> tuple[float | None, float | None]:
        """Time (s) so far for which other runs had the devices, and the part of it of which they count the idle joules.

        Both are None if no run has shared the devices.
        """
        return self._shared_s or (None, None)

    async def keep(self) -> None:
        """Work in slices until this is cancelled."""
        if not self._keys:
            return
        loop, orders = asyncio.get_running_loop(), asyncio.Queue[bool]()

        def hear(begins: bool) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the run is over
                loop.call_soon_threadsafe(orders.put_nowait, begins)

        slices = DeviceSlices(
            self._keys, partial(hear, True), partial(hear, False), str(self._run.folder.path.absolute())
        )
        self._wanted_s = loop_s()
        slices.open()
        slices.want(True)
        draining: asyncio.Task[None] | None = None
        try:
            while True:
                begins: bool | None = None
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):  # `wait_for` may lose a cancellation, in Python 3.11
                        begins = await orders.get()
                others = slices.others
                is_draining = draining is not None and not draining.done()
                if begins and not is_draining:
                    self._set_closed(False)
                    self._wanted_s = loop_s()
                elif not is_draining and (begins is False or self._is_unused(slices, others)):
                    draining = loop.create_task(self._end(slices))
                self._look(slices.fault, others)
        finally:
            if draining is not None:
                draining.cancel()
            slices.close()  # in this thread: the loop may be about to close

    def _set_closed(self, is_closed: bool) -> None:
        self.is_closed = is_closed
        for table in self._tables.values():
            table.close_turns(is_closed)

    def _is_unused(self, slices: DeviceSlices, others: Sequence[ListedMember]) -> bool:
        """Note whether jobs want their turn. Return whether the slice is not used, and another run could use it."""
        if not others and not self.is_closed:
            self._wanted_s = loop_s()
            return False
        if any(table.wants_turn for table in self._tables.values()):
            self._wanted_s = loop_s()
            slices.want(True)
        is_unused = loop_s() - self._wanted_s > _UNUSED_S and any(each.state != "idle" for each in others)
        if is_unused:
            slices.want(False)
        return is_unused and not self.is_closed

    async def _end(self, slices: DeviceSlices) -> None:
        """Close the lanes, and wait until no job has the turn.

        A job that keeps its lane, or an iteration that cannot be cut, goes on in the slices of others. A rank that
        waits for the turns of the other ranks has them in the next slice.
        """
        while any(each.windows or each.measurements for each in self._sessions):
            await asyncio.sleep(_DRAIN_LOOK_S)
        self._set_closed(True)
        since_s = loop_s()
        while (held := self._held()) and loop_s() - since_s < ENDS_WITHIN_S:
            for table in held:
                if pid := table.ask_cut_to_close(since_s):
                    cuts.tell(pid)
            await asyncio.sleep(_DRAIN_LOOK_S)
        slices.ended()

    def _held(self) -> list[LaneTable]:
        """Tables of the lanes in which a job has the turn."""
        return [table for table in self._tables.values() if table.header.holder != NO_SLOT]

    def _look(self, fault: str, present: Sequence[ListedMember]) -> None:
        """Report whether the run has its devices, and how many other runs want them, if that has changed."""
        others = sum(1 for each in present if each.state != "idle")
        if present != self._present or fault:
            self._present = present
            self._run.warn("slices", _named(present) if others else "")
            self._run.warn("no slices", fault and f"takes no turns with other runs of this machine: {fault}")
        self._count(len(present))
        runs = not self.is_closed or not others
        if (runs, others) != (self._told.runs, self._told.others):
            self._told = SliceChanged(0.0, runs, others)
            self._run.tell(partial(SliceChanged, runs=runs, others=others))

    def _count(self, present: int) -> None:
        """Count the time since the last look, with the number of other runs that are there."""
        now_s = loop_s()
        passed_s, self._counted_s = now_s - (self._counted_s or now_s), now_s
        if present or self._shared_s is not None:
            away_s, idle_s = self._shared_s or (0.0, 0.0)
            away_s += passed_s if self.is_closed and present and not self._held() else 0.0
            self._shared_s = away_s, idle_s + passed_s * present / (1 + present)


def _named(runs: Sequence[ListedMember]) -> str:
    """Other runs in words, with the part of the time for which each has had the devices."""
    more = len(runs) - _MOST_TOLD
    words = [*map(str, runs[:_MOST_TOLD]), *([f"{more} more"] if more > 0 else [])]
    return f"takes turns with {'; '.join(words)}"
