"""Shows the knobs of the devices of this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from ecoshare.common.plural import counted
from ecoshare.devices.knob_survey import FoundDevice, FoundKnob
from ecoshare.devices.restore import KnobOutcome, Restored
from ecoshare.reporting.link_words import group_lines
from ecoshare.reporting.prose import say
from ecoshare.reporting.text_table import TableColumn, print_columns

if TYPE_CHECKING:
    from ecoshare.profiling.calibration_store import KnownSpeed

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
