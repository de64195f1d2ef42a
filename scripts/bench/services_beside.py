"""A service beside training on one processor: latencies, the speed of the training, and a load that steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from ecoshare.lane.serving.request_intervals import RequestTotals, total
from scripts.bench.benchmarking import Figure, median, say
from scripts.bench.services_ways import Ran, Service, kept_share, plain, poisson, shared
from scripts.bench.turns import Alone

KIND = "cnn"
LOAD = 0.2
"""Part of the processor that the service needs beside training."""

TARGET_S = 0.05
"""Target (s) of the service with a load that steps."""

PASSES = {1000: 200, 200: 40, 20: 4, 5: 1}
"""Passes of about 5 ms of an iteration, by its length (ms)."""

QUICK_LENGTHS_MS = (200, 5)
LAYERS = 10
"""Number of layers that gives passes of about 5 ms."""

WANTED_MS = {1000: 30, 200: 10, 20: 5, 5: 5}
"""Most time (ms) by which the training may lengthen the 99th percentile, by the length (ms) of its iterations. The
target of the service is that much beyond `ALONE_MS`."""

ALONE_MS = 3
"""Time (ms) of an answer alone, at most, in 99 % of the cases."""

ROUNDS = 3
SERVE_S, QUICK_SERVE_S = 6.0, 2.5
STEP_LOAD, STEP_FACTOR = 0.1, 4.0
STEP_S, QUICK_STEP_S = 6.0, 2.5
"""Time (s) before the step, of the step, and after it."""

BACK = 0.9
"""Part of the speed before the step at which the training is back."""


def layers_of_a_pass(quick: bool) -> int:
    """Number of layers of a model with passes of 5 ms: measured, unless it must be quick."""
    if quick:
        return LAYERS
    process = Alone("1")
    try:
        return process.layers_for(5)
    finally:
        process.close()


@dataclass(frozen=True)
class Round:
    """Measurements of one round.

    Attributes:
        alone: Service alone.
        iteration_s: Time (s) of an iteration of the training alone.
        beside: Service by way.
        speeds: Speed of the training beside the service by way, over (1 - load of the service) of that alone.
        equal_losses: Whether the training lost the same through ecoshare as alone.
        equal_answers: Whether the service answered the same.
    """

    alone: RequestTotals
    iteration_s: float
    beside: dict[str, RequestTotals]
    speeds: dict[str, float]
    equal_losses: bool
    equal_answers: bool


def beside(folder: Path, quick: bool, times_s: Mapping[str, float]) -> list[Figure]:
    """Figures of one service beside one training job."""
    lengths_ms, serve_s = (QUICK_LENGTHS_MS, QUICK_SERVE_S) if quick else (tuple(PASSES), SERVE_S)
    layers, request_s = layers_of_a_pass(quick), times_s[KIND]
    figures = []
    for length_ms in lengths_ms:
        rounds, target_s = [], (ALONE_MS + WANTED_MS[length_ms]) / 1000
        for number in range(1 if quick else ROUNDS):
            (place := folder / f"{length_ms}-{number}").mkdir()
            service = Service("service", KIND, poisson(LOAD / request_s, serve_s, number), target_s)
            rounds.append(_round(place, service, layers, PASSES[length_ms], serve_s, quick))
        figures += _figures(f"iterations of {length_ms} ms", rounds, WANTED_MS[length_ms])
    return figures


def _round(folder: Path, service: Service, layers: int, passes: int, serve_s: float, quick: bool) -> Round:
    trained = [plain(folder / "training", [], layers, serve_s=serve_s, passes=passes)]
    served = plain(folder / "service", [service])
    ways = {"": shared(folder / "run", [service], layers, passes=passes)}
    if not quick:
        ways[", both at once"] = plain(folder / "blind", [service], layers, passes=passes)
        ways[", nice"] = plain(folder / "nice", [service], layers, nice=19, passes=passes)
    if not quick:  # the machine has become slower or faster meanwhile
        trained.append(plain(folder / "again", [], layers, serve_s=serve_s, passes=passes))
    speed = fmean((len(each.ends_s) - 21) / (each.ends_s[-1] - each.ends_s[20]) for each in trained)
    load = served.services[service.name].load
    speeds = {}
    for way, ran in ways.items():
        own = ran.services[service.name]
        speeds[way] = ran.speed(own.from_s, own.to_s) / speed / (1.0 - load)
    run = ways[""]
    losses = trained[0].losses
    common = min(len(losses), len(run.losses))
    answers = served.services[service.name].answers, run.services[service.name].answers
    found = Round(
        alone=_totals(served, service),
        iteration_s=passes / speed,
        beside={way: _totals(ran, service) for way, ran in ways.items()},
        speeds=speeds,
        equal_losses=common > 0 and losses[:common] == run.losses[:common],
        equal_answers=answers[0] == answers[1],
    )
    say(f"iterations of {1000 * found.iteration_s:.1f} ms, load {load:.2f}, speeds {found.speeds}")
    return found


def _totals(ran: Ran, service: Service) -> RequestTotals:
    return total(ran.services[service.name].intervals)


def _figures(name: str, rounds: list[Round], most_ms: float) -> list[Figure]:
    figures = []
    for way in rounds[0].beside:
        found = [(each, each.beside[way]) for each in rounds]
        over_ms = [1000 * (own.p99_s - each.alone.p99_s) for each, own in found]
        first, own = found[0]
        note = f"p99 {1000 * own.p99_s:.1f} ms, alone {1000 * first.alone.p99_s:.1f} ms, "
        note += f"iteration {1000 * first.iteration_s:.1f} ms, {own.answered} answers"
        kept = [kept_share(own) for _, own in found]
        speeds = [each.speeds[way] for each in rounds]
        is_own = not way
        figures += [
            Figure(f"{name}: p99 - alone{way}", median(over_ms), "ms", f"<= {most_ms}" if is_own else "", note),
            Figure(f"{name}: target kept{way}", 100 * median(kept), "%", ">= 99" if is_own else ""),
            Figure(f"{name}: training / (1 - load) of alone{way}", median(speeds), "x", ">= 0.95" if is_own else ""),
        ]
    count = len(rounds)
    return [
        *figures,
        Figure(f"{name}: rounds with losses as alone", sum(each.equal_losses for each in rounds), "", f">= {count}"),
        Figure(f"{name}: rounds with answers as alone", sum(each.equal_answers for each in rounds), "", f">= {count}"),
    ]


def step(folder: Path, quick: bool, times_s: Mapping[str, float]) -> list[Figure]:
    """Figures of a load that rises and falls again."""
    part_s = QUICK_STEP_S if quick else STEP_S
    layers, request_s = layers_of_a_pass(quick), times_s[KIND]
    kept, back_s = [], []
    for number in range(1 if quick else ROUNDS):
        arrivals_s: list[float] = []
        for part, load in enumerate((STEP_LOAD, STEP_FACTOR * STEP_LOAD, STEP_LOAD)):
            arrivals_s += poisson(load / request_s, part_s, 10 * number + part, part * part_s)
        service = Service("service", KIND, arrivals_s, TARGET_S, (1, 2, 4, 8))
        ran = shared(folder / str(number), [service], layers)
        own = ran.services[service.name]
        kept.append(kept_share(total(own.intervals)))
        back_s.append(back_after_s(ran, own.from_s, part_s))
        speeds = [ran.speed(own.from_s + part * part_s, own.from_s + (part + 1) * part_s) for part in range(3)]
        say(f"step: {100 * kept[-1]:.2f} % kept, iterations a second {[round(each) for each in speeds]}")
    return [
        Figure("load of 10, 40 and 10 %: target kept", 100 * median(kept), "%", ">= 97"),
        Figure("load of 10, 40 and 10 %: training is back after", median(back_s), "s", "<= 1"),
    ]


def back_after_s(ran: Ran, from_s: float, part_s: float) -> float:
    """Time (s) from the fall of the load until the training has its speed again, for a second from then on."""
    before, falls_s = ran.speed(from_s, from_s + part_s), from_s + 2 * part_s
    late_s = 0.0
    while late_s < part_s - 1.0 and ran.speed(falls_s + late_s, falls_s + late_s + 1.0) < BACK * before:
        late_s += 0.05
    return late_s
