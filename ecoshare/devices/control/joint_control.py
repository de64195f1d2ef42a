"""A GPU and the processors beside it as one device to set: each has its own claim, journal and undo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ecoshare.devices import registry
from ecoshare.devices.control.device_control import Applied, DeviceControl, Setting, Value
from ecoshare.devices.control.restore import Restored
from ecoshare.devices.control.state_folder import StateFolder, key
from ecoshare.devices.cpu_knobs import CPU_FREQUENCY, CpuKnobs
from ecoshare.devices.knob import Access, Clocks, ClocksMhz, DeviceKnob, KnobFault, KnobSpec
from ecoshare.devices.meter import MeterFault
from ecoshare.devices.rapl_meter import RaplMeter
from ecoshare.errors import UnfitEnvironment


@dataclass(frozen=True, slots=True)
class ProcessorsBeside:
    """Processors that a run may set beside a GPU.

    ::

        cpufreq can be written? ──► RAPL can be read? ──► no other run sets the processors? ──► knob `cpu_frequency`,
                                                                                                joules in the objective

    The frequency without the joules would be tuned blindly: every lower frequency that keeps the limit costs nothing of
    the GPU. The claim is the lock of the processors, so one run of a machine sets them at a time.

    Attributes:
        control: Control of their frequency.
        meter: Open meter of their joules.
    """

    control: DeviceControl
    meter: RaplMeter


def frequency_knob() -> DeviceKnob:
    """The frequency of the processors, if it can be a knob beside a GPU. Nothing is set or claimed.

    Raises:
        UnfitEnvironment: The frequency cannot be set by this user, or the joules of the processors cannot be read.
    """
    knobs = CpuKnobs(names=(CPU_FREQUENCY,))
    if not knobs.knobs:
        raise UnfitEnvironment(knobs.missing[CPU_FREQUENCY])
    (knob,) = knobs.knobs
    if not knobs.access.allowed:
        raise UnfitEnvironment(f"it cannot be set: {knobs.access.how}", knobs.access.remedy)
    try:
        RaplMeter().open()
    except MeterFault as fault:
        raise UnfitEnvironment(f"the joules of the processors cannot be read: {fault}", fault.hint) from fault
    return knob


def claim_processors(state: StateFolder) -> ProcessorsBeside:
    """Claim the frequency of the processors, and restore what a dead run left there.

    Raises:
        UnfitEnvironment: `frequency_knob` raises it; there is one frequency; another run sets the processors; or the
            settings of a dead run cannot be restored.
    """
    frequency_knob()
    device = registry.processors()
    control = DeviceControl(key(device), device.vendor, device.model, state, only=(CPU_FREQUENCY,))
    try:
        # Now and not before the claim: another run, or a dead one, may have left the lowest frequency in force.
        if not control.specs:
            raise UnfitEnvironment("the processors have one frequency")
        meter = RaplMeter()
        meter.open()
    except BaseException:
        control.restore()
        raise
    return ProcessorsBeside(control, meter)


class JointControl:
    """Control of a GPU together with the processors. The GPU gives the name, the key and the access."""

    def __init__(self, gpu: DeviceControl, beside: DeviceControl) -> None:
        """Join two claimed devices. No knob has a name of the other device's."""
        self._gpu, self._beside = gpu, beside
        self.vendor, self.device, self.model = gpu.vendor, gpu.device, gpu.model
        self.notes = [*gpu.notes, *beside.notes]

    @property
    def claimed(self) -> tuple[tuple[str, str], ...]:
        """Vendor and key of each claimed device, for the guard."""
        return (*self._gpu.claimed, *self._beside.claimed)

    @property
    def access(self) -> Access:
        """Whether this user may set the GPU."""
        return self._gpu.access

    @property
    def missing(self) -> Mapping[str, str]:
        """Knobs that the GPU lacks, each with the reason."""
        return self._gpu.missing

    @property
    def specs(self) -> tuple[KnobSpec, ...]:
        """Specs of the knobs that can still be set, those of the GPU first."""
        return (*self._gpu.specs, *self._beside.specs)

    @property
    def dropped(self) -> Mapping[str, KnobFault]:
        """Knobs that failed for good, each with the fault."""
        return {**self._gpu.dropped, **self._beside.dropped}

    @property
    def default(self) -> dict[str, Value]:
        """Setting with which both devices were found."""
        return {**self._gpu.default, **self._beside.default}

    @property
    def clocks_mhz(self) -> ClocksMhz:
        return self._gpu.clocks_mhz

    def readings(self) -> dict[str, Value]:
        """Present value of each knob; see `DeviceControl.readings`."""
        return {**self._gpu.readings(), **self._beside.readings()}

    def clocks(self) -> Clocks | None:
        """Present clocks of the GPU; None if it does not report them, or after `restore`."""
        return self._gpu.clocks()

    def look(self) -> None:
        """Check whether clocks of the GPU are locked; see `DeviceControl.look`."""
        self._gpu.look()

    def apply(self, setting: Setting) -> Applied:
        """Set every knob that `setting` names; see `DeviceControl.apply`.

        Raises:
            RuntimeError: The devices were given back.
        """
        names = {spec.name for spec in self._beside.specs} | self._beside.dropped.keys()
        gpu = self._gpu.apply({name: value for name, value in setting.items() if name not in names})
        beside = self._beside.apply({name: value for name, value in setting.items() if name in names})
        return Applied({**gpu.setting, **beside.setting}, {**gpu.refused, **beside.refused})

    def restore(self) -> list[Restored]:
        """Restore all knobs of both devices and give them back; see `DeviceControl.restore`."""
        try:
            done = self._beside.restore()
        finally:  # the GPU is put back whatever becomes of the processors
            gpu = self._gpu.restore()
        return [*gpu, *done]
