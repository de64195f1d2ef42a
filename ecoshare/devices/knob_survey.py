"""What can be set on the devices of this machine, and what has been: read, never set."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ecoshare.devices import discovery, journal
from ecoshare.devices.discovery import DeviceInfo
from ecoshare.devices.journal import Journal, UntrustedJournal
from ecoshare.devices.knob import Access, KnobFault, Knobs, KnobSpec, Reading
from ecoshare.devices.restore import open_knobs
from ecoshare.devices.state_folder import StateFolder, in_use
from ecoshare.errors import EcoshareError

UNREADABLE = "cannot be read"


@dataclass(frozen=True, slots=True)
class FoundKnob:
    """A knob with what it is set to.

    Attributes:
        present: None for a locked clock, which no driver tells.
    """

    spec: KnobSpec
    present: Reading | None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "name": self.spec.name,
            "unit": self.spec.unit,
            "lowest": self.spec.values[0],
            "highest": self.spec.highest,
            "values": self.spec.choices,
            "special": list(self.spec.special),
            "present": list(self.present) if self.present is not None else None,
        }


@dataclass(frozen=True, slots=True)
class FoundDevice:
    """One device.

    Attributes:
        key: What journals and locks are kept for.
        missing: Knobs that it lacks, and why.
        user: Who sets it now; None for nobody.
        left: What a run that died has left there.
        trouble: Why a journal cannot be used, or the device not be asked; empty where all is well.
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
        }


def key(device: DeviceInfo) -> str:
    """What journals and locks of a device are kept for; homes may be shared by machines, so processors have theirs."""
    if device.uuid is not None:
        return device.uuid
    try:
        machine = Path("/etc/machine-id").read_text().strip()
    except OSError:
        machine = ""
    return f"processors-{machine or socket.gethostname()}"


def survey(state: StateFolder) -> list[FoundDevice]:
    """Every visible GPU, and the processors.

    Raises:
        UnfitEnvironment: There is a driver, and it fails.
    """
    gpus = [(f"cuda:{place}", gpu.model, gpu.uuid) for place, gpu in enumerate(discovery.visible_gpus())]
    found = [_look("gpu", name, model, uuid, state) for name, model, uuid in gpus]
    processors = discovery.processors()
    return [*found, _look("cpu", "cpu", processors.model, key(processors), state)]


def _look(kind: str, name: str, model: str, device: str, state: StateFolder) -> FoundDevice:
    left, trouble = None, ""
    try:
        left = journal.read(state.journal(device))
    except UntrustedJournal as error:
        trouble = str(error)
    user = in_use(state.lock(device))
    try:
        knobs = open_knobs(kind, device)
    except EcoshareError as error:
        return FoundDevice(name, model, device, Access(False, str(error), error.hint), user=user, left=left)
    try:
        found = tuple(FoundKnob(knob.spec, _present(knobs, place)) for place, knob in enumerate(knobs.knobs))
        missing = tuple(knobs.missing.items())
        return FoundDevice(name, model, device, knobs.access, found, missing, user, left, trouble)
    finally:
        knobs.close()


def _present(knobs: Knobs, place: int) -> Reading | None:
    try:
        return knobs.knobs[place].read()
    except KnobFault:
        return None
