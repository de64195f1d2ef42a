"""Many small services: their latencies and their memory.

Calls of the models take turns. The rest of each service, such as its queue, may use any processor. The first seconds do
not count: all services start at once there, and their first requests wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ecoshare.lane.serving.request_intervals import RequestTotals, total
from scripts.bench.benchmarking import Figure, say
from scripts.bench.services_ways import KINDS, Ran, Service, plain, poisson, shared

COUNT, QUICK_COUNT = 42, 4
LOAD = 0.3
"""Part of one processor that the requests of all services need together, each alone."""

LANE = ", one process"
"""Way of the services that are threads of one process (`isolation: lane`)."""

SERVE_S, QUICK_SERVE_S = 40.0, 3.5
START_S, QUICK_START_S = 5.0, 2.0
"""Time (s) from the first request of a service that does not count."""

FORK_S, LOAD_S = 1.0, 0.5
"""Time (s) in which the process of the threads starts, and in which a service is loaded there, one after another."""


def many(folder: Path, quick: bool, times_s: Mapping[str, float]) -> list[Figure]:
    """Figures of many services."""
    count, serve_s = (QUICK_COUNT, QUICK_SERVE_S) if quick else (COUNT, SERVE_S)
    start_s = QUICK_START_S if quick else START_S
    services = []
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        arrivals_s = poisson(LOAD / count / times_s[kind], serve_s, number)
        services.append(Service(f"{kind}{number}", kind, arrivals_s or [0.0]))
    run = shared(folder / "run", services, on_one=False)
    say(f"{count} services in a run: {run.memory_bytes / 1e6:.0f} MB")
    lane = shared(folder / "lane", services, on_one=False, threads_wait_s=FORK_S + LOAD_S * count)
    say(f"{count} services in one process: {lane.memory_bytes / 1e6:.0f} MB")
    processes = plain(folder / "plain", services, on_one=False)
    say(f"{count} plain processes: {processes.memory_bytes / 1e6:.0f} MB")
    ways = {"": run, LANE: lane, ", plain processes": processes}
    figures, wrong = list[Figure](), dict.fromkeys(ways, 0)
    for kind in KINDS[:1] if quick else KINDS:
        own = [each for each in services if each.kind == kind]
        alone = plain(folder / f"alone-{kind}", own[:1], on_one=False)
        beside = {way: _pooled(ran, own, start_s) for way, ran in ways.items()}
        figures += _added(kind, count, _pooled(alone, own[:1], start_s), beside)
        expected = alone.services[own[0].name].answers
        wrong = {way: wrong[way] + _other_answers(expected, ran, own) for way, ran in ways.items()}
    for way in ("", LANE):
        ran = ways[way]
        served = [total(each.intervals) for each in ran.services.values()]
        asked, answered = sum(each.arrived for each in served), sum(each.answered for each in served)
        ratio = ran.memory_bytes / processes.memory_bytes
        note = f"{ran.memory_bytes / 1e6:.0f} MB of {processes.memory_bytes / 1e6:.0f} MB; the controller is part of it"
        apart = sum(each["attempts"] > 1 for each in ran.summary["jobs"])
        figures += [
            Figure(f"{count} services: memory / plain processes{way}", ratio, "x", "" if quick else "<= 0.35", note),
            Figure(f"{count} services: answers that differ from those alone{way}", wrong[way], "", "<= 0"),
            Figure(f"{count} services: requests without an answer{way}", asked - answered, "", "<= 0", f"of {asked}"),
            Figure(f"{count} services: begun more than once{way}", apart, "", "<= 0"),
        ]
    return figures


def _pooled(ran: Ran, services: Iterable[Service], start_s: float) -> RequestTotals:
    """Requests of some services after their start."""
    served = [ran.services[service.name].intervals for service in services]
    return total(each for own in served for each in own if each.from_s >= own[0].from_s + start_s)


def _added(kind: str, count: int, alone: RequestTotals, beside: dict[str, RequestTotals]) -> list[Figure]:
    """Latencies beside the others, less those alone."""
    figures = []
    for way, found in beside.items():
        for name, at_s, alone_s, bound_ms in (
            ("p50", found.p50_s, alone.p50_s, 5),
            ("p99", found.p99_s, alone.p99_s, 15),
        ):
            wanted = "" if way == ", plain processes" else f"<= {bound_ms}"
            note = f"{1000 * at_s:.2f} ms, alone {1000 * alone_s:.2f} ms; {found.answered} and {alone.answered} answers"
            figures.append(
                Figure(f"{kind}, {count} services: added {name}{way}", 1000 * (at_s - alone_s), "ms", wanted, note)
            )
    return figures


def _other_answers(alone: dict[str, list[str]], run: Ran, services: Iterable[Service]) -> int:
    """Number of requests with an answer that is not the one of the same request alone."""
    answers = [run.services[service.name].answers for service in services]
    return sum(found != alone[number] for each in answers for number, found in each.items() if number in alone)
