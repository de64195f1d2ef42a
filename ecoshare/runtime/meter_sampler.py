"""Reads the device's meter while a run goes on, and writes what it saw beside what the jobs did: `samples.jsonl`.

::

    ├─┼─┼─┼─┼─┼─┼──┼──┼──┼───┼───┼────┼─    a sample a second at first, ever fewer later: 1,000 seconds of samples,
    0           1000 s                      then one for each thousandth more, so that a day has 5,500 lines

A meter that fails costs the joules of the time it is away, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path

from ecoshare.devices import nvml
from ecoshare.devices.discovery import DeviceInfo
from ecoshare.devices.meter import MEASURED, Meter, MeterFault, MeterInfo
from ecoshare.devices.model_meter import ModelMeter
from ecoshare.devices.nvml_meter import NvmlMeter
from ecoshare.devices.power_model import PowerModel
from ecoshare.devices.rapl_meter import RaplMeter
from ecoshare.errors import UnfitEnvironment
from ecoshare.record import samples
from ecoshare.record.kept_file import KeptFile
from ecoshare.record.samples import AttemptProgress, Idle, Line, Sample, Session, shortest_s

_SHARE = 0.001
"""Part of the run so far that lies between two samples at least."""


class MeterSampler:
    """Samples one device of a run.

    Attributes:
        session: The meter that was opened; None before, and where there is none.
        idle_w: Draw of the idle device: as watched while the jobs waited, else of the model.
        idle_watched: Whether it was watched.
    """

    def __init__(
        self,
        path: Path,
        device: DeviceInfo,
        model: PowerModel | None,
        jobs: Callable[[Mapping[int, int]], dict[str, AttemptProgress]],
        known_idle_w: Callable[[str], float | None] = lambda _meter: None,
    ) -> None:
        """A sampler that has not begun.

        Args:
            path: The file to append to.
            model: Of the device's power, for want of a meter; None where there is not even that.
            jobs: What every attempt under way has done so far, and once more those that have ended since it was
                called last. Takes the GPU's memory by process, as far as the driver tells.
            known_idle_w: By the name of a meter: what it showed of this device at rest in an earlier run.
        """
        self.session: Session | None = None
        self.idle_w: float | None = None
        self._known_idle_w = known_idle_w
        self.idle_watched = False
        self._path, self._device, self._model, self._jobs = path, device, model, jobs
        self._gpu: nvml.OpenGpu | None = None
        self._meter: Meter | None = None
        self._file: KeptFile | None = None
        self._done: dict[str, AttemptProgress] = {}
        self._gone_s = 0.0  # busy time of attempts that are no longer told
        self._origin_j = self._period_s = self._taken_s = 0.0
        self._opened_s = 0.0  # of the run, on the monotonic clock
        self._one_at_a_time = asyncio.Lock()
        self._began = asyncio.Event()

    async def keep(self, now_s: Callable[[], float]) -> None:
        """Sample until cancelled.

        Args:
            now_s: Seconds since the run was opened.
        """
        has_meter = await self.begin(now_s)
        self._began.set()
        while has_meter:
            await asyncio.sleep(max(shortest_s(self._period_s), _SHARE * now_s()))
            await self.take(now_s)

    async def first_sample(self, limit_s: float) -> None:
        """Wait, for so many seconds at most, until the first sample is taken or it is known that there is no meter."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._began.wait(), limit_s)

    async def begin(self, now_s: Callable[[], float]) -> bool:
        """Open the best meter that answers; False where there is none at all."""
        self._meter = await asyncio.to_thread(self._open)
        if self._meter is None:
            return False
        self._opened_s = max(time.monotonic() - now_s() for _ in range(3))  # the least late of them
        info, self._period_s = self._meter.info, self._meter.info.period_s
        self.idle_w = self._idle_w(info)
        self._file = KeptFile(self._path)
        self.session = Session(
            now_s(), self._device.name, info.name, info.source, info.scope, info.about, info.period_s, self.idle_w
        )
        self._write(self.session)
        await self.take(now_s)
        return True

    async def finish(self, now_s: Callable[[], float]) -> None:
        """The last sample: what was done since the one before belongs to it."""
        if self._meter is None:
            return
        if (early_s := self._taken_s + self._period_s - now_s()) > 0.0:
            await asyncio.sleep(early_s + 0.01)
        await self.take(now_s)

    def close(self) -> None:
        """No more samples are to come."""
        if self._file is not None:
            self._file.close()

    async def take(self, now_s: Callable[[], float]) -> Sample | None:
        """One sample; None where there is no meter. Who is cancelled here cuts off no sample: it is finished."""
        if self._meter is None:
            return None
        return await asyncio.shield(asyncio.ensure_future(self._take(self._meter, now_s)))

    async def _take(self, meter: Meter, now_s: Callable[[], float]) -> Sample:
        async with self._one_at_a_time:
            on_device = await asyncio.to_thread(self._gpu.processes) if self._gpu is not None else {}
            self._taken_s = now_s()
            done = {key: self._grown(key, each) for key, each in self._jobs(on_device).items()}
            self._gone_s += sum(self._busy_s(self._done[key]) for key in self._done.keys() - done.keys())
            self._done = done
            sample = await asyncio.to_thread(self._sample, meter, done, now_s)
            self._write(sample)
        return sample

    def tell_idle(self, idle: Idle) -> None:
        """Record what the device was seen to draw while no job ran."""
        self.idle_w, self.idle_watched = idle.power_w, True
        self._write(idle)

    def processes_on_gpu(self) -> dict[int, int]:
        """Memory of each process on the GPU, bytes; none where the device is no GPU."""
        return self._gpu.processes() if self._gpu is not None else {}

    def power_limit_w(self) -> float | None:
        """In force on the device now; None where it has none, or does not say."""
        return self._gpu.power_limit_w() if self._gpu is not None else None

    def _sample(self, meter: Meter, jobs: dict[str, AttemptProgress], now_s: Callable[[], float]) -> Sample:
        try:
            reading = meter.read()
            # When it was read, to the microsecond: a busy machine may stop this thread between two looks at the clock,
            # and idle joules of that time would be taken from the jobs.
            sample = Sample(reading.at_s - self._opened_s, reading.energy_j - self._origin_j)
        except MeterFault as fault:
            sample = Sample(now_s(), None, str(fault))
        state = self._gpu.state() if self._gpu is not None else None
        return replace(sample, **(asdict(state) if state is not None else {}), jobs=jobs)

    def _open(self) -> Meter | None:
        try:
            if self._device.uuid is not None:
                self._gpu = nvml.OpenGpu(self._device.uuid)
            meter = NvmlMeter(self._gpu) if self._gpu is not None else RaplMeter()
            meter.open()
            self._origin_j = meter.read().energy_j
        except UnfitEnvironment as fault:  # no run fails for its meter
            return self._modelled(str(fault))
        return meter

    def _modelled(self, why: str) -> Meter | None:
        if self._model is None:
            return None
        scope = "cpu" if self._device.kind == "cpu" else "gpu"
        return ModelMeter(self._model, scope, lambda: self._gone_s + sum(map(self._busy_s, self._done.values())), why)

    def _idle_w(self, info: MeterInfo) -> float | None:
        """What the device draws at rest until that is watched; None where nobody knows.

        A GPU's model begins with what its driver said of the idle board. That of processors is of other machines: it
        goes with its own joules, and not with those of a counter.
        """
        known_w = self._known_idle_w(info.name)
        if known_w is not None or self._model is None:
            return known_w
        return None if info.source == MEASURED and self._device.kind == "cpu" else self._model.idle_w

    def _grown(self, key: str, progress: AttemptProgress) -> AttemptProgress:
        """Never less than was seen before: the end of a job may be told with what was known of it a second ago, and
        without the processor time of children that it did not wait for."""
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
        """What a model's joules grow with: processor time, or time of a GPU held."""
        return progress.cpu_s if self._device.kind == "cpu" else progress.held_s

    def _write(self, line: Line) -> None:
        assert self._file is not None, "there is a meter"
        self._file.append(samples.encode(line).encode())
