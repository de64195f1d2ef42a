"""Settings of a device: values of its knobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ecoshare.values.packing import Packing

Setting = tuple[tuple[str, float | str], ...]
"""Sorted (knob, value) pairs of the knobs that differ from how the device was found."""

AS_FOUND: Setting = ()
"""The default setting: no knob differs."""

BATCH = "batch"
"""Knob of a service, not of its device: the largest batch that it may form."""


@dataclass(frozen=True, slots=True)
class KnownSetting:
    """Best setting of a packing, from an earlier search.

    Attributes:
        slower: Largest ratio over the jobs: iteration time at the setting / iteration time at the default setting.
    """

    packing: Packing
    setting: Setting
    slower: float = 1.0


def setting_of(values: Mapping[str, float | str], found: Mapping[str, float | str]) -> Setting:
    """Setting that these values of the knobs make on a device that was found with the values `found`."""
    return tuple(sorted((name, value) for name, value in values.items() if value != found.get(name)))
