"""A device of a recorded run at any moment, from its samples and settings."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from ecoshare.queue.queue_documents import DeviceStatus, LaneStatus
from ecoshare.record.results.run_summary import DeviceSummary
from ecoshare.record.run_data import RunData
from ecoshare.record.samples import Sample
from ecoshare.top.recorded_energy import RisingSum
from ecoshare.values.device import PROCESSORS


class RecordedDevice:
    """One device of a recorded run.

    Attributes:
        name: Name in the run.
        source: `measured` or `modelled`; empty without a meter.
    """

    def __init__(self, data: RunData, summary: DeviceSummary, energy: Mapping[str, RisingSum]) -> None:
        """Device with this summary.

        Args:
            data: The run.
            summary: Summary of the device.
            energy: Joules of each device, by name.
        """
        self.name = summary.name
        session = data.energy.of(self.name).session
        self.source = session.source if session is not None else ""
        self._summary, self._energy = summary, energy.get(self.name)
        cores = f", {summary.cores} cores" if summary.fields["kind"] == PROCESSORS else ""
        self._described = f"{summary.model}{cores}"
        self._samples = data.samples_of(self.name)
        self._times_s = [each.at_s for each in self._samples]
        self._settings = [each for each in data.history.settings if each.device == self.name and each.error is None]
        self._set_s = [each.from_s for each in self._settings]

    def sample(self, at_s: float) -> Sample | None:
        """Last sample up to this time (s); None before the first."""
        place = bisect_right(self._times_s, at_s) - 1
        return self._samples[place] if place >= 0 else None

    def at(self, at_s: float, lanes: list[LaneStatus]) -> DeviceStatus:
        """The device at this time (s), with these lanes."""
        sample, failure = self.sample(at_s), self._summary.failed
        energy_j = self._energy.at(at_s) if self._energy is not None else None
        power_w = sample.power_w if sample is not None else None
        if power_w is None and self._energy is not None:
            power_w = self._energy.rate_w(at_s)
        return DeviceStatus(
            name=self.name,
            described=self._described,
            failed=failure.reason if failure is not None and failure.at_s <= at_s else "",
            lanes=lanes,
            setting=self._setting(at_s),
            power_w=power_w,
            energy_j=energy_j,
            energy_source=self.source if energy_j is not None else "",
            gpu_clock_mhz=sample.gpu_clock_mhz if sample is not None else None,
            memory_clock_mhz=sample.memory_clock_mhz if sample is not None else None,
            temperature_c=sample.temperature_c if sample is not None else None,
            busy=sample.busy if sample is not None else None,
            memory_bytes=sample.in_use_bytes if sample is not None else None,
            memory_total_bytes=self._summary.memory_bytes,
        )

    def _setting(self, at_s: float) -> dict[str, float | str]:
        place = bisect_right(self._set_s, at_s) - 1
        if place < 0:
            return {}
        each = self._settings[place]
        return each.setting if each.to_s is None or at_s < each.to_s else {}
