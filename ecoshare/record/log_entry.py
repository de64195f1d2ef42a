"""Entry of an event log."""

from __future__ import annotations

from ecoshare.core.commands import Command
from ecoshare.core.events import Event
from ecoshare.record.packing_record import PackingChanged

LogEntry = Event | Command | PackingChanged
"""Event of the core, command of the core, or record beside them, which the core does not read."""
