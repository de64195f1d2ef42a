"""Reads the knobs of this machine's devices, their present values, and journals of dead runs; sets nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ecoshare.base.device import DeviceInfo
from ecoshare.devices import registry
from ecoshare.devices.control import journal
from ecoshare.devices.control.joint_control import frequency_knob
from ecoshare.devices.control.journal import Journal, UntrustedJournal
from ecoshare.devices.control.state_folder import StateFolder, in_use, key
from ecoshare.devices.cpu_knobs import CPU_FREQUENCY
from ecoshare.devices.knob import Access, DeviceKnob, KnobFault, KnobSpec, Reading
from ecoshare.errors import EcoshareError, UnfitEnvironment

UNREADABLE = "cannot be read"


@dataclass(frozen=True, slots=True)
class FoundKnob:
    """A knob and its present value.

    Attributes:
        spec: Values that the knob takes.
        present: Present reading. None for a clock, since no driver reports its lock, or if the device does not answer.
    """

    spec: KnobSpec
    present: Reading | None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "name": self.spec.name,
            "unit": self.spec.unit,
            "lowest": self.spec.lowest,
            "highest": self.spec.highest,
            "values": self.spec.choices,
            "special": list(self.spec.special),
            "present": list(self.present) if self.present is not None else None,
        }


@dataclass(frozen=True, slots=True)
class FoundDevice:
    """One device as the survey found it.

    Attributes:
        name: Name in a run, such as `cuda:0`.
        key: Key of the device's journal and lock.
        access: Whether this user may set the device; if it cannot be opened, the reason.
        missing: Knobs that the device lacks, each with the reason.
        user: Process that sets the device now, in words; None if there is none.
        left: Journal of the device, or None. A dead run left it if `user` is None.
        trouble: Reason why the journal cannot be used; empty if there is no trouble.
        links: Nearness (`base/device.py`) of the other devices of its vendor, as (name, nearness) pairs.
    """

    name: str
    model: str
    key: str
    access: Access
    knobs: tuple[FoundKnob, ...] = ()
    missing: tuple[tuple[str, str], ...] = ()
    user: str | None = None
    left: Journal | None = None
    trouble: str = ""
    links: tuple[tuple[str, int], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "device": self.name,
            "model": self.model,
            "key": self.key,
            "may_be_set": self.access.allowed,
            "how": self.access.how,
            "remedy": self.access.remedy,
            "knobs": [knob.as_dict() for knob in self.knobs],
            "missing": dict(self.missing),
            "set_by": self.user,
            "left_by": self.left.owner.command if self.left is not None and self.user is None else None,
            "trouble": self.trouble,
            "links": dict(self.links),
        }


def survey(state: StateFolder) -> list[FoundDevice]:
    """Survey every visible device, vendor by vendor; the processors come last.

    Raises:
        UnfitEnvironment: A driver fails, or the environment names what ecoshare cannot share.
    """
    found = [registry.with_links(vendor.visible()) for vendor in registry.all_vendors()]
    return [replace(_look(device, state), links=device.links) for devices in found for device in devices]


def _look(device: DeviceInfo, state: StateFolder) -> FoundDevice:
    name, model, own = device.name, device.model, key(device)
    left, trouble = None, ""
    try:
        left = journal.read(state.journal(own))
    except UntrustedJournal as error:
        trouble = str(error)
    user = in_use(state.lock(own))
    try:
        knobs = registry.open_knobs(device.vendor, own)
    except EcoshareError as error:
        access = Access(False, str(error), error.hint)
        return FoundDevice(name, model, own, access, user=user, left=left, trouble=trouble)
    try:
        found = tuple(FoundKnob(knob.spec, _present(knob)) for knob in knobs.knobs)
        missing = tuple(knobs.missing.items())
        if knobs.knobs and not device.on_processors:
            try:
                beside = frequency_knob()
                found = (*found, FoundKnob(beside.spec, _present(beside)))
            except UnfitEnvironment as error:
                missing = (*missing, (CPU_FREQUENCY, str(error)))
        return FoundDevice(name, model, own, knobs.access, found, missing, user, left, trouble)
    finally:
        knobs.close()


def _present(knob: DeviceKnob) -> Reading | None:
    try:
        return knob.read()
    except KnobFault:
        return None
