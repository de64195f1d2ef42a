"""Reads how NVIDIA GPUs are linked: the NVLinks between them, else the nearest part of PCIe that they share.

A link that NVML does not tell is unknown, and never an error: a run can do without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from ecoshare.devices import nvml
from ecoshare.devices.nvml_calls import handle_of
from ecoshare.values import nearness as near

PciPlace = tuple[int, int, int]
"""Domain, bus and device of a PCI device."""


@dataclass(frozen=True, slots=True)
class _Links:
    """Active NVLinks of one GPU.

    Attributes:
        place: PCI place of the GPU; None if NVML does not tell it.
        to: Number of links to each PCI place.
        to_switches: Number of links to NVSwitches.
    """

    place: PciPlace | None
    to: Counter[PciPlace]
    to_switches: int


def nearness(uuids: Sequence[str]) -> dict[tuple[int, int], int]:
    """Nearness (`values/nearness.py`) of pairs of GPUs, by their places in `uuids`; without unknown pairs.

    All GPUs with links to NVSwitches reach each other through them, since the switches of a machine are one fabric.

    Raises:
        UnfitEnvironment: The driver does not answer.
    """
    with nvml.library() as library:
        if library is None:
            return {}
        handles = [_told(library, handle_of, library, uuid) for uuid in uuids]
        links = [_links(library, handle) for handle in handles]
        found = {}
        for one, other in combinations(range(len(uuids)), 2):
            if handles[one] is None or handles[other] is None:
                continue
            if count := _between(links[one], links[other]):
                found[one, other] = near.over_nvlinks(count)
            elif level := _level(library, handles[one], handles[other]):
                found[one, other] = level
        return found


def _links(library: Any, handle: Any) -> _Links:
    def place_of(read: Callable[..., Any], *of: Any) -> PciPlace | None:
        told = _told(library, read, handle, *of)
        return (told.domain, told.bus, told.device) if told is not None else None

    to: Counter[PciPlace] = Counter()
    to_switches = 0
    # A board may lack links in between, so that none of them can be the last one.
    for link in range(library.NVML_NVLINK_MAX_LINKS if handle is not None else 0):
        if not _told(library, library.nvmlDeviceGetNvLinkState, handle, link):
            continue
        kind = _told(library, library.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
        if kind == library.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            to_switches += 1
        elif (place := place_of(library.nvmlDeviceGetNvLinkRemotePciInfo, link)) is not None:
            to[place] += 1
    return _Links(place_of(library.nvmlDeviceGetPciInfo) if to else None, to, to_switches)


def _between(one: _Links, other: _Links) -> int:
    """Number of NVLinks between two GPUs: links that one of the two tells, or those to the switches."""
    direct = max(one.to[other.place] if other.place else 0, other.to[one.place] if one.place else 0)
    return direct or min(one.to_switches, other.to_switches)


def _level(library: Any, one: Any, other: Any) -> int:
    """Nearness by the nearest part of PCIe that two GPUs share."""
    levels = {
        library.NVML_TOPOLOGY_INTERNAL: near.ONE_BOARD,
        library.NVML_TOPOLOGY_SINGLE: near.ONE_SWITCH,
        library.NVML_TOPOLOGY_MULTIPLE: near.SEVERAL_SWITCHES,
        library.NVML_TOPOLOGY_HOSTBRIDGE: near.HOST_BRIDGE,
        library.NVML_TOPOLOGY_NODE: near.NUMA_NODE,
        library.NVML_TOPOLOGY_SYSTEM: near.ACROSS_NODES,
    }
    told = _told(library, library.nvmlDeviceGetTopologyCommonAncestor, one, other)
    return levels.get(told, near.UNKNOWN) if told is not None else near.UNKNOWN


def _told(library: Any, read: Callable[..., Any], *of: Any) -> Any:
    """Result of a function of NVML; None if the driver does not tell it, for whatever reason."""
    try:
        return read(*of)
    except library.NVMLError:
        return None
