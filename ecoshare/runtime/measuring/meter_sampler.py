"""Samples of one device's meter and of the progress of its jobs during a run, written to `samples.jsonl`.

::

    ├─┼─┼─┼─┼─┼─┼──┼──┼──┼───┼───┼────┼─    one sample a second for the first 1,000 seconds, then one for each
    0           1000 s                      thousandth of the time so far: a day has 5,500 lines

If the meter fails, only the joules of the time of its failure are lost. If the device fails, its joules end there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial

from ecoshare.base.clock import loop_s
from ecoshare.base.joules import MEASURED
from ecoshare.devices.meter import Meter, MeterFault, MeterInfo, ModelMeter
from ecoshare.devices.processor_load import LoadWatch
from ecoshare.devices.registry import open_device
from ecoshare.devices.vendor import DeviceHealth, OpenDevice
from ecoshare.errors import UnfitEnvironment
from ecoshare.record.samples import AttemptProgress, Idle, Sample, SampleFile, Session, shortest_s
from ecoshare.runtime.measuring.device_claim import ClaimedDevice, DriverCalls

ANSWERS_WITHIN_S = 5.0
"""Longest time (s) to wait for a driver."""

_NO_ANSWER = "the driver does not answer"

_SHARE = 0.001
"""Least time between two samples, as a part of the time of the run so far."""


class MeterSampler:
    """Samples one device of a run.

    Attributes:
        session: Session of the open meter; None before it is opened, and without a meter.
        idle_w: Power (W) of the idle device, measured while the jobs waited. Before that, the value of an earlier run
            or of the model. None if unknown.
        idle_watched: Whether `idle_w` was measured in this run.
        calls: Calls of the device's driver.
    """

    def __init__(
        self,
        file: SampleFile,
        claimed: ClaimedDevice,
        jobs: Callable[[Mapping[int, int]], dict[str, AttemptProgress]],
        overhead_s: Callable[[], float | None] = lambda: None,
        shared_s: Callable[[], tuple[float | None, float | None]] = lambda: (None, None),
    ) -> None:
        """Prepare a sampler. `begin` opens its meter.

        Args:
            file: File that gets the samples.
            claimed: The device.
            jobs: Returns the progress of each attempt in progress, and once more of each attempt that ended since the
                last call. The argument is the memory (bytes) of each process on the GPU, as far as the driver reports.
            overhead_s: Returns the processor time (s) of ecoshare itself so far; None before it is known.
            shared_s: Returns the times (s) of the sample that tell of other runs: `away_s` and `idle_of_others_s`.
        """
        self.session: Session | None = None
        self.idle_w: float | None = None
        self._known_idle_w = claimed.known_idle_w
        self.idle_watched = False
        self._file, self._jobs, self._device, self._model = file, jobs, claimed.device, claimed.power
        self._overhead_s, self._shared_s = overhead_s, shared_s
        self._opened: OpenDevice | None = None
        self._meter: Meter | None = None
        self._done: dict[str, AttemptProgress] = {}
        self._load: LoadWatch | None = None
        self._others_s = 0.0
        self._gone_s = 0.0  # busy time of ended attempts that `jobs` no longer returns
        self._origin_j = self._period_s = self._taken_s = 0.0
        self._opened_s = 0.0  # monotonic time at which the run was opened
        self._one_at_a_time = asyncio.Lock()
        self._began = asyncio.Event()
        self.calls = claimed.calls or DriverCalls(ANSWERS_WITHIN_S)
        self._open_it = claimed.open or partial(open_device, claimed.device)
        self._failed = ""  # reason why the device has failed, in words

    async def keep(self, now_s: Callable[[], float]) -> None:
        """Sample until cancelled.

        Args:
            now_s: Returns the time (s) since the run was opened.
        """
        has_meter = await self.begin(now_s)
        self._began.set()
        while has_meter and not self._failed:
            await asyncio.sleep(max(shortest_s(self._period_s), _SHARE * now_s()))
            await self.take(now_s)

    async def first_sample(self, limit_s: float) -> None:
        """Wait at most `limit_s` seconds until the first sample is taken, or it is known that there is no meter."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._began.wait(), limit_s)

    async def begin(self, now_s: Callable[[], float]) -> bool:
        """Open the best meter that answers, and take the first sample; False if there is no meter."""
        self._meter = await self.calls.apart(self._open)
        if self._meter is None:
            return False
        self._opened_s = max(loop_s() - now_s() for _ in range(3))  # the least delayed value
        info, self._period_s = self._meter.info, self._meter.info.period_s
        self.idle_w = self._idle_w(info)
        cores = self._device.cores if self._device.on_processors else 0
        told = (info.name, info.source, info.scope, info.about, info.period_s, self.idle_w, cores)
        self.session = Session(now_s(), self._device.name, *told, looks=info.looks)
        self._file.write(self.session)
        await self.take(now_s)
        return True

    async def finish(self, now_s: Callable[[], float]) -> None:
        """Take the last sample, with the progress since the sample before it."""
        if self._meter is None:
            return
        if (early_s := self._taken_s + self._period_s - now_s()) > 0.0:
            await asyncio.sleep(early_s + 0.01)
        await self.take(now_s)

    async def take(self, now_s: Callable[[], float]) -> Sample | None:
        """Take one sample; None without a meter. If the caller is cancelled, the sample is still finished."""
        if self._meter is None:
            return None
        return await asyncio.shield(asyncio.ensure_future(self._take(self._meter, now_s)))

    async def _take(self, meter: Meter, now_s: Callable[[], float]) -> Sample:
        async with self._one_at_a_time:
            on_device = await self.on_device()
            self._taken_s = now_s()
            done = {key: self._grown(key, each) for key, each in self._jobs(on_device).items()}
            self._gone_s += sum(self._busy_s(self._done[key]) for key in self._done.keys() - done.keys())
            self._done = done
            sample = await self.calls.answer(partial(self._sample, meter, done, now_s)) or Sample(
                now_s(), None, self._failed or _NO_ANSWER, jobs=done, device=self._device.name
            )
            self._file.write(sample)
        return sample

    def tell_idle(self, idle: Idle) -> None:
        """Record the measured power of the idle device."""
        self.idle_w, self.idle_watched = idle.power_w, True
        self._file.write(replace(idle, device=self._device.name))

    def processes(self) -> dict[int, int]:
        """Memory (bytes) of each process on the device; empty for processors."""
        return self._opened.processes() if self._opened is not None else {}

    async def on_device(self) -> dict[int, int]:
        """Memory (bytes) of each process, read beside the loop; empty for processors, and without an answer."""
        return await self.calls.answer(self.processes) or {}

    def used_bytes(self) -> int | None:
        """Memory (bytes) in use on the device, by all processes; None if the device does not report it."""
        state = self._opened.state() if self._opened is not None else None
        return None if state is None else state.memory_bytes

    async def health(self) -> DeviceHealth:
        """Whether the device still works. Without an open device or an answer nothing is known."""
        if self._opened is None:
            return DeviceHealth()
        return await self.calls.answer(self._opened.health) or DeviceHealth()

    def fail(self, reason: str) -> None:
        """Note that the device has failed: from the last sample on, its joules are not known for this reason."""
        self._failed = reason

    async def power_limit_w(self) -> float | None:
        """Power limit (W) in force, read beside the loop; None if there is none, or without an answer."""
        return await self.calls.answer(self._opened.power_limit_w) if self._opened is not None else None

    def _sample(self, meter: Meter, jobs: dict[str, AttemptProgress], now_s: Callable[[], float]) -> Sample:
        if self._failed:
            return Sample(now_s(), None, self._failed, jobs=jobs, device=self._device.name)
        try:
            reading = meter.read()
            # The time of the read itself, to the microsecond. A busy machine may stop this thread between the read and
            # a later look at the clock. Then idle joules of that time would be subtracted from those of the jobs.
            sample = Sample(reading.at_s - self._opened_s, reading.energy_j - self._origin_j)
        except MeterFault as fault:
            sample = Sample(now_s(), None, str(fault))
        state = self._opened.state() if self._opened is not None else None
        told = asdict(state) if state is not None else {}
        away_s, idle_of_others_s = self._shared_s()
        sample = replace(sample, away_s=away_s, idle_of_others_s=idle_of_others_s)
        return replace(sample, **told, others_s=self._of_others_s(), jobs=jobs, device=self._device.name)

    def _own_s(self) -> float:
        """Processor time (s) of the run so far."""
        return (self._overhead_s() or 0.0) + self._all_busy_s()

    def _of_others_s(self) -> float | None:
        """Processor time (s) of other programs since ecoshare's own is known; None before, and on GPUs."""
        if self._load is None and self._device.on_processors and self._overhead_s() is not None:
            self._load = LoadWatch.begin(self._own_s, self._device.processors)
        others_s = self._load.others_s() if self._load is not None else None
        if others_s is not None:
            others_s = self._others_s = max(self._others_s, others_s)  # the end of a job may be told late
        return others_s

    def _open(self) -> Meter | None:
        try:
            self._opened = self._open_it()
            meter = self._opened.open_meter()
            self._origin_j = meter.read().energy_j
        except UnfitEnvironment as fault:  # a failed meter must not end the run
            return self._modelled(str(fault))
        return meter

    def _modelled(self, why: str) -> Meter | None:
        if self._model is None:
            return None
        return ModelMeter(self._model, self._device.scope, self._all_busy_s, why)

    def _all_busy_s(self) -> float:
        """Busy time (s) of all attempts so far."""
        return self._gone_s + sum(map(self._busy_s, self._done.values()))

    def _idle_w(self, info: MeterInfo) -> float | None:
        """Power (W) of the idle device until it is measured; None if unknown.

        The model of a GPU starts from the idle power that its driver reported. The model of processors describes other
        machines. So the idle power of that model fits the joules of the model, but not those of a counter.
        """
        known_w = self._known_idle_w(info.name)
        if known_w is not None or self._model is None:
            return known_w
        return None if info.source == MEASURED and self._device.on_processors else self._model.idle_w

    def _grown(self, key: str, progress: AttemptProgress) -> AttemptProgress:
        """Progress of an attempt, never less than was seen before.

        The end of a job may be reported with figures that are a second old, and without the processor time of children
        that the job did not wait for.
        """
        before = self._done.get(key)
        if before is None:
            return progress
        return progress._replace(
            held_s=max(progress.held_s, before.held_s),
            iterations=max(progress.iterations, before.iterations),
            eval_iterations=max(progress.eval_iterations, before.eval_iterations),
            cpu_s=max(progress.cpu_s, before.cpu_s),
        )

    def _busy_s(self, progress: AttemptProgress) -> float:
        """Busy time (s) that the joules of a model grow with: processor time, or time that a job held the GPU."""
        return progress.cpu_s if self._device.on_processors else progress.held_s
