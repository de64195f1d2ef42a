"""Time of a decision of the core while 1,000 jobs of 60 classes wait, by kind of event; and time of its adviser.

A simulation under policy `energy` on one device and on eight, three lanes each, with windows and measured packings,
gives the events; a fresh core gets the same ones, and each `handle` is timed. Events count if at least 1,000 jobs wait:
new jobs replace those that end. Times are processor time, as the median of some replays for each event.

The interference adviser gets the questions of the core from that run, once with the fewest measured packings and once
with the most. It answers in parallel, so that nothing waits for it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from random import Random

from ecoshare.base.class_profile import MemoryDemand
from ecoshare.core.commands import AskInterference, Command
from ecoshare.core.events import (
    Config,
    Done,
    Event,
    InterferencePredicted,
    IterationsDone,
    JobArrived,
    JobExited,
    Profiled,
    SettingMeasured,
)
from ecoshare.core.placement.packer import MOST_CLASSES
from ecoshare.core.scheduler import Scheduler
from ecoshare.knowledge.advisers.interference_adviser import foresee
from ecoshare.simulation.cluster import GPUS, Cluster
from ecoshare.simulation.costs import Costs
from ecoshare.simulation.simulator import Simulator
from ecoshare.simulation.traces.job_trace import Phase, Trace, TraceJob, in_order
from ecoshare.simulation.world import Pairs, World
from scripts.bench.benchmarking import Figure, Options, median, percentile, run_benchmark, say

CLASSES, WAITING = 60, 1_000
LANES, PLACES = 3, 4
FIRST_S = 10.0
"""Time in which the first thousand arrive."""

FOLLOW_EVERY_S = 8.0
"""Time (s) between two later arrivals for each device: about as fast as jobs end."""

WATCHED_S, QUICK_WATCHED_S = {1: 1_200.0, 8: 240.0}, {1: 240.0, 8: 40.0}
"""Virtual time (s) by number of devices: the adviser takes most of the recording, and more with each measurement."""

REPLAYS, QUICK_REPLAYS = 5, 3
ASKED = 20

KINDS: dict[type[Event], str] = {
    JobArrived: "arrival",
    JobExited: "departure",
    IterationsDone: "IterationsDone",
    InterferencePredicted: "Foreseen",
    Profiled: "Profiled",
    SettingMeasured: "TrialMeasured",
    Done: "Done",
}


class _Enough(Exception):
    """Raised when enough events are recorded."""


@dataclass(frozen=True)
class Log:
    """Events of a core in a run.

    Attributes:
        events: Events in order.
        from_there: Index of the first event before which enough jobs waited.
        asked: Questions to the interference adviser.
    """

    events: Sequence[Event]
    from_there: int
    asked: Sequence[AskInterference]


def jobs(devices: int, until_s: float) -> Iterable[TraceJob]:
    """Jobs, more than wait at a time, of classes that differ in time, memory and length."""
    random = Random(devices)
    arrivals_s = [FIRST_S * place / WAITING for place in range(WAITING + devices * PLACES * LANES)]
    late = int(devices * until_s / FOLLOW_EVERY_S)
    arrivals_s += [arrivals_s[-1] + FOLLOW_EVERY_S * (place + 1) / devices for place in range(late)]
    for place, arrival_s in enumerate(arrivals_s):
        number = random.randrange(CLASSES)
        gib = 1.0 + number % 7
        iteration_s = 0.02 * (1 + number % 13)
        yield TraceJob(
            name=f"j{place}",
            job_class=f"family {number // 3} {number}",
            arrival_s=arrival_s,
            phases=(Phase(max(1, round(random.uniform(20.0, 200.0) / iteration_s)), iteration_s),),
            memory=MemoryDemand(int(0.75 * gib * (1 << 30)), int(0.25 * gib * (1 << 30))),
        )


def world() -> World:
    """World with classes that keep a device more or less busy; two busy classes delay each other."""
    random = Random("world")
    gpu = GPUS["v100"]
    names = [f"family {number // 3} {number}" for number in range(CLASSES)]
    busy = {name: random.uniform(0.1, 1.0) for name in names}
    known = {}
    for one, other in combinations_with_replacement(names, 2):
        speed = min(1.0, 1.0 / (busy[one] + busy[other]))
        known[(one, 1), (other, 1)] = known[(other, 1), (one, 1)] = speed
    return World(gpu, active_w={name: gpu.active_w * busy[name] for name in names}, pairs=Pairs("made", known))


def record(devices: int, until_s: float) -> Log:
    """Simulate until enough events are recorded."""
    events: list[Event] = []
    asked: list[AskInterference] = []
    arrived = ended = from_there = 0

    def watch(event: Event, commands: list[Command]) -> None:
        nonlocal arrived, ended, from_there
        events.append(event)
        asked.extend(each for each in commands if isinstance(each, AskInterference))
        arrived += isinstance(event, JobArrived)
        ended += isinstance(event, JobExited)
        if not from_there and arrived - ended >= WAITING + devices * LANES * PLACES:
            from_there = len(events)
        if event.at_s > until_s:
            raise _Enough

    trace = Trace("made", "made", in_order(jobs(devices, until_s)), "")
    config = Config("energy", LANES, PLACES, profile=True)
    simulator = Simulator(trace, Cluster(1, devices, GPUS["v100"]), config, world(), Costs())
    try:
        simulator.run(watch)
    except _Enough:
        return Log(events, from_there, asked)
    raise RuntimeError("all jobs ended before enough was seen")


def replay(log: Log) -> list[float]:
    """Processor time (s) of a fresh core for each event."""
    core = Scheduler()
    spent_s = []
    for event in log.events:
        began_s = time.thread_time()
        core.handle(event)
        spent_s.append(time.thread_time() - began_s)
    return spent_s


def decisions(devices: int, quick: bool) -> tuple[list[Figure], Log]:
    """Figures of the times by kind of event."""
    log = record(devices, (QUICK_WATCHED_S if quick else WATCHED_S)[devices])
    replays = [replay(log) for _ in range(QUICK_REPLAYS if quick else REPLAYS)]
    typical_s = [median(list(each)) for each in zip(*replays, strict=True)]
    by_kind = defaultdict(list)
    for event, spent_s in list(zip(log.events, typical_s, strict=True))[log.from_there :]:
        by_kind[KINDS.get(type(event), type(event).__name__)].append(1e3 * spent_s)
    say(f"{devices} devices: {len(log.events)} events, {sum(typical_s):.2f} s for all")
    name = "1 device" if devices == 1 else f"{devices} devices"
    figures = []
    for kind in KINDS.values():
        if not by_kind[kind]:
            figures.append(Figure(f"{kind}, {name}", None, "ms", note="none came while so many waited"))
            continue
        note = f"{len(by_kind[kind])} of them"
        figures += [
            Figure(f"{kind}, {name}, p50", median(by_kind[kind]), "ms", note=note),
            Figure(f"{kind}, {name}, p99", percentile(by_kind[kind], 0.99), "ms"),
            Figure(f"{kind}, {name}, max", max(by_kind[kind]), "ms", "<= 50"),
        ]
    return figures, log


def adviser(asked: Sequence[AskInterference], quick: bool) -> list[Figure]:
    """Time of an answer for as many classes as one question has."""
    full = [each for each in asked if len(each.work_s) == MOST_CLASSES]
    if not full:
        return [Figure(f"foresee, {MOST_CLASSES} classes", None, "ms", note="the core never asked about so many")]
    figures = []
    for ask in (min(full, key=lambda each: len(each.colocations)), max(full, key=lambda each: len(each.colocations))):
        foresee(ask)  # loads what it needs
        spent_ms = []
        for _ in range(ASKED // 4 if quick else ASKED):
            began_s = time.perf_counter()
            foresee(ask)
            spent_ms.append(1e3 * (time.perf_counter() - began_s))
        name = f"foresee, {MOST_CLASSES} classes, {len(ask.colocations)} packings measured"
        known = f"{len([1 for _, solo in ask.solos if solo.power_w is not None])} classes measured alone; wall time"
        figures += [
            Figure(f"{name}, p50", median(spent_ms), "ms", note=known),
            Figure(f"{name}, max", max(spent_ms), "ms"),
        ]
    return figures


def measure(options: Options) -> list[Figure]:
    """All figures."""
    figures: list[Figure] = []
    asked: list[AskInterference] = []
    for devices in WATCHED_S:
        found, log = decisions(devices, options.quick)
        figures += found
        asked += log.asked
    return figures + adviser(asked, options.quick)


def main() -> None:
    """Run it from the command line."""
    run_benchmark("decisions", __doc__, measure, Options)


if __name__ == "__main__":
    main()
