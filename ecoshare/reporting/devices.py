"""Shows what can be set on the devices of this machine."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ecoshare.hardware.restore import Outcome, Restored, in_words
from ecoshare.hardware.survey import FoundDevice, FoundKnob

_COLOURS = {Outcome.FAILED: "red", Outcome.FOREIGN: "yellow"}


def print_devices(found: list[FoundDevice], console: Console) -> None:
    """A block a device: who may set it, its knobs, what it lacks, what was left there."""
    for place, device in enumerate(found):
        if place:
            console.print()
        console.print(Text.assemble((device.name, "bold"), f"  {device.model}  {device.key}"), soft_wrap=True)
        if device.knobs:
            allowed = "may be set" if device.access.allowed else "may not be set by this user"
            console.print(Text(f"  {allowed}: {device.access.how}"), soft_wrap=True)
        if device.access.remedy and device.knobs:
            console.print(Text(f"  → {device.access.remedy}", style="italic"), soft_wrap=True)
        if device.user is not None:
            console.print(Text(f"  being set by {device.user}"), soft_wrap=True)
        elif device.left is not None:
            owner = device.left.owner
            words = f"  a run that died has left settings here ({owner.command}, {device.left.made_utc}): "
            console.print(Text(words + "`ecoshare restore` puts them back", style="yellow"), soft_wrap=True)
        if device.trouble:
            console.print(Text(f"  {device.trouble}", style="yellow"), soft_wrap=True)
        _print_knobs(device, console)


def _print_knobs(device: FoundDevice, console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="", padding=(0, 2, 0, 0))
    for heading in ("  knob", "range", "values", "now"):
        table.add_column(heading)
    for knob in device.knobs:
        spec = knob.spec
        extent = f"{spec.values[0]:g} to {spec.highest:g} {spec.unit}"
        table.add_row(f"  {spec.name}", extent, str(spec.choices), _present(knob))
    for name, why in device.missing:
        table.add_row(Text(f"  {name}", style="dim"), Text("-", style="dim"), "", Text(why, style="dim"))
    if table.row_count:
        console.print(table)


def _present(knob: FoundKnob) -> str:
    if knob.present is not None:
        return in_words(knob.present, knob.spec.unit)
    return "a lock cannot be read" if knob.spec.special else "does not answer"


def print_restored(done: list[Restored], console: Console) -> None:
    """A line a knob, remedies below."""
    for each in done:
        console.print(Text(each.words, style=_COLOURS.get(each.outcome, "")), soft_wrap=True)
        if each.remedy:
            console.print(Text(f"→ {each.remedy}", style="italic"), soft_wrap=True)
