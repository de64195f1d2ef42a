"""Signals that ask for the end of a run, during the run and after it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from ecoshare.runtime.signals import ENDING, CommandSignals
from tests.warm import wait_for


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


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


def test_a_late_ctrl_c_does_not_cost_the_result() -> None:
    CommandSignals().over()
    os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
