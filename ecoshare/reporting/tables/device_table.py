"""Shows the knobs of the devices of this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from ecoshare.base import device as near
from ecoshare.base.plural import counted, listed
from ecoshare.devices.control.restore import KnobOutcome, Restored
from ecoshare.devices.knob_survey import FoundDevice, FoundKnob
from ecoshare.jobs.quantities import format_duration
from ecoshare.knowledge.calibration_store import DeviceCalibrationResult
from ecoshare.knowledge.device_speeds import ANY, COMPUTE, MEMORY, RelativeSpeed
from ecoshare.reporting.figures import say
from ecoshare.reporting.tables.text_table import TableColumn, print_columns

if TYPE_CHECKING:
    from ecoshare.devices.device_slices import ListedMember
    from ecoshare.knowledge.calibration_store import KnownSpeed


_MOST_NAMES = 16

Links = Mapping[str, Mapping[str, int]]
"""Nearness (`base/device.py`) of other devices, for each device by its name."""

_WORDS = {
    near.ACROSS_NODES: "across NUMA nodes",
    near.NUMA_NODE: "in one NUMA node",
    near.HOST_BRIDGE: "through one host bridge",
    near.SEVERAL_SWITCHES: "through several PCIe switches",
    near.ONE_SWITCH: "through one PCIe switch",
    near.ONE_BOARD: "on one board",
    near.XGMI: "over XGMI",
}


def print_members(members: Sequence[ListedMember], console: Console) -> None:
    """Print the runs that take turns on the devices of this machine, with the time that each has had them."""
    if members:
        say(console, "runs that take turns:", "bold")
    for each in members:
        say(console, f"  {each}")


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


_COLOURS = {KnobOutcome.FAILED: "red", KnobOutcome.FOREIGN: "yellow"}


def print_devices(found: list[FoundDevice], speeds: Mapping[str, Sequence[KnownSpeed]], console: Console) -> None:
    """Print a block for each device: permission to set it, its knobs, missing knobs, and settings that a run left.

    The links of the devices come last, if any are known.

    Args:
        found: The devices.
        speeds: Known speeds by the key of a device.
    """
    for place, device in enumerate(found):
        if place:
            console.print()
        say(console, Text.assemble((device.name, "bold"), f"  {device.model}  {device.key}"))
        if device.knobs:
            allowed = "may be set" if device.access.allowed else "may not be set by this user"
            say(console, f"  {allowed}: {device.access.how}")
        if device.access.remedy and device.knobs:
            say(console, f"  → {device.access.remedy}", "italic")
        if device.user is not None:
            say(console, f"  being set by {device.user}")
        elif device.left is not None:
            owner = device.left.owner
            words = f"  a run that died has left settings here ({owner.command}, {device.left.made_utc}): "
            say(console, words + "`ecoshare restore` puts them back", "yellow")
        if device.trouble:
            say(console, f"  {device.trouble}", "yellow")
        for each in speeds.get(device.key, ()):
            error = f"{100.0 * each.standard_error:.1f} %"
            words = f"  {each.name}: speed {each.speed:.3f} of a typical {each.model} "
            say(console, words + f"(error {error}, from {counted(each.classes, 'class', 'classes')})")
        _print_knobs(device, console)
    if lines := list(group_lines({device.name: dict(device.links) for device in found if device.links})):
        console.print()
        say(console, "links", "bold")
        for line in lines:
            say(console, f"  {line}")


def _print_knobs(device: FoundDevice, console: Console) -> None:
    rows = []
    for knob in device.knobs:
        spec = knob.spec
        extent = ", ".join(spec.special) if spec.is_categorical else f"{spec.lowest:g} to {spec.highest:g} {spec.unit}"
        rows.append([Text(f"  {spec.name}"), Text(extent), Text(str(spec.choices)), Text(_present(knob))])
    rows += [[Text(each, style="dim") for each in (f"  {name}", "-", "", why)] for name, why in device.missing]
    if not rows:
        return
    headings = ("  knob", "range", "values", "now")
    print_columns(
        [
            TableColumn(Text(heading), cells, is_prose=heading == "now")
            for heading, cells in zip(headings, map(list, zip(*rows, strict=True)), strict=True)
        ],
        console,
    )


def _present(knob: FoundKnob) -> str:
    if knob.present is not None:
        return knob.spec.in_words(knob.present)
    return "a lock cannot be read" if knob.spec.special and knob.spec.values else "does not answer"


def print_restored(done: list[Restored], console: Console) -> None:
    """Print a line for each knob that was restored, with the remedy, if there is one, below it."""
    for each in done:
        say(console, each.words, _COLOURS.get(each.outcome, ""))
        if each.remedy:
            say(console, f"→ {each.remedy}", "italic")


_LOADS = (COMPUTE, "computes"), (MEMORY, "waits for memory")


def print_calibration(result: DeviceCalibrationResult, console: Console) -> None:
    """Print the time of each load and the speed of each device, and a line with the whole difference."""
    say(console, f"{counted(len(result.devices), 'device')} of {result.model}")
    rows = [
        [
            each.device.name,
            *(
                cell
                for load, _ in _LOADS
                for cell in (format_duration(each.times[load].seconds), _speed(each.speeds[load]))
            ),
            _speed(each.speeds[ANY]),
            f"{100.0 * each.speeds[ANY].standard_error:.1f} %",
        ]
        for each in result.devices
    ]
    _print(["device", *(word for _, load in _LOADS for word in (load, "speed")), "all classes", "error"], rows, console)
    fastest = max(result.devices, key=lambda each: each.speeds[ANY].speed)
    slowest = min(result.devices, key=lambda each: each.speeds[ANY].speed)
    apart = 1.0 - slowest.speeds[ANY].speed / fastest.speeds[ANY].speed
    difference = f"{slowest.device.name} is {100.0 * apart:.1f} % slower than {fastest.device.name}"
    words = difference if apart > 0.0 else "the devices do not differ by more than two errors"
    say(console, f"{words}; measured in {format_duration(result.took_s)}")


def _speed(each: RelativeSpeed) -> str:
    return f"{each.speed:.3f}"


def _print(headings: Sequence[str], rows: Sequence[Sequence[str]], console: Console) -> None:
    print_columns(
        [
            TableColumn(Text(heading), [Text(cell) for cell in cells], right=heading != "device")
            for heading, cells in zip(headings, map(list, zip(*rows, strict=True)), strict=True)
        ],
        console,
    )
