"""A service with one thread: it makes its requests and answers them, as one with threads does."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NoReturn

import pytest

import ecoshare
from ecoshare.base.service import RequestSource, ServiceSpec
from ecoshare.lane.serving.request_intervals import RequestTotals, read, total


class OnlyThread:
    """Thread of a service without a lane. It is asked to end after a number of looks."""

    def __init__(self, looks: int) -> None:
        self.looks = looks
        self.rested_s: list[float] = []

    @property
    def goes_on(self) -> bool:
        self.looks -= 1
        return self.looks >= 0

    def serving(self) -> AbstractContextManager[None]:
        return nullcontext()

    def rest(self, until_s: float) -> None:
        self.rested_s.append(until_s - time.monotonic())
        time.sleep(max(0.0, self.rested_s[-1]))

    def move_out(self, what: str) -> NoReturn:
        raise AssertionError(what)


def served(
    monkeypatch: pytest.MonkeyPatch, path: Path, source: RequestSource, queue: int, looks: int = 1000, **options: Any
) -> tuple[RequestTotals, OnlyThread]:
    thread = OnlyThread(looks)
    monkeypatch.setattr(ecoshare, "_thread", thread)
    monkeypatch.setattr(ecoshare, "_requests_path", str(path / "requests.jsonl"))
    monkeypatch.setattr(ecoshare, "_service", ServiceSpec(0.05, queue=queue, requests=source))
    ecoshare.serve(**options).run()
    return total(read(path / "requests.jsonl")), thread


def test_requests_that_find_the_queue_full_are_made_but_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it failed, later requests would be other ones than with threads, as each draws from one generator."""
    (tmp_path / "arrivals").write_text("0\n0\n0\n0\n0.2\n")
    made, answered = list[int](), list[int]()

    def sample(number: int) -> int:
        made.append(number)
        return 10 * number

    def handler(requests: list[int]) -> list[int]:
        answered.extend(requests)
        return requests

    source = RequestSource(arrivals=str(tmp_path / "arrivals"))
    found, thread = served(monkeypatch, tmp_path, source, 2, handler=handler, batch=1, sample=sample)
    assert (made, answered) == ([0, 1, 2, 3, 4], [0, 10, 40])
    assert (found.arrived, found.refused, found.answered, found.longest_queue) == (5, 2, 3, 2)
    assert len(thread.rested_s) == 1 and 0.1 < thread.rested_s[0] < 0.2, "it sleeps once, until the next request"


def test_latency_counts_from_the_scheduled_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "arrivals").write_text("0\n0.05\n")

    def handler(requests: list[int]) -> list[int]:
        time.sleep(0.2 if 0 in requests else 0.0)
        return requests

    source = RequestSource(arrivals=str(tmp_path / "arrivals"))
    found, _ = served(monkeypatch, tmp_path, source, 8, handler=handler)
    assert found.answered == found.late == 2 and found.mean_s > 0.17


def test_more_clients_than_places_share_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, thread = served(monkeypatch, tmp_path, RequestSource(clients=3, count=20), 2, handler=list, batch=1)
    assert found.arrived == 20 == found.answered + found.refused and found.refused > 0
    assert not thread.rested_s, "a client always waits"


def test_requests_that_wait_when_it_is_asked_to_end_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = served(monkeypatch, tmp_path, RequestSource(clients=3), 8, looks=5, handler=list, batch=1)
    assert (found.arrived, found.answered, found.failed) == (8, 5, 3)


def test_an_error_of_the_program_outside_of_the_handler_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sample(number: int) -> int:
        raise KeyError(number)

    with pytest.raises(KeyError):
        served(monkeypatch, tmp_path, RequestSource(clients=1), 8, handler=list, sample=sample)
