from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import ecoshare
from ecoshare.base.service import RequestSource, ServiceSpec
from ecoshare.lane.serving.request_intervals import read, total
from ecoshare.lane.serving.request_queue import RequestQueue, ServiceClosed
from tests.warm import ROOT, wait_for

LONG_S = 20.0
"""Longest wait (s) for what comes at once on an idle machine."""


class Gate:
    """Handler that keeps its first batch until it is opened, so that a test decides what waits meanwhile."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()
        self.batches: list[list[Any]] = []

    def __call__(self, requests: list[Any]) -> list[Any]:
        self.batches.append(requests)
        self.entered.set()
        assert self.opened.wait(LONG_S)
        return [("answer", each) for each in requests]


@contextmanager
def gated(**options: Any) -> Iterator[tuple[Gate, ecoshare.Server, Future[Any]]]:
    """Server with one request in the handler."""
    gate = Gate()
    with ecoshare.serve(gate, **options) as server:
        first = server.submit("first")
        assert gate.entered.wait(LONG_S)
        try:
            yield gate, server, first
        finally:
            gate.opened.set()


def test_answers_come_in_batches_each_to_its_request() -> None:
    with gated(batch=(4, 2), p99=None) as (gate, server, first):
        others = [server.submit(number) for number in range(7)]
        gate.opened.set()
        assert first.result(LONG_S) == ("answer", "first")
        assert [each.result(LONG_S) for each in others] == [("answer", number) for number in range(7)]
    assert gate.batches == [["first"], [0, 1, 2, 3], [4, 5], [6]], "the last is smaller than any allowed size"


def test_a_batch_does_not_wait_to_be_filled() -> None:
    with ecoshare.serve(lambda requests: requests, batch=64, p99="10 s") as server:
        assert server.submit(5).result(LONG_S) == 5


def test_a_request_with_a_deadline_of_its_own_goes_first() -> None:
    with gated(batch=1, p99=10.0) as (gate, server, _):
        for number in range(3):
            server.submit(number)
        server.submit("soon", within_s=5.0)
        gate.opened.set()
        server.submit("last").result(LONG_S)
    assert [each[0] for each in gate.batches] == ["first", "soon", 0, 1, 2, "last"]


@pytest.mark.nightly
def test_ten_thousand_requests_at_once_are_refused_beyond_the_queue_and_take_no_memory() -> None:
    with gated(queue=100) as (gate, server, _):
        accepted = [server.submit(number) for number in range(100)]
        tracemalloc.start()
        refused = 0
        for _ in range(10_000):
            try:
                server.submit(bytes(10_000))
            except ecoshare.QueueFull as full:
                refused += full.waiting == 100
        grown, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        gate.opened.set()
        assert refused == 10_000
        assert grown < 200_000
        assert len({each.result(LONG_S) for each in accepted}) == 100
        assert server.submit("after").result(LONG_S) == ("answer", "after")


def test_a_cancelled_request_leaves_the_queue_and_never_reaches_the_handler() -> None:
    with gated(queue=4, batch=8) as (gate, server, _):
        waiting = [server.submit(number) for number in range(4)]
        with pytest.raises(ecoshare.QueueFull):
            server.submit("too many")
        assert waiting[1].cancel() and waiting[2].cancel() and waiting[2].cancel()
        waiting += [server.submit(4), server.submit(5)]
        assert waiting[0].cancel()
        gate.opened.set()
        wait(waiting, LONG_S)
    assert sorted(itertools.chain(*gate.batches[1:])) == [3, 4, 5]
    with pytest.raises(CancelledError):
        waiting[0].result()


def test_a_future_that_the_program_has_set_itself_ends_nothing_for_others() -> None:
    with gated() as (gate, server, first):
        tampered = [server.submit(each) for each in (1, 2, 3)]
        tampered[0].set_result("mine")
        tampered[1].set_running_or_notify_cancel()
        tampered[2].cancel()
        tampered[2].set_running_or_notify_cancel()
        other = server.submit(4)
        gate.opened.set()
        assert (first.result(LONG_S), other.result(LONG_S)) == (("answer", "first"), ("answer", 4))
        assert tampered[0].result() == "mine" and tampered[1].result(LONG_S) == ("answer", 2)
        assert gate.batches == [["first"], [2, 4]] or gate.batches == [["first"], [2], [4]]


@pytest.mark.parametrize(("ends", "code"), [("sys.exit(3)", 3), ("1 / 0", 1), ("return requests", 0)])
def test_a_process_that_the_handler_forks_is_no_second_server(ends: str, code: int) -> None:
    program = (
        "import ecoshare, os, sys\n"
        "def handler(requests):\n"
        "    if os.fork() == 0:\n"
        f"        {ends}\n"
        "    return [os.waitstatus_to_exitcode(os.wait()[1])]\n"
        "with ecoshare.serve(handler, batch=1) as server:\n"
        "    print(server.submit(1).result())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == f"{code}\n", done.stderr


def test_a_handler_that_raises_fails_the_request_at_fault_alone() -> None:
    def handler(requests: list[int]) -> list[float]:
        return [1 / each for each in requests]

    with gated(batch=8) as (gate, _, _), ecoshare.serve(handler, batch=8) as server:
        del gate
        answers = [server.submit(number) for number in (1, 0, 2, 4)]
        with pytest.raises(ZeroDivisionError):
            answers[1].result(LONG_S)
        assert [answers[each].result(LONG_S) for each in (0, 2, 3)] == [1.0, 0.5, 0.25]
        assert server.submit(8).result(LONG_S) == 0.125, "the service lives on"


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([1], "the handler returned 1 answers for 3 requests"),
        (None, "the handler returned NoneType, not a sequence of 3 answers"),
        ("abc", "the handler returned str, not a sequence of 3 answers"),
        (iter([1, 2, 3]), "the handler returned list_iterator, not a sequence of 3 answers"),
    ],
)
def test_a_wrong_number_of_answers_is_an_error_of_the_whole_batch(returned: object, message: str) -> None:
    gate = Gate()

    def handler(requests: list[Any]) -> Any:
        return gate(requests) if len(requests) == 1 else returned

    with ecoshare.serve(handler, batch=(1, 3), p99=None) as server:
        server.submit("first")
        assert gate.entered.wait(LONG_S)
        answers = [server.submit(number) for number in range(3)]
        gate.opened.set()
        for each in answers:
            with pytest.raises(ValueError) as caught:
                each.result(LONG_S)
            assert str(caught.value) == message
        assert server.submit("after").result(LONG_S) == ("answer", "after")


@pytest.mark.parametrize("error", [SystemExit(3), StopIteration(), KeyboardInterrupt()])
def test_an_error_that_would_end_the_reader_is_wrapped(error: BaseException) -> None:
    """`StopIteration` cannot be raised into an awaited future: the client would wait for ever."""

    def handler(requests: list[Any]) -> list[Any]:
        raise error

    async def ask(server: ecoshare.Server) -> Any:
        return await asyncio.wait_for(server.answer(1), LONG_S)

    with ecoshare.serve(handler) as server, pytest.raises(RuntimeError, match=f"raised {type(error).__name__}"):
        asyncio.run(ask(server))


def test_requests_that_wait_fail_when_the_server_is_closed_and_the_batch_in_the_handler_is_finished() -> None:
    with gated() as (gate, server, first):
        waiting = [server.submit(number) for number in range(5)]
        closing = threading.Thread(target=server.close)
        closing.start()
        for each in waiting:
            with pytest.raises(ServiceClosed, match="the service is closed"):
                each.result(LONG_S)
        with pytest.raises(ServiceClosed):
            server.submit("late")
        assert not first.done()
        gate.opened.set()
        closing.join(LONG_S)
        assert first.result(LONG_S) == ("answer", "first")
        server.close()
    assert gate.batches == [["first"]]


def test_a_handler_may_close_its_server() -> None:
    server: ecoshare.Server

    def handler(requests: list[Any]) -> list[Any]:
        server.close()
        return requests

    server = ecoshare.serve(handler)
    assert server.submit(1).result(LONG_S) == 1


def test_inside_a_lane_each_call_of_the_handler_has_its_context(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[float, float]] = []
    inside = threading.local()
    turn = threading.Event()
    wanted = threading.Event()

    @contextmanager
    def answering(due_s: float, answer_s: float) -> Iterator[Callable[..., None]]:
        calls.append((due_s, answer_s))
        wanted.set()
        assert turn.wait(LONG_S)
        inside.held = True
        yield lambda *_: None
        inside.held = False

    def handler(requests: list[Any]) -> list[Any]:
        assert inside.held
        batches.append(requests)
        if "bad" in requests:
            raise LookupError("bad")
        return requests

    batches: list[list[Any]] = []
    monkeypatch.setattr(ecoshare, "_answering", answering)
    monkeypatch.setattr(ecoshare, "_service", ServiceSpec(p99_s=30.0, batch_sizes=(3,), queue=4))
    before_s = time.monotonic()
    with ecoshare.serve(handler, batch=1, p99="1 ms", queue=1) as server:
        answers = [server.submit("a")]
        assert wanted.wait(LONG_S)
        answers += [server.submit("bad"), server.submit("b")]
        turn.set()
        wait(answers, LONG_S)
        assert [each.exception() is None for each in answers] == [True, False, True]
    assert batches == [["a", "bad", "b"], ["a"], ["bad"], ["b"]], "chosen after the turn came; then each alone"
    assert len(calls) == 4
    assert all(30.0 <= due_s - before_s <= 30.0 + LONG_S for due_s, _ in calls), "the target of the job file"


def test_no_batch_is_larger_than_the_run_allows_now(monkeypatch: pytest.MonkeyPatch) -> None:
    most, sizes, entered, released = [2], list[int](), threading.Event(), threading.Event()

    def handler(requests: list[Any]) -> list[Any]:
        sizes.append(len(requests))
        entered.set()
        assert released.wait(LONG_S)
        return requests

    monkeypatch.setattr(ecoshare, "_most_batch", lambda: most[0])
    with ecoshare.serve(handler, batch=(1, 2, 4), p99="30 s") as server:
        first = server.submit(0)
        assert entered.wait(LONG_S)
        answers = [first, *(server.submit(number) for number in range(4))]
        released.set()
        wait(answers, LONG_S)
        assert sizes == [1, 2, 2]
        most[0], more = 0, [server.submit(number) for number in range(9)]
        wait(more, LONG_S)
    assert max(sizes[3:]) == 4 and sum(sizes) == 14


def test_wake_ups_of_an_idle_service_alone_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ecoshare, "_requests_path", str(tmp_path / "requests.jsonl"))
    entered, released = threading.Event(), threading.Event()

    def handler(requests: list[Any]) -> list[Any]:
        entered.set()
        assert released.wait(LONG_S)
        return requests

    before_s = time.monotonic()
    with ecoshare.serve(handler, batch=1, p99="30 s") as server:
        answers = [server.submit(0)]
        assert entered.wait(LONG_S)
        answers.append(server.submit(1))  # it comes to a busy service
        released.set()
        wait(answers, LONG_S)
        server.submit(2).result(LONG_S)
    woke = [each.woke for each in read(tmp_path / "requests.jsonl")]
    assert sum(count for count, _ in woke) == 2
    assert 0.0 < sum(sum_s for _, sum_s in woke) < time.monotonic() - before_s


def test_a_failing_context_leaves_no_request_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def answering(due_s: float, answer_s: float) -> Any:
        raise OSError("no lane")

    monkeypatch.setattr(ecoshare, "_answering", answering)
    with ecoshare.serve(lambda requests: requests) as server:
        with pytest.raises(ServiceClosed, match="the service failed: OSError: no lane"):
            server.submit(1).result(LONG_S)
        with pytest.raises(ServiceClosed, match="no lane"):
            server.submit(2)
        with pytest.raises(OSError, match="no lane"):
            server.run()


def test_a_context_that_fails_before_a_second_try_leaves_no_request_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[float] = []

    @contextmanager
    def answering(due_s: float, answer_s: float) -> Iterator[Callable[..., None]]:
        calls.append(due_s)
        if len(calls) == 2:
            raise OSError("no lane")
        assert entered.wait(LONG_S)
        yield lambda *_: None

    def handler(requests: list[Any]) -> list[Any]:
        raise LookupError

    entered = threading.Event()
    monkeypatch.setattr(ecoshare, "_answering", answering)
    with ecoshare.serve(handler) as server:
        answers = [server.submit(1), server.submit(2)]
        entered.set()
        for each in answers:
            with pytest.raises((ServiceClosed, LookupError)):
                each.result(LONG_S)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_serves_until_a_signal_and_then_closes(number: signal.Signals) -> None:
    program = (
        "import ecoshare, signal, time\n"
        "def handler(requests):\n"
        "    while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL: time.sleep(0.01)\n"
        "    print('entered', flush=True)\n"
        "    while server._queue.is_open: time.sleep(0.01)\n"
        "    return requests\n"
        "server = ecoshare.serve(handler, batch=1)\n"
        "first, second = server.submit(1), server.submit(2)\n"
        "server.run()\n"
        "print('answer', first.result(), repr(second.exception()), flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "entered\n"
        os.kill(running.pid, number)
        assert running.stdout.read() == "answer 1 ServiceClosed('the service is closed')\n"
        assert running.wait(LONG_S) == 0


def test_a_program_that_ends_closes_its_server_and_ends() -> None:
    program = (
        "import ecoshare, time\n"
        "server = ecoshare.serve(lambda requests: time.sleep(0.2) or requests)\n"
        "server.submit(1).add_done_callback(lambda future: print('answered', future.result(), flush=True))\n"
        "time.sleep(0.05)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "answered 1\n", "")


@pytest.mark.nightly
def test_an_idle_server_does_not_wake_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ecoshare, "_requests_path", str(tmp_path / "requests.jsonl"))
    with ecoshare.serve(lambda requests: [threading.get_native_id() for _ in requests]) as server:
        status = Path(f"/proc/self/task/{server.submit(1).result(LONG_S)}/status")
        wait_for(lambda: (tmp_path / "requests.jsonl").exists())

        def is_quiet() -> bool:
            before = [line for line in status.read_text().splitlines() if "ctxt_switches" in line]
            time.sleep(1.1)  # longer than the interval of the record
            return before == [line for line in status.read_text().splitlines() if "ctxt_switches" in line]

        wait_for(is_quiet, within_s=LONG_S)


def test_under_many_threads_each_request_has_one_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ecoshare, "_requests_path", str(tmp_path / "requests.jsonl"))
    ends: Counter[str] = Counter()

    def handler(requests: list[int]) -> list[int]:
        time.sleep(0.0005)
        if any(each % 50 == 7 for each in requests):
            raise LookupError
        return requests

    def client(seed: int) -> None:
        draws = random.Random(seed)
        mine: list[Future[int]] = []
        for number in range(150):
            try:
                mine.append(server.submit(number, within_s=draws.choice([None, 0.01])))
            except ecoshare.QueueFull:
                ends["refused"] += 1
            if mine and draws.random() < 0.2:
                draws.choice(mine).cancel()
            time.sleep(draws.choice([0.0, 0.0005]))
        wait(mine, LONG_S)
        ends.update("cancelled" if each.cancelled() else "failed" if each.exception(0) else "answered" for each in mine)

    with ecoshare.serve(handler, queue=8) as server:
        threads = [threading.Thread(target=client, args=(seed,)) for seed in range(6)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(LONG_S)
    totals = total(read(tmp_path / "requests.jsonl"))
    assert totals.arrived == 900
    assert min(ends.values()) > 0 and len(ends) == 4, ends
    assert {name: getattr(totals, name) for name in ends} == ends


@given(st.lists(st.floats(0.0, 100.0), max_size=30), st.integers(1, 20), st.integers(1, 9))
def test_the_queue_is_bounded_and_gives_the_earliest_due_first(due: list[float], most: int, size: int) -> None:
    queue = RequestQueue(most)
    held: list[float] = []
    for due_s in due:
        if len(held) < most:
            queue.put(due_s, 0.0, due_s)
            held.append(due_s)
        else:
            with pytest.raises(ecoshare.QueueFull):
                queue.put(due_s, 0.0, due_s)
    taken: list[float] = []
    while queue.waiting():
        batch = queue.take(lambda waiting: min(size, waiting.number))
        assert 0 < len(batch) <= size
        taken += [each.value for each in batch]
    assert taken == sorted(held)


def test_the_handler_finds_the_settings_of_the_thread_that_calls_serve() -> None:
    """If it failed, `torch.set_num_threads` would not hold: a product of matrices takes all processors, or one."""
    before, number = torch.get_num_threads(), len(os.sched_getaffinity(0)) + 1  # the default is at most one less
    matrix = torch.randn(600, 600)

    def handler(requests: list[Any]) -> list[Any]:
        there = set(Path("/proc/self/task").iterdir())
        product = matrix @ matrix
        return [(set(Path("/proc/self/task").iterdir()) - there, product.is_inference())] * len(requests)

    with torch.inference_mode():
        server = ecoshare.serve(handler)
    torch.set_num_threads(number)
    try:
        with server:
            started, is_inference = server.submit(0).result(LONG_S)
    finally:
        torch.set_num_threads(before)
    assert (len(started), is_inference) == (number - 1, True), "the thread of the handler works, too"


def test_requests_are_made_with_the_settings_that_the_program_has_when_it_runs_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = ServiceSpec(p99_s=10.0, requests=RequestSource(clients=1, count=1))
    monkeypatch.setattr(ecoshare, "_service", spec)
    found = list[str]()

    def sample(number: int) -> str:
        found.append(torch.ones(1).device.type)
        return found[-1]

    server = ecoshare.serve(lambda requests: [sample(each) for each in requests], sample=sample)
    with torch.device("meta"):
        told = torch.get_default_device().type  # torch 2.6 does not know of the context
        server.run()
    assert found == [told, told] and (told == "meta" or torch.__version__.startswith("2.6."))
