"""Calls of a driver that never returns."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ecoshare.devices import registry
from ecoshare.devices.meter import processors_power_model
from ecoshare.devices.vendors.processors import OpenProcessors
from ecoshare.record.samples import Sample, SampleFile, read
from ecoshare.runtime.measuring import meter_sampler
from ecoshare.runtime.measuring.device_claim import ClaimedDevice, DriverCalls
from ecoshare.runtime.measuring.meter_sampler import MeterSampler


def test_a_call_without_an_answer_ends_in_time_and_no_other_begins_until_it_returns() -> None:
    blocked, begun = threading.Event(), list[str]()

    def call(name: str) -> str:
        begun.append(name)
        if name == "blocks":
            blocked.wait()
        return name

    async def calls() -> None:
        driver = DriverCalls(0.1)
        assert await driver.answer(lambda: call("first")) == "first"
        assert await driver.answer(lambda: call("blocks")) is None
        assert await driver.answer(lambda: call("not begun")) is None
        blocked.set()
        await asyncio.sleep(0.1)
        assert await driver.answer(lambda: call("last")) == "last"
        with pytest.raises(ZeroDivisionError):
            await driver.answer(lambda: 1 / 0)

    asyncio.run(calls())
    assert begun == ["first", "blocks", "last"]


@pytest.mark.slow
def test_a_process_ends_although_a_call_never_returns() -> None:
    """Threads of `asyncio.to_thread` are waited for: by the end of the loop, and by that of the process."""
    program = (
        "import asyncio, time\n"
        "from ecoshare.runtime.measuring.device_claim import DriverCalls\n"
        "print(asyncio.run(DriverCalls(0.1).answer(lambda: time.sleep(3600))))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "None\n"


def test_the_last_sample_does_not_wait_for_a_meter_that_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter_sampler, "ANSWERS_WITHIN_S", 0.2)
    file = SampleFile(tmp_path / "samples.jsonl")
    sampler = MeterSampler(file, ClaimedDevice(registry.processors(), processors_power_model(1)), lambda _on_device: {})

    async def sample() -> None:
        await sampler.begin(time.monotonic)
        monkeypatch.setattr(sampler, "_sample", lambda *_: time.sleep(3600))
        await asyncio.wait_for(sampler.finish(time.monotonic), 10)

    asyncio.run(sample())
    file.close()
    last = [each for each in read(tmp_path / "samples.jsonl") if isinstance(each, Sample)][-1]
    assert (last.energy_j, last.fault) == (None, "the driver does not answer")


def test_a_power_limit_that_the_driver_does_not_tell_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read in the loop, it stopped the whole run at the end of a profiling window."""
    monkeypatch.setattr(meter_sampler, "ANSWERS_WITHIN_S", 0.1)
    monkeypatch.setattr(OpenProcessors, "power_limit_w", lambda _: time.sleep(3600))
    file = SampleFile(tmp_path / "samples.jsonl")
    sampler = MeterSampler(file, ClaimedDevice(registry.processors(), processors_power_model(1)), lambda _on_device: {})

    async def limit_w() -> float | None:
        await sampler.begin(time.monotonic)
        return await asyncio.wait_for(sampler.power_limit_w(), 5)

    assert asyncio.run(limit_w()) is None
    file.close()
