"""Requests of a service in virtual time, against what a live service would do with them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from ecoshare.base.service import RequestSource, ServiceSpec
from ecoshare.lane.serving.request_intervals import total
from ecoshare.simulation.simulated_attempt import SimulatedRequests
from ecoshare.simulation.traces.job_trace import AnswerTime, Phase, TraceJob

ANSWER = AnswerTime(0.01, 0.01)


def opened(
    source: RequestSource | None, queue: int = 4, sizes: tuple[int, ...] = (1, 2, 4), answer: AnswerTime = ANSWER
) -> SimulatedRequests:
    job = TraceJob("s", "s", 0.0, (Phase(1, 0.02),), service=ServiceSpec(1.0, sizes, queue, source), answer=answer)
    requests = SimulatedRequests(job, "seed")
    requests.open(0.0)
    return requests


def answer_all(requests: SimulatedRequests) -> float:
    """Answer batch after batch, without a neighbour. Return the time (s) of the end."""
    now_s = 0.0
    while not requests.is_over:
        if requests.claim(now_s) is None:
            now_s = requests.next_s
            assert now_s < math.inf, "the service waits for ever"
        else:
            now_s += requests.begin(now_s)
            requests.answered(now_s)
    requests.close(now_s)
    return now_s


def arrivals(folder: Path, *times_s: float) -> RequestSource:
    path = folder / "day.txt"
    path.write_text("".join(f"{each}\n" for each in times_s))
    return RequestSource(str(path))


def test_a_full_queue_refuses(tmp_path: Path) -> None:
    requests = opened(arrivals(tmp_path, *[0.0] * 3, *[0.001] * 5))
    end_s = answer_all(requests)
    sums = total(requests.intervals)
    assert (sums.arrived, sums.answered, sums.refused, sums.failed) == (8, 6, 2, 0)
    assert sums.batches == {2: 1, 4: 1} and end_s == pytest.approx(0.03 + 0.05)
    assert sums.longest_queue == 4


def test_latencies_count_from_the_arrival_not_from_the_batch(tmp_path: Path) -> None:
    requests = opened(arrivals(tmp_path, 0.0, 0.005), sizes=(1,))
    answer_all(requests)
    sums = total(requests.intervals)
    assert sums.p50_s == pytest.approx(0.02, rel=1e-2)
    assert sums.max_s == pytest.approx(0.04 - 0.005, rel=1e-2)


def test_a_wake_up_delays_an_idle_service_and_not_a_busy_one(tmp_path: Path) -> None:
    """The first request waits for it; the second one comes while the first is answered."""
    requests = opened(arrivals(tmp_path, 0.0, 0.005), sizes=(1,), answer=replace(ANSWER, wake_up_s=0.004))
    end_s = answer_all(requests)
    assert end_s == pytest.approx(0.004 + 0.04)
    sums = total(requests.intervals)
    assert sums.p50_s == pytest.approx(0.024, rel=1e-2) and sums.max_s == pytest.approx(0.044 - 0.005, rel=1e-2)


def test_each_client_of_a_closed_loop_sends_after_its_answer() -> None:
    requests = opened(RequestSource(clients=2, count=10))
    assert answer_all(requests) == pytest.approx(5 * 0.03)
    assert total(requests.intervals).batches == {2: 5}


def test_more_clients_than_places_in_the_queue_lose_a_request_at_a_time() -> None:
    requests = opened(RequestSource(clients=6, count=12), queue=4)
    answer_all(requests)
    sums = total(requests.intervals)
    assert sums.arrived == 12 and sums.answered + sums.refused == 12 and sums.refused > 0


def test_the_end_fails_what_waits() -> None:
    requests = opened(RequestSource(clients=3))
    requests.begin(0.0)
    requests.close(0.5)
    sums = total(requests.intervals)
    assert (sums.arrived, sums.answered, sums.failed) == (3, 0, 3)
    assert not requests.is_over


def test_a_batch_that_was_cut_begins_again() -> None:
    requests = opened(RequestSource(clients=2, count=2))
    assert requests.begin(0.0) == pytest.approx(0.03)
    claim = requests.claim(0.01)  # the service was parked, and is back
    assert claim is not None and claim.due_s == 1.0
    assert requests.begin(0.01) == pytest.approx(0.03)
    requests.answered(0.04)
    assert requests.is_over and requests.batches == 1


def test_a_service_with_requests_from_outside_has_none() -> None:
    requests = opened(None)
    assert requests.claim(100.0) is None and requests.next_s == math.inf and not requests.is_over


def test_the_same_seed_gives_the_same_times_and_the_mean_is_kept() -> None:
    job = TraceJob("s", "s", 0.0, (Phase(1, 0.02),), service=ServiceSpec(1.0, (1,)), answer=ANSWER, spread=0.5)
    source = RequestSource(clients=1, count=3000)
    assert job.service is not None
    served = replace(job, service=replace(job.service, requests=source))
    ends_s = []
    for _ in range(2):
        requests = SimulatedRequests(served, "seed")
        requests.open(0.0)
        ends_s.append(answer_all(requests))
    assert ends_s[0] == ends_s[1] == pytest.approx(3000 * 0.02, rel=0.05)
