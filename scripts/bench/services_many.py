"""Many small services: their latencies and their memory.

Calls of the models take turns. The rest of each service, such as its queue, may use any processor. The first seconds do
not count: all services start at once there, and their first requests wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ecoshare.serving.request_intervals import RequestTotals, total
from scripts.bench.benchmarking import Figure, say
from scripts.bench.services_ways import KINDS, Ran, Service, plain, poisson, shared

COUNT, QUICK_COUNT = 42, 4
LOAD = 0.3
"""Part of one processor that the requests of all services need together, each alone."""

SERVE_S, QUICK_SERVE_S = 40.0, 6.5
START_S = 5.0
"""Time (s) from the start of a service that does not count."""


def many(folder: Path, quick: bool, times_s: Mapping[str, float]) -> list[Figure]:
    """Figures of many services."""
    count, serve_s = (QUICK_COUNT, QUICK_SERVE_S) if quick else (COUNT, SERVE_S)
    services = []
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        arrivals_s = poisson(LOAD / count / times_s[kind], serve_s, number)
        services.append(Service(f"{kind}{number}", kind, arrivals_s or [0.0]))
    run = shared(folder / "run", services, on_one=False)
    say(f"{count} services in a run: {run.memory_bytes / 1e6:.0f} MB")
    processes = plain(folder / "plain", services, on_one=False)
    say(f"{count} plain processes: {processes.memory_bytes / 1e6:.0f} MB")
    figures, wrong = [], 0
    for kind in KINDS[:1] if quick else KINDS:
        own = [each for each in services if each.kind == kind]
        alone = plain(folder / f"alone-{kind}", own[:1], on_one=False)
        beside = {"": _pooled(run, own), ", plain processes": _pooled(processes, own)}
        figures += _added(kind, count, _pooled(alone, own[:1]), beside)
        wrong += _other_answers(alone.services[own[0].name].answers, run, own)
    asked = sum(total(each.intervals).arrived for each in run.services.values())
    lost = asked - sum(total(each.intervals).answered for each in run.services.values())
    ratio = run.memory_bytes / processes.memory_bytes
    note = f"{run.memory_bytes / 1e6:.0f} MB of {processes.memory_bytes / 1e6:.0f} MB; the controller is part of it"
    return [
        *figures,
        Figure(f"{count} services: memory / plain processes", ratio, "x", "" if quick else "<= 0.35", note),
        Figure(f"{count} services: answers that differ from those alone", wrong, "", "<= 0"),
        Figure(f"{count} services: requests without an answer", lost, "", "<= 0", f"of {asked}"),
    ]


def _pooled(ran: Ran, services: Iterable[Service]) -> RequestTotals:
    """Requests of some services after their start."""
    served = [ran.services[service.name].intervals for service in services]
    return total(each for own in served for each in own if each.from_s >= own[0].from_s + START_S)


def _added(kind: str, count: int, alone: RequestTotals, beside: dict[str, RequestTotals]) -> list[Figure]:
    """Latencies beside the others, less those alone."""
    figures = []
    for way, found in beside.items():
        for name, at_s, alone_s, bound_ms in (
            ("p50", found.p50_s, alone.p50_s, 5),
            ("p99", found.p99_s, alone.p99_s, 15),
        ):
            wanted = "" if way else f"<= {bound_ms}"
            note = f"{1000 * at_s:.2f} ms, alone {1000 * alone_s:.2f} ms; {found.answered} and {alone.answered} answers"
            figures.append(
                Figure(f"{kind}, {count} services: added {name}{way}", 1000 * (at_s - alone_s), "ms", wanted, note)
            )
    return figures


def _other_answers(alone: dict[str, list[str]], run: Ran, services: Iterable[Service]) -> int:
    """Number of requests with an answer that is not the one of the same request alone."""
    answers = [run.services[service.name].answers for service in services]
    return sum(found != alone[number] for each in answers for number, found in each.items() if number in alone)
