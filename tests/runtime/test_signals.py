"""Signals that ask for the end of a run, during the run and after it."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from ecoshare.runtime.signals import ENDING, CommandSignals
from tests.warm import wait_for


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_after_the_run_finds_the_handler_that_was_there_before(number: signal.Signals) -> None:
    """Fails if the kernel's default is left: it ends the process before the result is written, without code 130."""
    heard, late = list[str](), list[int]()
    signal.signal(number, lambda number, _frame: late.append(number))

    async def run() -> None:
        with CommandSignals().heard(lambda: heard.append("asked")):
            os.kill(os.getpid(), number)
            await asyncio.sleep(0.05)

    asyncio.run(run())
    assert heard == ["asked"] and not late
    os.kill(os.getpid(), number)
    wait_for(lambda: late == [number])


class _Forwarded(asyncio.SelectorEventLoop):
    """Loop with a clock that a test puts forward, so that it need not wait."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


def asked_by(*sent: tuple[float, signal.Signals]) -> list[int]:
    """Number of requests to stop after each of these signals, which are sent the given times (s) after each other."""
    for _, number in sent:
        signal.signal(number, lambda _number, _frame: None)  # else a worker of pytest ignores SIGINT
    asked, counts, loop = list[float](), list[int](), _Forwarded()

    async def run() -> None:
        with CommandSignals().heard(lambda: asked.append(loop.time())):
            for later_s, number in sent:
                loop.ahead_s += later_s
                os.kill(os.getpid(), number)
                await asyncio.sleep(0.05)
                counts.append(len(asked))

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(run())
    return counts


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_second_copy_of_a_signal_is_the_same_request_and_a_later_one_means_now(number: signal.Signals) -> None:
    """Slurm sends each process of a job SIGTERM, and a script passes it on: the jobs would have no time to save."""
    assert asked_by((0.0, number), (0.0, number), (9.0, number), (11.0, number)) == [1, 1, 1, 2]


def test_a_second_ctrl_c_means_now_and_so_does_another_signal() -> None:
    assert asked_by((0.0, signal.SIGINT), (0.0, signal.SIGINT)) == [1, 2]
    assert asked_by((0.0, signal.SIGTERM), (0.0, signal.SIGINT)) == [1, 2]


def test_a_late_ctrl_c_does_not_cost_the_result() -> None:
    CommandSignals().over()
    os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
