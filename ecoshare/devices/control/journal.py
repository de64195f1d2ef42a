"""Journal of a device's values from before ecoshare; it is on the disk before anything is set.

::

    note(knob, value)  written and synced  ──►  set  ──►  read back  ──►  note of what is there
         │                                       │
         └── killed here: nothing was set        └── killed here: either value may be in force, and both are known

The next process (the guard, the next run, `ecoshare restore`) reads it, and restores knobs that still have a value of
ecoshare.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import stat
import sys
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ecoshare.base import documents
from ecoshare.base.disk import atomic_write
from ecoshare.base.printable import utc_text
from ecoshare.devices.knob import Reading

SCHEMA_VERSION = 2
"""Version 1 named the kind of the device, `gpu` or `cpu`, in place of the vendor; a dead run may have left such."""

_VENDORS_OF_KINDS = {"gpu": "nvidia", "cpu": "cpu"}


class UntrustedJournal(Exception):
    """The journal is damaged, or another user could have written it. The message says which."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Process that sets a device."""

    pid: int
    user: str
    command: str

    @classmethod
    def this_process(cls) -> Owner:
        """Owner record of this process."""
        try:
            user = getpass.getuser()
        except (KeyError, OSError):
            user = str(os.geteuid())
        return cls(os.getpid(), user, " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])[:200])


@dataclass(frozen=True, slots=True)
class Entry:
    """Entry of one knob.

    Attributes:
        before: Reading from before ecoshare; None if no driver reports it (a lock, which a reset restores).
        ours: Readings that may be in force because ecoshare set them: the present one, and the next one. Empty while a
            power profile is set that may move this knob to any value.
    """

    before: Reading | None
    ours: tuple[Reading, ...] = ()


@dataclass(frozen=True, slots=True)
class Journal:
    """Changes on one device.

    Attributes:
        device: Key of the device, such as a GPU's UUID.
        vendor: Name of the vendor, as in the registry.
        model: Name of the device for the user.
        owner: Process that sets the device.
        boot: Identifier of the machine's last start: a lock does not outlive a restart.
        made_utc: Time at which the journal was begun (ISO 8601, UTC).
        knobs: Entry of each knob that may have been set, by name.
    """

    device: str
    vendor: str
    model: str
    owner: Owner
    boot: str
    made_utc: str
    knobs: dict[str, Entry] = field(default_factory=dict)

    @classmethod
    def new(cls, device: str, vendor: str, model: str) -> Journal:
        """Empty journal of this process, begun now."""
        return cls(device, vendor, model, Owner.this_process(), boot(), utc_text())

    def noting(self, knob: str, before: Reading | None, ours: tuple[Reading, ...]) -> Journal:
        """Copy with the readings of a knob that may be in force from now on; only its first `before` counts."""
        before = self.knobs[knob].before if knob in self.knobs else before
        return replace(self, knobs={**self.knobs, knob: Entry(before, ours)})

    def without(self, knob: str) -> Journal:
        """Copy without a knob that has nothing to restore."""
        return replace(self, knobs={name: entry for name, entry in self.knobs.items() if name != knob})

    def write(self, path: Path) -> None:
        """Write the journal to the disk. After the return, a power failure does not lose it.

        Raises:
            OSError: The journal cannot be written; then nothing may be set.
        """
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        text = json.dumps({"schema_version": SCHEMA_VERSION, **asdict(self)}, indent=1)
        atomic_write(path, text, sync=True, mode=0o644)
        _sync(path.parent)


def read(path: Path) -> Journal | None:
    """Journal at `path`; None if there is none.

    Raises:
        UntrustedJournal: The journal is damaged, of a newer version, or writable by another user. Such a user could
            make ecoshare set any value.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UntrustedJournal(f"{path}: {error.strerror}") from error
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode):
        os.close(descriptor)
        raise UntrustedJournal(f"{path} is no regular file")
    with os.fdopen(descriptor) as file:
        if about.st_uid != os.geteuid():
            raise UntrustedJournal(f"{path} belongs to another user, and could make us set anything")
        if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise UntrustedJournal(f"{path} can be written by other users")
        try:
            return _parse(documents.parse(file.read()))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise UntrustedJournal(f"{path} is damaged or of a newer version: {error}") from error


def remove(path: Path) -> None:
    """Remove a journal that has nothing left to restore. If it cannot be removed, the next process only checks it."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
        _sync(path.parent)


def boot() -> str:
    """Identifier of the machine's last start; `unknown` if it cannot be read."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def _parse(data: dict[str, Any]) -> Journal:
    if data["schema_version"] == 1:
        data = {**data, "vendor": _VENDORS_OF_KINDS[data["kind"]]}
    elif data["schema_version"] != SCHEMA_VERSION:
        raise ValueError(f"schema_version {data['schema_version']!r}")
    knobs = {
        str(name): Entry(_reading(each["before"]), tuple(r for r in map(_reading, each["ours"]) if r is not None))
        for name, each in data["knobs"].items()
    }
    owner = Owner(int(data["owner"]["pid"]), str(data["owner"]["user"]), str(data["owner"]["command"]))
    words = {name: str(data[name]) for name in ("device", "vendor", "model", "boot", "made_utc")}
    return Journal(**words, owner=owner, knobs=knobs)


def _reading(values: Any) -> Reading | None:
    return None if values is None else tuple(float(value) for value in values)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
