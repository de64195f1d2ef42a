"""A service with a CUDA model beside training on one GPU: the same answers and losses, latencies, joules a request.

Each part is a run of ecoshare in one lane: the training alone, the service alone, and both together. The processors try
out everything but CUDA.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ecoshare.lane.serving.request_intervals import RequestTotals, total
from scripts.bench.benchmarking import Figure
from scripts.bench.services_ways import Ran, Service, kept_share, poisson, shared

LAYERS = 32
"""Layers of the model that is trained: an iteration takes some milliseconds on a GPU."""

RATE_PER_S, SERVE_S = 50.0, 10.0
_NAME = "service"


def figures(folder: Path, device: str = "cuda:0", layers: int = LAYERS, serve_s: float = SERVE_S) -> list[Figure]:
    """All figures of this part.

    Args:
        folder: New folder for the runs.
        device: Name of the device.
        layers: Layers of the model that is trained.
        serve_s: Time (s) in which requests come.
    """
    folder.mkdir()
    service = Service(_NAME, "transformer", poisson(RATE_PER_S, serve_s, 0))
    trained = shared(folder / "training", [], layers, device, serve_s=serve_s)
    served = shared(folder / "service", [service], device=device)
    both = shared(folder / "both", [service], layers, device)
    return compared(trained, served, both)


def compared(trained: Ran, served: Ran, both: Ran) -> list[Figure]:
    """Figures of a service beside training, against each of them alone."""
    alone, beside = (total(each.services[_NAME].intervals) for each in (served, both))
    common = min(len(trained.losses), len(both.losses))
    differ = sum(one != other for one, other in zip(trained.losses, both.losses, strict=False))
    answers = served.services[_NAME].answers, both.services[_NAME].answers
    wrong = sum(answers[0].get(number) != found for number, found in answers[1].items())
    own = both.services[_NAME]
    before = trained.ends_s[20:]
    speed = (len(before) - 1) / (before[-1] - before[0])
    share = both.speed(own.from_s, own.to_s) / speed
    note = f"{share:.2f} of its {speed:.0f} iterations a second; {_job(both, 'training')['handovers']} hand-overs"
    return [
        Figure("service beside training: losses that differ from those alone", differ, f"of {common}", "<= 0"),
        Figure("service beside training: answers that differ from those alone", wrong, "", "<= 0"),
        Figure("service beside training: requests without an answer", beside.arrived - beside.answered, "", "<= 0"),
        Figure("service beside training: target kept", 100 * kept_share(beside), "%", ">= 99", _latencies(beside)),
        Figure("service beside training: p99 - alone - iteration", _over_ms(alone, beside, 1.0 / speed), "ms", "<= 1"),
        Figure("service alone: p99", 1000 * alone.p99_s, "ms", note=_latencies(alone)),
        Figure("training beside the service: speed / alone", share, "x", note=note),
        _joules("service alone", served),
        _joules("service beside training", both),
    ]


def _over_ms(alone: RequestTotals, beside: RequestTotals, iteration_s: float) -> float:
    return 1000 * (beside.p99_s - alone.p99_s - iteration_s)


def _latencies(found: RequestTotals) -> str:
    return f"p50 {1000 * found.p50_s:.2f} ms, p99 {1000 * found.p99_s:.2f} ms, {found.answered} answers"


def _joules(name: str, ran: Ran) -> Figure:
    """Joules of one request."""
    job = _job(ran, _NAME)
    source = job["energy"]["source"] if job["energy"] else "not known"
    return Figure(f"{name}: joules a request", job["service"]["energy_per_request_j"], "J", note=source)


def _job(ran: Ran, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(job for job in ran.summary["jobs"] if job["name"] == name)
    return found
