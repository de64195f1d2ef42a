"""Several runs on the same devices in virtual time: they take slices, and divide the memory, as runs of one machine do.

::

    run A   ▏█████▏     ▏█████▏         its lanes are open in its slices only
    run B         ▏█████▏     ▏█████▏

Each run has a simulator with a core of its own. Slices and parts of the memory follow the rules of live runs
(`core/slices.py`, `core/device_share.py`); a run takes its slice at once here, and none dies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ecoshare.core.device_share import DeviceShare
from ecoshare.core.events import SliceChanged
from ecoshare.core.slices import MemberState, MemoryWish, SliceTable
from ecoshare.simulation.cluster import Cluster
from ecoshare.simulation.result import SimulationResult
from ecoshare.simulation.simulator import Simulator, Watch

_LOOK_S = 0.2
"""Time (s) between two looks at the claims of other runs, as live runs have it."""


@dataclass(eq=False)
class SimulatedClaim:
    """Claim of a run to the memory of one device; see `core.device_share.RunClaim`.

    Attributes:
        present: Claims of all runs that are there, this one among them.
    """

    present: list[SimulatedClaim]
    memory_bytes: int
    wish: MemoryWish
    claimed_bytes: int = 0

    def others(self) -> list[SimulatedClaim]:
        """Claims of the other runs."""
        return [each for each in self.present if each is not self]

    def tell(self, claimed_bytes: int, wish: MemoryWish) -> None:
        """Claim so much memory, or less if other runs claim the rest."""
        free_bytes = self.memory_bytes - sum(each.claimed_bytes for each in self.others())
        self.claimed_bytes, self.wish = min(claimed_bytes, max(self.claimed_bytes, free_bytes)), wish


@dataclass(eq=False)
class SharingRun:
    """One of the runs.

    Attributes:
        name: Name that tells it from the others.
        user: Number of its user.
        shares: Part of the run in the memory of each device.
        runs: Whether it has its slice.
        ends: Whether it was told to end that.
        rest_w: Part of the run in the power (W) of the devices at rest.
        told: Whether its core knows that it has the devices, and the number of other runs there.
    """

    name: str
    user: int
    simulator: Simulator
    shares: list[DeviceShare] = field(default_factory=list)
    runs: bool = False
    ends: bool = False
    rest_w: float = 0.0
    told: tuple[bool, int] = (True, 0)


class RunsTogether:
    """Simulation of several runs of one machine."""

    def __init__(self, simulators: Sequence[Simulator], cluster: Cluster, users: Sequence[int] | None = None) -> None:
        """Prepare a simulation; `run` starts it.

        Args:
            simulators: Simulator of each run, with `Config.shares_memory`.
            cluster: The devices, which all of them use.
            users: Number of the user of each run; None if each has a user of its own.
        """
        self._devices = cluster.devices()
        self._idle_w = cluster.size * cluster.gpu.idle_w
        self._claims: dict[str, list[SimulatedClaim]] = {each.name: [] for each in self._devices}
        self._table, self._now_s, self._memory_look_s = SliceTable(), 0.0, math.inf
        numbers = range(len(simulators)) if users is None else users
        self._runs = [
            SharingRun(str(place), user, simulator)
            for place, (simulator, user) in enumerate(zip(simulators, numbers, strict=True))
        ]

    def run(self, watches: Sequence[Watch | None] | None = None) -> list[SimulationResult]:
        """Run until every job of every run has ended; return the results in the order of the runs.

        A run is there from the arrival of its first job to the end of its last one. The joules of devices at rest are
        divided equally among the runs that are there.

        Args:
            watches: For each run, the function that gets each of its events and the commands that followed.

        Raises:
            UsageError: Jobs wait for ever.
        """
        for each, watch in zip(self._runs, watches or [None] * len(self._runs), strict=True):
            each.simulator.lanes.close(True, 0.0)
            each.simulator.begin(watch)
        while live := [each for each in self._runs if not each.simulator.is_over]:
            first = min(live, key=lambda each: each.simulator.next_s)
            look_s = min(self._table.next_look_s(self._now_s), self._memory_look_s)
            self._now_s = max(self._now_s, min(first.simulator.next_s, look_s))
            if first.simulator.next_s <= look_s:
                if first.name not in self._table.members and first.simulator.next_s >= first.simulator.begins_s:
                    self._come(first)
                first.simulator.step()
                if first.simulator.is_over:
                    self._go(first)
            self._look()
        return [each.simulator.result() for each in self._runs]

    def _come(self, run: SharingRun) -> None:
        self._table.join(run.name, run.user, [each.name for each in self._devices], self._now_s)
        for device in self._devices:
            claim = SimulatedClaim(self._claims[device.name], device.memory_bytes, MemoryWish(0, number=int(run.name)))
            claim.present.append(claim)
            run.shares.append(DeviceShare(device.name, claim, device.memory_bytes))
        run.rest_w = self._idle_w
        self._divide_rest()

    def _go(self, run: SharingRun) -> None:
        self._table.leave(run.name, self._now_s)
        for claims in self._claims.values():
            claims[:] = [each for each in claims if each.wish.number != int(run.name)]
        self._divide_rest()

    @property
    def _here(self) -> list[SharingRun]:
        """Runs of which the first job has arrived, and not all have ended."""
        return [each for each in self._runs if each.name in self._table.members]

    def _divide_rest(self) -> None:
        """Divide the power at rest, and let all look at the claims to the memory again."""
        here = self._here
        for each in here:
            rest_w = self._idle_w / len(here)
            each.simulator.account.work(0, rest_w - each.rest_w, self._now_s)
            each.rest_w = rest_w
        self._memory_look_s = self._now_s

    def _look(self) -> None:
        """Let the table know what the runs want, carry out its orders, and tell the cores of changes."""
        for each in self._here:
            self._hear(each)
        while orders := self._table.look(self._now_s):
            for order in orders:
                run = self._runs[int(order.member.name)]
                if order.begins:
                    run.runs, run.ends = True, False
                    self._table.took(run.name, self._now_s)
                    run.simulator.lanes.close(False, self._now_s)
                else:
                    run.ends = True
                    self._hear(run)
        if self._now_s >= self._memory_look_s or any(each.simulator.memory_answers for each in self._here):
            self._look_at_memory()
        for each in self._here:
            self._tell(each)

    def _hear(self, run: SharingRun) -> None:
        """Note whether a run wants the devices, and end its slice if it is over or not used."""
        lanes, member = run.simulator.lanes, self._table.members[run.name]
        wants = lanes.are_wanted
        if wants and member.state is MemberState.IDLE:
            self._table.wants(run.name, self._now_s)
        if run.runs and (run.ends or (not wants and self._others(run))):
            if not (lanes.are_closed or run.simulator.measuring.open):
                lanes.close(True, self._now_s)
            if lanes.are_closed and not lanes.are_held:
                run.runs = run.ends = False
                self._table.ended(run.name, self._now_s, lanes.are_wanted)
        elif not wants and member.state is MemberState.WAITS:
            self._table.ended(run.name, self._now_s, wants=False)

    def _others(self, run: SharingRun) -> int:
        """Number of other runs that want the devices."""
        members = self._table.members.values()
        return sum(1 for each in members if each.name != run.name and each.state is not MemberState.IDLE)

    def _tell(self, run: SharingRun) -> None:
        """Tell the core of a run whether it has the devices, if that has changed."""
        others = self._others(run)
        told = run.runs or not others, others
        if told != run.told:
            run.told = told
            run.simulator.tell(SliceChanged(self._now_s, *told))

    def _look_at_memory(self) -> None:
        """Let each run claim its part of the memory. All look again after a while until no claim changes."""
        before = self._memory()
        for run in self._here:
            for share in run.shares:
                share.answer = run.simulator.memory_answers.pop(share.device, share.answer)
                if (left := share.look(self._now_s)) is not None:
                    run.simulator.tell(replace(left, at_s=self._now_s))
        self._memory_look_s = math.inf if self._memory() == before else self._now_s + _LOOK_S

    def _memory(self) -> list[tuple[int, MemoryWish]]:
        return [(each.claimed_bytes, each.wish) for claims in self._claims.values() for each in claims]
