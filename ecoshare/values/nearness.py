"""Nearness of two devices: how their data get from one to the other, as a small integer. Larger is nearer.

| nearness | data go |
|---|---|
| 0 | a way that the driver does not tell |
| 1 | from one NUMA node to another |
| 2 | inside one NUMA node |
| 3 | through one host bridge of the processors |
| 4 | through several PCIe switches |
| 5 | through one PCIe switch |
| 6 | inside one board |
| 7 | over AMD's XGMI links |
| 10 + n | over n NVLinks; with NVSwitch n is the number of links from a device to the switches |

Levels 1 to 6 are those of `nvmlDeviceGetTopologyCommonAncestor`, in the opposite order.
"""

from __future__ import annotations

UNKNOWN, ACROSS_NODES, NUMA_NODE, HOST_BRIDGE, SEVERAL_SWITCHES, ONE_SWITCH, ONE_BOARD, XGMI = range(8)

_NVLINKS = 10
"""Nearness of no NVLink: their number is added to it."""


def over_nvlinks(links: int) -> int:
    """Nearness of two devices with this number of NVLinks between them, at least 1."""
    return _NVLINKS + links


def nvlinks(nearness: int) -> int:
    """Number of NVLinks that a nearness tells; 0 if the data go another way."""
    return max(0, nearness - _NVLINKS)
