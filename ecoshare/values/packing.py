"""Packings: which job classes run on a device at once, and in which lanes."""

from __future__ import annotations

Packing = tuple[tuple[str, ...], ...]
"""Job classes in each lane of a device, without its empty lanes. Both the classes and the lanes are sorted."""
