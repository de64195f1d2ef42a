"""Calibrates devices on purpose: the same loads run on each of them, one device at a time.

::

    round 1   cuda:0 compute, memory   cuda:1 compute, memory   cuda:2 …
    round 2   cuda:2 …                 cuda:1 compute, memory   cuda:0 …        the other way round
    round 3   cuda:0 …

Heat and clocks that change with time then affect all devices alike. Each device has a process of its own, which
waits while other devices are measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from ecoshare.base.batch_means import relative_error
from ecoshare.base.device import DeviceInfo
from ecoshare.base.printable import last_line, utc_text
from ecoshare.devices import registry
from ecoshare.devices.processor_load import LoadWatch
from ecoshare.errors import UnfitEnvironment
from ecoshare.knowledge.calibration_store import (
    CalibratedDevice,
    CalibrationStore,
    DeviceCalibrationResult,
    IterationTime,
    identity,
)
from ecoshare.knowledge.device_speeds import COMPUTE, MEMORY
from ecoshare.lane import interpreter, processes
from ecoshare.runtime.measuring.device_claim import leftovers

LOADS = COMPUTE, MEMORY

SECONDS = 4.0
"""Default time (s) of each load on each device."""

_ROUNDS = 3


def check_comparable(devices: Sequence[DeviceInfo], store: CalibrationStore) -> None:
    """Check that there are two devices to compare, and that all are at the settings of their owner.

    Args:
        devices: Devices to calibrate, all of one model.
        store: Calibrations of all devices. One device is compared with those that were calibrated before.

    Raises:
        UnfitEnvironment: There is one device, a device has no identity, or a run has left settings on one.
    """
    first = devices[0]
    model, hint = first.described, "`--device cpu/2` cuts the processors into two" if first.on_processors else ""
    if first.on_processors and not first.processors:
        raise UnfitEnvironment(f"{first.name} is one device, and there is nothing to compare it with", hint)
    if nameless := [each.name for each in devices if identity(each) is None]:
        raise UnfitEnvironment(f"{nameless[0]} tells no UUID by which a later run would know it")
    known = {each.device for each in store.all() if each.model == model} | {identity(each) for each in devices}
    if len(known) < 2:
        raise UnfitEnvironment(f"{first.name} is the only {model} that is known, and there is nothing to compare", hint)
    for each in devices:
        words, is_so = leftovers(each, may_set=False)
        if not is_so:
            raise UnfitEnvironment(words[0])


def calibrate(
    devices: Sequence[DeviceInfo], seconds: float, store: CalibrationStore, say: Callable[[str], None]
) -> DeviceCalibrationResult:
    """Measure the loads on each device, keep the times, and compare the devices.

    Args:
        devices: Devices that this process has claimed, all of one model.
        seconds: Time (s) of each load on each device.
        store: Calibrations of all devices.
        say: Shows a note to the user.

    Raises:
        UnfitEnvironment: A load fails, as without memory, or the times cannot be kept.
    """
    store.make()
    began_s = time.monotonic()
    measured: dict[str, dict[str, list[list[float]]]] = {each.name: {load: [] for load in LOADS} for each in devices}
    with ExitStack() as undo:
        running = [(each, undo.enter_context(_load_process(each))) for each in devices]
        for _, process in running:
            process.answer()
        own = [os.getpid(), *(process.pid for _, process in running)]
        watch = LoadWatch.begin(lambda: processes.processor_s(own))
        for number in range(_ROUNDS):
            for device, process in running if number % 2 == 0 else reversed(running):
                for load in LOADS:
                    measured[device.name][load].append(process.measure(load, seconds / _ROUNDS))
        if words := watch.words():
            say(f"{words}: the times are less certain; calibrate again when the machine is quiet")
    run = f"calibration {utc_text()}"
    times = {name: {load: _time(rounds, run) for load, rounds in loads.items()} for name, loads in measured.items()}
    for device in devices:
        store.add(device, times[device.name])
    speeds = store.speeds(devices[0].described)
    found = tuple(CalibratedDevice(each, times[each.name], speeds[identity(each) or ""]) for each in devices)
    return DeviceCalibrationResult(devices[0].described, found, time.monotonic() - began_s)


def _time(rounds: Sequence[Sequence[float]], run: str) -> IterationTime:
    """Median over all rounds, with the larger one of two errors: that within the rounds, and that between them."""
    durations = [duration_s for each in rounds for duration_s in each]
    medians = [median(each) for each in rounds]
    between = stdev(medians) / fmean(medians) / len(medians) ** 0.5
    error = max(between, relative_error(durations) or 0.0)
    return IterationTime(seconds=median(medians), iterations=len(durations), relative_error=error, run=run)


class _LoadProcess:
    """A process with the loads of one device."""

    def __init__(self, device: DeviceInfo, process: subprocess.Popen[str], errors: Path) -> None:
        self._device, self._process, self._errors = device, process, errors
        self.pid = process.pid

    def measure(self, load: str, seconds: float) -> list[float]:
        """Times (s) of the iterations of a load.

        Raises:
            UnfitEnvironment: The load fails.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{load} {seconds}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the answer tells why
        return [float(each) for each in self.answer()]

    def answer(self) -> Any:
        """Next answer of the process.

        Raises:
            UnfitEnvironment: The process has ended.
        """
        assert self._process.stdout is not None
        if line := self._process.stdout.readline():
            return json.loads(line)
        words = last_line(self._errors.read_text(errors="replace")) or "its process ended"
        raise UnfitEnvironment(f"{self._device.name}: the load failed: {words}")


@contextmanager
def _load_process(device: DeviceInfo) -> Iterator[_LoadProcess]:
    """Context manager: a process with the loads, which sees its device only. It ends with the context."""
    seen = dict(os.environ)
    interpreter.change(seen, registry.vendor(device.vendor).environment((device,)))
    words = [str(os.getpid()), device.kind, ",".join(map(str, device.processors))]
    with tempfile.NamedTemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "ecoshare.runtime.measuring.calibration_load", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=seen,
            start_new_session=True,  # Ctrl-C reaches this process alone, which ends the other
        )
        try:
            yield _LoadProcess(device, process, Path(errors.name))
        finally:
            process.kill()
            process.communicate()
