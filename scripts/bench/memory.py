"""Memory that lanes keep: schedules without a lack of memory, emptied caches at hand-overs, lanes that are re-drawn.

- *Schedules*: random jobs, policies, lanes, arrivals, moves and kills in virtual time (`tests/driver/memory_world.py`).
  The core decides as in a live run. The judge is a memory of its own with torch's segments and blocks. It shares
  demands with the core, and nothing else. Jobs take exactly what a profile of them would say. In a second set turns are
  cut inside iterations.
- *Hand-overs*: real processes in a lane, with the real table and turn. To empty a cache and to fill it again are waits
  of the stated time, since no GPU was there to measure it.
- *Lanes*: 100 jobs from Salus' catalogue on one GPU of 16 GB, simulated, with their measured memory, at the load of the
  paper's headline. Fixed lanes are those that ecoshare had before: equal parts of the device, and a job stays in its
  lane. A job that is larger than its part can never run there, so mean JCTs are those of the jobs that fit. Turns and
  the order of jobs are equal in both.
- *Parked jobs*: the same catalogue in one lane, with host memory for parked jobs and without. The time of a transfer is
  an assumption (`Costs.transfer_s_per_gib`), since no GPU was there to measure it. The core learns it from the
  simulator, as from a device.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, quantiles
from unittest import mock

from ecoshare.core.commands import Command, ResumeJob, StartJob
from ecoshare.core.events import Config, Event, JobExited, Parked, Resumed
from ecoshare.core.memory import lane_bytes
from ecoshare.core.placement.memory_fit import MemoryFit
from ecoshare.core.placement.strategies import strategy_choice
from ecoshare.core.placement.strategies.queue_placement import LaneShaping
from ecoshare.core.records import Job, JobState, Lane
from ecoshare.lane.tables.lane_table import LaneTable
from ecoshare.lane.turn import LaneTurn
from ecoshare.simulation.cluster import GPUS, Cluster
from ecoshare.simulation.costs import Costs
from ecoshare.simulation.simulator import Simulator
from ecoshare.simulation.traces.generate import generate
from ecoshare.simulation.traces.job_trace import Trace
from ecoshare.simulation.world import World
from scripts.bench.benchmarking import DataOptions, Figure, add_data, median, run_benchmark, say
from tests.driver.memory_world import MemoryWorld, drawn, short_stays

GIB = 1 << 30
PARKS = ("srtf", "pack", "fair", "priority")
POLICIES = ("fifo", "srtf", "pack", "fair", "priority", "energy")
SCHEDULES, QUICK_SCHEDULES = 10_000, 1_000
MOST_IN_LANE = 100
HOST_BYTES = 64 << 30
JOBS, SEEDS, QUICK_SEEDS, QUICK_JOBS = 100, 10, 2, 40


class MemoryOptions(DataOptions):
    """Options of this benchmark.

    Attributes:
        only: Part to run, `lanes`, `parked` or `cuts`; None for all.
    """

    only: str | None


def measure(options: MemoryOptions) -> list[Figure]:
    """All figures, or those of one part."""
    if options.only == "parked":
        return parked_jobs(options)
    count = QUICK_SCHEDULES if options.quick else SCHEDULES
    if options.only == "cuts":
        return cut_schedules(count)
    figures = schedules(count) + cut_schedules(count)
    for cost_ms in (1.0, 3.0, 10.0):
        figures += hand_overs(cost_ms / 1000.0, 6.0 if options.quick else 20.0)
    if options.data is not None:
        figures += lanes(options.data, QUICK_SEEDS if options.quick else SEEDS)
    return figures if options.only == "lanes" else figures + parked_jobs(options)


def parked_jobs(options: DataOptions) -> list[Figure]:
    """Figures of parked jobs."""
    figures = parked_schedules(QUICK_SCHEDULES if options.quick else SCHEDULES)
    if options.data is not None:
        figures += parked(options.data, 1 if options.quick else SEEDS, QUICK_JOBS if options.quick else JOBS)
    return figures


def cut_schedules(count: int) -> list[Figure]:
    """Random schedules in which turns are cut inside iterations, wherever caches are kept, and jobs are parked."""

    def world(seed: int) -> MemoryWorld:
        device_bytes, policy = (8 + seed % 17) * GIB, POLICIES[seed % len(POLICIES)]
        host_bytes = 16 * GIB if seed % 2 else 0
        config = Config(policy, 1 + seed // 6 % 3, 4, enforces_memory=True, host_bytes=host_bytes)
        return MemoryWorld(seed, config, device_bytes, drawn(seed, device_bytes, 2 + seed % 7), cut_share=0.6)

    return _kept_promises("cut schedules", count, world, lambda each: each.cuts, "{:,} cuts")


def schedules(count: int) -> list[Figure]:
    """Random schedules on pretended devices."""
    lacking = unfinished = jobs = hand_overs = emptied = 0
    for seed in range(count):
        device_bytes = (8 + seed % 9) * GIB
        config = Config(POLICIES[seed % len(POLICIES)], 1 + seed // 6 % 3, 4 + seed % 5, enforces_memory=True)
        loads = drawn(seed, device_bytes, 2 + seed % 7)
        world = MemoryWorld(seed, config, device_bytes, loads, devices=1 + seed // 18 % 2).run()
        lacking += len(world.failures)
        unfinished += sum(state is not JobState.COMPLETED for state in world.states())
        jobs, hand_overs, emptied = jobs + len(loads), hand_overs + world.hand_overs, emptied + world.emptied
    say(f"{count:,} schedules: {jobs:,} jobs, {hand_overs:,} hand-overs, {emptied:,} with an emptied cache")
    note = f"{count:,} schedules, {jobs:,} jobs, {hand_overs:,} hand-overs"
    return [
        Figure("schedules: lacks of promised memory", lacking, "", "<= 0", note),
        Figure("schedules: with a job that did not complete", unfinished, "", "<= 0", note),
        Figure("schedules: hand-overs with an emptied cache", emptied / hand_overs, "of all"),
    ]


def parked_schedules(count: int) -> list[Figure]:
    """Random schedules in which jobs are parked as often as possible, after moments in their places."""

    def world(seed: int) -> MemoryWorld:
        device_bytes, policy = (8 + seed % 9) * GIB, PARKS[seed % len(PARKS)]
        config = Config(
            policy, 1 + seed // 4 % 3, 1 + seed // 12 % 3, enforces_memory=True, host_bytes=(4 + seed % 13) * GIB
        )
        loads = drawn(seed, device_bytes, 3 + seed % 7)
        return MemoryWorld(seed, config, device_bytes, loads, devices=1 + seed // 36 % 2)

    return _kept_promises("schedules with parked jobs", count, world, lambda each: each.parks, "parked {:,} times")


def _kept_promises(
    name: str, count: int, make: Callable[[int], MemoryWorld], number: Callable[[MemoryWorld], int], words: str
) -> list[Figure]:
    """Lacks of promised memory in random schedules in which jobs keep their places for moments only.

    Args:
        name: Name of the schedules.
        count: Number of schedules; their seeds follow each other.
        make: Makes the world of a seed.
        number: Returns how often that happened in a world of which the schedules are about.
        words: Words for the sum of these numbers.
    """
    lacking = unfinished = jobs = happened = 0
    with short_stays():
        for world in (make(seed).run() for seed in range(count)):
            lacking += len(world.failures)
            unfinished += sum(state is not JobState.COMPLETED for state in world.states())
            jobs, happened = jobs + len(world.core.jobs), happened + number(world)
    note = f"{count:,} schedules, {jobs:,} jobs, {words.format(happened)}"
    say(f"{name}: {note}")
    return [
        Figure(f"{name}: lacks of promised memory", lacking, "", "<= 0", note),
        Figure(f"{name}: jobs that did not complete", unfinished, "", "<= 0", note),
    ]


@dataclass
class _Cache:
    """Cache that takes a while to empty and to fill."""

    cost_s: float
    is_full: bool = False

    def empty(self) -> None:
        if self.is_full:
            time.sleep(self.cost_s / 2)
        self.is_full = False

    def fill(self) -> None:
        if not self.is_full:
            time.sleep(self.cost_s / 2)
        self.is_full = True


def hand_overs(cost_s: float, length_s: float, jobs: int = 3, iteration_s: float = 0.01) -> list[Figure]:
    """Cost of emptied caches in a lane of real processes, and the longest wait."""
    with tempfile.TemporaryDirectory() as folder:
        table = LaneTable.create(Path(folder, "lane0"))
        table.set_caching(False)
        for slot in range(jobs):
            table.seat(slot)
        ends_s = time.monotonic() + length_s
        pids = [_train(table.path, slot, cost_s, iteration_s, ends_s) for slot in range(jobs)]
        time.sleep(0.9 * length_s)
        slots, header = table.slots[:jobs], table.header
        held_s = fmean([slot.held_s for slot in slots]) * jobs
        turns, waits_s = sum(slot.handovers for slot in slots), [slot.longest_wait_s for slot in slots]
        part, quantum_s, bound_s = turns * cost_s / held_s, header.quantum_s, header.bound_s
        for pid in pids:
            os.waitpid(pid, 0)
    name = f"hand-over with an emptied cache, {1000 * cost_s:g} ms"
    note = f"quantum {1000 * quantum_s:.0f} ms; {jobs} jobs, iterations of {1000 * iteration_s:g} ms"
    return [
        Figure(f"{name}: part of the time", 100.0 * part, "%", "<= 1", note),
        Figure(f"{name}: longest wait over its bound", max(waits_s) / bound_s, "", "<= 1", note),
    ]


def _train(path: str, slot: int, cost_s: float, iteration_s: float, ends_s: float) -> int:
    """Start a process that takes turns until a moment. It works by waiting, so the speed of the machine has no part."""
    pid = os.fork()
    if pid:
        return pid
    cache = _Cache(cost_s)
    turn = LaneTurn(LaneTable(path), slot, empty=cache.empty)
    turn.take()
    while time.monotonic() < ends_s:
        cache.fill()
        time.sleep(iteration_s)
        turn.count(evaluating=False)
        turn.offer(lambda: None)
    turn.leave()
    os._exit(0)


class _FixedLanes(MemoryFit):
    """Memory fit of lanes that are equal parts of their device."""

    parts = 1

    def fits(self, job: Job, lane: Lane) -> bool:
        """See `MemoryFit`; the jobs of a lane need no more than its part."""
        demands = [*(each.demand for each in lane.jobs.values()), self.demand(job, lane)]
        return super().fits(job, lane) and lane_bytes(demands) <= lane.device.memory_bytes // self.parts


@contextmanager
def _fixed(parts: int) -> Iterator[None]:
    """Context in which simulations have fixed lanes."""
    never: Callable[..., list[Command]] = lambda *_how: []  # noqa: E731
    with (
        mock.patch.object(_FixedLanes, "parts", parts),
        mock.patch.object(strategy_choice, "MemoryFit", _FixedLanes),
        mock.patch.multiple(LaneShaping, join=never, split=never),
    ):
        yield


def lanes(data: Path, seeds: int) -> list[Figure]:
    """Mean JCT with lanes that are re-drawn, over that with fixed lanes; jobs on the device at once."""
    figures = []
    for policy in ("pack", "srtf"):
        for parts in (2, 3):
            ratios, left_out, residents = [], [], []
            for seed in range(seeds):
                trace = generate("salus", JOBS, seed, data)
                fitting = _within(trace, GPUS["p100"].memory_bytes // parts)
                with _fixed(parts):
                    before = _simulated(policy, parts, fitting)
                after = _simulated(policy, parts, fitting)
                ratios.append(after[0] / before[0])
                residents.append((before[1], after[1]))
                left_out.append(len(trace.jobs) - len(fitting.jobs))
            was, now = (fmean(each) for each in zip(*residents, strict=True))
            note = f"{was:.2f} jobs on the device before, {now:.2f} now; {fmean(left_out):.1f} of {JOBS} never fitted"
            name = f"{policy}, {parts} lanes"
            say(f"{name}: mean JCT {median(ratios):.3f} of fixed lanes; {note}")
            figures.append(Figure(f"{name}: mean JCT over fixed lanes", median(ratios), "", "<= 1", note))
    return figures


def _within(trace: Trace, most_bytes: int) -> Trace:
    """The trace without jobs that need more memory."""
    kept = [job for job in trace.jobs if job.memory is None or job.memory.peak_bytes <= most_bytes]
    return replace(trace, jobs=tuple(kept))


def parked(data: Path, seeds: int, jobs: int = JOBS) -> list[Figure]:
    """Jobs that are alive, mean JCT and the wait for the start with host memory for parked jobs, and without."""
    figures = []
    for policy in ("fair", "srtf"):
        ratios, waits, alive, moving = [], [], [], []
        for seed in range(seeds):
            trace = generate("salus", jobs, seed, data)
            before, after = _run(policy, 1, trace), _run(policy, 1, trace, HOST_BYTES)
            ratios.append(after.mean_jct_s / before.mean_jct_s)
            waits.append(after.late_start_s / before.late_start_s if before.late_start_s else 1.0)
            alive.append((before.here, after.here, after.here + after.away))
            moving.append(after.moving_share)
        was, here, together = (fmean(each) for each in zip(*alive, strict=True))
        note = f"{was:.2f} jobs alive on average without, {together:.2f} with ({here:.2f} of them on the device)"
        name = f"parked jobs, {policy}"
        say(f"{name}: mean JCT {median(ratios):.3f}; start {median(waits):.3f}; {note}; {100 * fmean(moving):.1f} %")
        figures.append(Figure(f"{name}: mean JCT over that without", median(ratios), "", "", note))
        figures.append(
            Figure(f"{name}: wait for the start over that without", median(waits), "", "", "95th percentile")
        )
        figures.append(Figure(f"{name}: jobs alive on average", together, "", "", f"{was:.2f} without"))
        figures.append(Figure(f"{name}: transfers, of the busy time", 100.0 * fmean(moving), "%", "<= 5", ""))
    return figures


def _simulated(policy: str, count: int, trace: Trace) -> tuple[float, float]:
    """Mean JCT (s), and the mean number of jobs on the device while there are any."""
    run = _run(policy, count, trace)
    return run.mean_jct_s, run.here


@dataclass(frozen=True)
class _Run:
    """Simulated run.

    Attributes:
        here: Mean number of jobs on the device while any job is alive.
        away: Mean number of parked jobs then.
        moving_share: Time of all transfers / time with a job.
        late_start_s: 95th percentile of the time (s) from a job's arrival to its start.
    """

    mean_jct_s: float
    here: float
    away: float
    moving_share: float
    late_start_s: float


def _run(policy: str, count: int, trace: Trace, host_bytes: int = 0) -> _Run:
    gpu, spent = GPUS["p100"], _Residents()
    config = Config(policy, count, MOST_IN_LANE, host_bytes=host_bytes)
    result = Simulator(trace, Cluster(1, 1, gpu), config, World(gpu), Costs()).run(spent.watch)
    busy_s = spent.busy_s
    late_s = quantiles([each.start_s - each.arrival_s for each in result.finished], n=20)[-1]
    mean_s = float(result.jcts_s.mean())
    return _Run(mean_s, spent.job_s / busy_s, spent.parked_s / busy_s, spent.moved_s / busy_s, late_s)


class _Residents:
    """Time that jobs spend on the device and parked, and time with any."""

    def __init__(self) -> None:
        self.job_s = self.parked_s = self.busy_s = self.moved_s = self._at_s = 0.0
        self._there = self._parked = 0

    def watch(self, event: Event, commands: Sequence[Command]) -> None:
        """Count an event of the simulation."""
        passed_s, self._at_s = event.at_s - self._at_s, event.at_s
        self.job_s += passed_s * self._there
        self.parked_s += passed_s * self._parked
        self.busy_s += passed_s if self._there or self._parked else 0.0
        if isinstance(event, Parked | Resumed):
            self.moved_s += event.took_s
        resumed = sum(isinstance(command, ResumeJob) for command in commands)
        self._parked += isinstance(event, Parked) - resumed
        self._there += sum(isinstance(command, StartJob) for command in commands) + resumed
        self._there -= isinstance(event, JobExited | Parked)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    add_data(parser)
    parts = ("lanes", "parked", "cuts")
    parser.add_argument("--only", choices=parts, help="a part: all but parked jobs, these, or cuts")


def main() -> None:
    """Run it from the command line."""
    run_benchmark("memory", __doc__, measure, MemoryOptions, add_options)


if __name__ == "__main__":
    main()
