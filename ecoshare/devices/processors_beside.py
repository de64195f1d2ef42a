"""The processors beside a GPU: their frequency is set and their joules are counted while the GPU's packings are tuned.

::

    cpufreq can be written?  ──►  RAPL can be read?  ──►  no other run sets the processors?  ──►  knob `cpu_frequency`
                                                                                                 joules in the objective

The frequency without the joules would be tuned blindly: every lower frequency that keeps the limit costs nothing of the
GPU. The claim is the lock of the processors, so one run of a machine sets them at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from ecoshare.devices import registry
from ecoshare.devices.cpu_knobs import CPU_FREQUENCY, CpuKnobs
from ecoshare.devices.device_control import DeviceControl
from ecoshare.devices.knob import DeviceKnob
from ecoshare.devices.meter import MeterFault
from ecoshare.devices.rapl_meter import RaplMeter
from ecoshare.devices.state_folder import StateFolder, key
from ecoshare.errors import UnfitEnvironment


@dataclass(frozen=True, slots=True)
class ProcessorsBeside:
    """Processors that a run may set beside a GPU.

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
