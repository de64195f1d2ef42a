"""Settings of a device: values of its knobs."""

from __future__ import annotations

from dataclasses import dataclass

from ecoshare.values.packing import Packing

Setting = tuple[tuple[str, float | str], ...]
"""Sorted (knob, value) pairs. The empty setting is the default: the device as it was found."""


@dataclass(frozen=True, slots=True)
class KnownSetting:
    """Best setting of a packing, from an earlier search.

    Attributes:
        slower: Largest ratio over the jobs: iteration time at the setting / iteration time at the default setting.
    """

    packing: Packing
    setting: Setting
    slower: float = 1.0
