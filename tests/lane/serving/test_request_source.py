from __future__ import annotations

import threading
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ecoshare
from ecoshare.base.service import RequestSource, ServiceSpec
from ecoshare.lane.serving.request_intervals import RequestTotals, read, total
from ecoshare.lane.serving.request_source import arrival_times, read_arrivals


@pytest.fixture
def requests_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(ecoshare, "_requests_path", str(tmp_path / "requests.jsonl"))
    return tmp_path / "requests.jsonl"


def drive(
    monkeypatch: pytest.MonkeyPatch, path: Path, source: RequestSource, handler: Any, **options: Any
) -> RequestTotals:
    queue = options.pop("queue", 256)
    monkeypatch.setattr(ecoshare, "_service", ServiceSpec(p99_s=0.05, queue=queue, requests=source))
    ecoshare.serve(handler, **options).run()
    return total(read(path))


def test_latency_counts_from_the_scheduled_time_when_the_handler_is_slow(
    requests_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it failed, requests behind a slow answer would look fast (coordinated omission)."""
    pytest.importorskip("hdrh", reason="hdrhistogram is not installed")
    (tmp_path / "arrivals").write_text("0.0\n0.05\n\n0.1\n0.15\n")

    def handler(requests: list[int]) -> list[int]:
        time.sleep(0.3 if 0 in requests else 0.0)
        return requests

    totals = drive(
        monkeypatch, requests_path, RequestSource(arrivals=str(tmp_path / "arrivals")), handler, batch=(1, 2, 4, 8)
    )
    assert totals.answered == totals.late == 4
    assert totals.max_s >= 0.3
    assert totals.mean_s >= 0.999 * (0.3 + 0.25 + 0.2 + 0.15) / 4


def test_the_schedule_counts_even_if_the_process_is_too_busy_to_keep_it(
    requests_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("hdrh", reason="hdrhistogram is not installed")
    (tmp_path / "arrivals").write_text("0.0\n0.01\n")

    def sample(number: int) -> int:
        time.sleep(0.2 * number)
        return number

    source = RequestSource(arrivals=str(tmp_path / "arrivals"))
    assert drive(monkeypatch, requests_path, source, list, sample=sample).max_s >= 0.15


def test_a_full_queue_refuses_requests_of_an_open_source_and_it_goes_on(
    requests_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def handler(requests: list[int]) -> list[int]:
        time.sleep(0.05)
        return requests

    source = RequestSource(rate_per_s=1000.0, count=200, seed=3)
    totals = drive(monkeypatch, requests_path, source, handler, queue=5, batch=(1, 2))
    assert totals.arrived == 200
    assert totals.refused > 50
    assert totals.answered == 200 - totals.refused
    assert totals.longest_queue == 5


@pytest.mark.parametrize("clients", [3, 20])
def test_clients_in_a_loop_wait_for_their_answers(
    requests_path: Path, monkeypatch: pytest.MonkeyPatch, clients: int
) -> None:
    seen: list[list[int]] = []

    def handler(requests: list[int]) -> list[int]:
        seen.append(requests)
        time.sleep(0.01)
        return requests

    source = RequestSource(clients=clients, count=60)
    totals = drive(
        monkeypatch, requests_path, source, handler, queue=6, batch=(1, 2, 4, 8), sample=lambda number: -number
    )
    assert totals.arrived == 60
    assert totals.longest_queue <= min(clients, 6)
    assert totals.answered == 60 - totals.refused
    assert (totals.refused > 0) == (clients > 8), "more clients than places in the queue and the handler"
    assert sorted(-each for batch in seen for each in batch)[-1] <= 59


def test_a_source_without_end_stops_when_the_server_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    for source in (RequestSource(rate_per_s=500.0), RequestSource(clients=2)):
        monkeypatch.setattr(ecoshare, "_service", ServiceSpec(p99_s=0.05, requests=source))
        server = ecoshare.serve(list)
        threading.Timer(0.1, server.close).start()
        server.run()


def test_a_sample_that_raises_ends_the_run_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ecoshare, "_service", ServiceSpec(p99_s=0.05, requests=RequestSource(clients=1, count=3)))

    def sample(number: int) -> int:
        raise LookupError(number)

    with pytest.raises(LookupError):
        ecoshare.serve(list, sample=sample).run()


def test_poisson_arrivals_are_those_of_the_rate_and_of_the_seed() -> None:
    times = np.array(list(islice(arrival_times(RequestSource(rate_per_s=50.0, seed=7)), 20_000)))
    gaps = np.diff(times)
    assert gaps.min() >= 0.0
    assert gaps.mean() == pytest.approx(0.02, rel=0.03)
    assert gaps.std() == pytest.approx(0.02, rel=0.05)
    again = list(arrival_times(RequestSource(rate_per_s=50.0, seed=7, count=100)))
    assert again == times[:100].tolist()
    assert again != list(arrival_times(RequestSource(rate_per_s=50.0, seed=8, count=100)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ": it has no arrivals"),
        ("\n\n", ": it has no arrivals"),
        ("1.0\nx\n", ":2: expected a time in seconds of at least 0, got 'x'"),
        ("-1\n", ":1: expected a time in seconds of at least 0, got '-1'"),
        ("nan\n", ":1: expected a time in seconds of at least 0, got 'nan'"),
        ("inf\n", ":1: expected a time in seconds of at least 0, got 'inf'"),
        ("1\n2\n1.5\n", ":3: 1.5 s comes after 2 s: sort the arrivals"),
    ],
)
def test_a_wrong_file_of_arrivals_is_told_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "arrivals"
    path.write_text(text)
    with pytest.raises(ValueError) as caught:
        read_arrivals(path)
    assert str(caught.value) == f"{path}{message}"


def test_a_file_of_arrivals_may_be_used_in_part(tmp_path: Path) -> None:
    (tmp_path / "arrivals").write_text("0\n0.5\n0.5\n2\n")
    assert list(arrival_times(RequestSource(arrivals=str(tmp_path / "arrivals"), count=3))) == [0.0, 0.5, 0.5]
    with pytest.raises(ValueError, match="neither a file of arrivals, nor a rate above 0, nor clients"):
        arrival_times(RequestSource())
