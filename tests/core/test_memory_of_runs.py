"""Runs that share the memory of one GPU: each has its own core, and no job of any lacks memory that it was promised.

::

    core of run A ──ShareMemory──► claim A ┐
                  ◄──MemoryLeft──          ├ one memory; the claims of all runs never exceed it
    core of run B ──ShareMemory──► claim B ┘

Claims are those of the simulator; live runs keep them in files (`tests/devices/test_memory_claims.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ecoshare.base.device import Device
from ecoshare.core.commands import ShareMemory
from ecoshare.core.device_share import DeviceShare
from ecoshare.core.events import SCHEMA, Config, Done, Event, MemoryLeft, RunOpened
from ecoshare.core.memory import KEPT_ALLOWANCE_BYTES
from ecoshare.core.records import JobState
from ecoshare.core.scheduler import Scheduler
from ecoshare.core.slices import MemoryWish, shared_between
from ecoshare.simulation.runs_together import SimulatedClaim
from tests.driver.memory_world import MIB, Load, MemoryWorld, Process, drawn

GIB = 1 << 30
_LOOK_S = 0.05


class Claim(SimulatedClaim):
    """Claim of a run, which is checked against those of the others."""

    def __init__(self, present: list[SimulatedClaim], memory_bytes: int) -> None:
        super().__init__(present, memory_bytes, MemoryWish(0))

    def tell(self, claimed_bytes: int, wish: MemoryWish) -> None:
        super().tell(claimed_bytes, wish)
        assert sum(each.claimed_bytes for each in self.present) <= self.memory_bytes


class RunWorld(MemoryWorld):
    """One of the runs.

    Attributes:
        least_bytes: Least memory that it had a claim to while it had jobs.
    """

    def __init__(self, number: int, seed: int, config: Config, claim: Claim, loads: dict[str, Load]) -> None:
        super().__init__(seed, config, claim.memory_bytes, {f"{number}-{name}": each for name, each in loads.items()})
        self._claim, self._shared = claim, DeviceShare("cuda:0", claim, claim.memory_bytes)
        self.rose = self.fell = 0

    def begin(self) -> None:
        super().begin()
        self._claim.present.append(self._claim)
        self._later(0.0, self._look_at_claims)

    @property
    def is_over(self) -> bool:
        """Whether all of its jobs have ended."""
        return len(self.core.jobs) == len(self._loads) and not self.core.live_jobs

    def end(self) -> None:
        """Let its claim go."""
        self._claim.present.remove(self._claim)

    def share_memory(self, command: ShareMemory, now_s: float) -> None:
        self._shared.answer = command
        self._answer(command)

    def _look_at_claims(self, at_s: float) -> Event | None:
        before = self._claim.claimed_bytes
        left = self._shared.look(at_s)
        self.rose += self._claim.claimed_bytes > before
        self.fell += self._claim.claimed_bytes < before
        if not self.is_over:
            self._later(_LOOK_S * self._draw.random(), self._look_at_claims)
        return None if left is None else replace(left, at_s=at_s)

    def _resize(self, process: Process, size_bytes: int) -> bool:
        taken = self._taken["cuda:0"]
        together = sum(taken.values()) - taken.get(process.name, 0) + size_bytes
        if together > self._claim.claimed_bytes + KEPT_ALLOWANCE_BYTES * (len(taken) + 1):
            claimed = self._claim.claimed_bytes // MIB
            self.failures.append(f"{process.name} makes it {together // MIB} MiB, of {claimed} MiB that are claimed")
        return super()._resize(process, size_bytes)


def played(worlds: Sequence[RunWorld], from_s: Sequence[float]) -> None:
    """Let the runs happen beside each other, each from its time (s) on."""
    for world, at_s in zip(worlds, from_s, strict=True):
        world._now_s = at_s
    coming, there = sorted(zip(from_s, range(len(worlds)), worlds, strict=True)), list[RunWorld]()
    while coming or there:
        next_s = min((world.next_s for world in there), default=float("inf"))
        if coming and coming[0][0] <= next_s:
            there.append(world := coming.pop(0)[2])
            world.begin()
            continue
        world = min(there, key=lambda each: each.next_s)
        world.step()
        if world.is_over and world.next_s == float("inf"):
            there.remove(world)
            world.end()


@given(
    seed=st.integers(0, 2**32),
    policies=st.lists(st.sampled_from(["fifo", "srtf", "pack", "fair", "priority", "energy"]), min_size=2, max_size=3),
    lanes=st.integers(1, 3),
    jobs=st.integers(1, 6),
    gib=st.integers(8, 24),
    from_s=st.lists(st.floats(0.0, 5.0), min_size=3, max_size=3),
)
def test_no_job_of_any_run_lacks_memory_that_it_was_promised(
    seed: int, policies: list[str], lanes: int, jobs: int, gib: int, from_s: list[float]
) -> None:
    """All jobs end, too: one that fits the GPU alone runs at the latest when the other runs have ended."""
    present: list[SimulatedClaim] = []
    worlds = [
        RunWorld(
            number,
            seed + number,
            Config(policy, lanes, 4, enforces_memory=True, shares_memory=True),
            Claim(present, gib * GIB),
            drawn(seed + number, gib * GIB, jobs),
        )
        for number, policy in enumerate(policies)
    ]
    played(worlds, from_s[: len(worlds)])
    for world in worlds:
        assert not world.failures
        assert world.states() == {JobState.COMPLETED}
        core = Scheduler()
        assert all(core.handle(event) == commands for event, commands in world.log), "it does not replay"


def test_memory_goes_back_and_forth_in_these_worlds() -> None:
    """If this failed, the test above would show little."""
    rose = fell = 0
    for seed in range(20):
        present: list[SimulatedClaim] = []
        worlds = [
            RunWorld(
                number,
                seed,
                Config("fair", 2, 4, enforces_memory=True, shares_memory=True),
                Claim(present, 16 * GIB),
                drawn(seed + number, 16 * GIB, 6),
            )
            for number in range(2)
        ]
        played(worlds, [0.0, 1.0])
        rose += sum(world.rose for world in worlds)
        fell += sum(world.fell for world in worlds)
    assert rose > 100 and fell > 50, (rose, fell)


def test_another_segment_goes_on_with_the_memory_that_is_left() -> None:
    """The core answers the same `MemoryLeft`: else the run would not believe what its jobs hold, and leave nothing."""
    core, device = Scheduler(), Device("cuda:0", "here", 16 * GIB)
    opened = RunOpened(0.0, SCHEMA, Config("fair", enforces_memory=True, shares_memory=True), (device,))
    for command in core.handle(opened):
        core.handle(Done(0.0, command.id))
    for command in core.handle(MemoryLeft(1.0, "cuda:0", 6 * GIB, 1, 3)):
        core.handle(Done(1.0, command.id))
    segment = core.segment
    assert segment is not None and segment.left == (("cuda:0", 6 * GIB, 3),)
    told = [each for each in Scheduler().handle(replace(opened, segment=segment)) if isinstance(each, ShareMemory)]
    assert [(each.device, each.number) for each in told] == [("cuda:0", 3)]


@given(wanted=st.lists(st.integers(0, 100), min_size=1, max_size=6), memory_bytes=st.integers(0, 200))
def test_memory_is_divided_max_min(wanted: list[int], memory_bytes: int) -> None:
    parts = shared_between(memory_bytes, [MemoryWish(each) for each in wanted])
    wanting = [(part, each) for part, each in zip(parts, wanted, strict=True) if each]
    assert sum(parts) <= memory_bytes and (not wanting or sum(parts) > memory_bytes - len(wanted))
    assert all(part == 0 for part, each in zip(parts, wanted, strict=True) if not each)
    for part, each in wanting:
        assert part >= min(each, memory_bytes // len(wanting)), "each has its equal part, or all that it wants"
        if part < each:  # then none that has more than it wants has that at the cost of this one
            assert all(other <= max(part + 1, least) for other, least in wanting)


def test_the_run_that_waits_longest_gets_what_its_first_job_needs() -> None:
    first, second = MemoryWish(160, 70, 1.0), MemoryWish(70, 70, 2.0)
    assert shared_between(100, [first, second]) == [85, 15]
    assert shared_between(100, [MemoryWish(160, 70, 3.0), second]) == [30, 70]
    assert shared_between(100, [MemoryWish(160), second]) == [30, 70], "one that has jobs waits for their ends"
