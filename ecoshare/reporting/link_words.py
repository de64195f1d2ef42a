"""Links of devices in words, with one line for each group of devices that are equally near to each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from ecoshare.common.plural import counted, listed
from ecoshare.values import device as near

_MOST_NAMES = 16

Links = Mapping[str, Mapping[str, int]]
"""Nearness (`values/device.py`) of other devices, for each device by its name."""

_WORDS = {
    near.ACROSS_NODES: "across NUMA nodes",
    near.NUMA_NODE: "in one NUMA node",
    near.HOST_BRIDGE: "through one host bridge",
    near.SEVERAL_SWITCHES: "through several PCIe switches",
    near.ONE_SWITCH: "through one PCIe switch",
    near.ONE_BOARD: "on one board",
    near.XGMI: "over XGMI",
}


def nearness_words(nearness: int) -> str:
    """Nearness in words, such as `4 NVLinks`; values of another version have no words of their own."""
    links = near.nvlinks(nearness)
    return counted(links, "NVLink") if links else _WORDS.get(nearness, f"nearness {nearness}")


def group_lines(links: Links) -> Iterator[str]:
    """Lines such as `cuda:0 and cuda:1: 4 NVLinks`, the nearest groups first; each known pair is in one line.

    In a group of three or more, each two devices are so near. The last line is `all other pairs: ...` if all of them
    are equally near.
    """
    names = list(links)
    pairs = {(one, other): links[one].get(other, near.UNKNOWN) for one, other in combinations(names, 2)}
    known = {pair: nearness for pair, nearness in pairs.items() if nearness != near.UNKNOWN}
    levels = sorted(set(known.values()), reverse=True)
    for level in levels:
        left = [pair for pair, nearness in known.items() if nearness == level]
        if level == levels[-1] and len(levels) > 1 and len(left) > 1 and len(known) == len(pairs):
            yield f"all other pairs: {nearness_words(level)}"
            return
        while left:
            group = _group(left[0], names, left)
            left = [pair for pair in left if not set(pair) <= set(group)]
            yield f"{_joined(group)}: {nearness_words(level)}"


def gang_words(devices: Sequence[str], links: Links) -> str:
    """Devices of a gang and their links, such as `cuda:0 and cuda:1 (4 NVLinks)`; only names if a link is unknown."""
    levels = [links.get(one, {}).get(other, near.UNKNOWN) for one, other in combinations(devices, 2)]
    least, most = min(levels, default=near.UNKNOWN), max(levels, default=near.UNKNOWN)
    if least == near.UNKNOWN:
        return _joined(devices)
    best = "" if least == most else f", at best {nearness_words(most)}"
    return f"{_joined(devices)} ({nearness_words(least)}{best})"


def _group(pair: tuple[str, str], names: Sequence[str], left: Sequence[tuple[str, str]]) -> list[str]:
    """Group that grows from a pair in the order of the names, as long as all its pairs are in `left`."""
    group = list(pair)
    for name in names:
        if name not in group and all((one, name) in left or (name, one) in left for one in group):
            group.append(name)
    return sorted(group, key=names.index)


def _joined(names: Sequence[str]) -> str:
    if len(names) > _MOST_NAMES:
        return listed(names, _MOST_NAMES)
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)
