"""Rows of the devices in `ecoshare top`: figures of each device, and the jobs of its lanes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from ecoshare.jobs.quantities import format_size, number
from ecoshare.queue.queue_documents import DeviceStatus, LaneStatus
from ecoshare.record.setting_history import values_words
from ecoshare.reporting.figures import UNKNOWN, printable, small_energy
from ecoshare.reporting.text_table import TableColumn, laid_out
from ecoshare.top.job_columns import HOLDS

_MOST_ROWS = 8
"""Most rows with one for each lane; otherwise there is one for each device."""


def device_rows(devices: Sequence[DeviceStatus], width: int) -> list[Text]:
    """Lines of a table of devices, at most this many cells wide."""
    rows = [(device, [lane]) for device in devices for lane in device.lanes or [LaneStatus(number=0, jobs=[])]]
    if len(rows) > _MOST_ROWS:
        rows = [(device, device.lanes) for device in devices]
    firsts = [place == 0 or rows[place - 1][0] is not device for place, (device, _) in enumerate(rows)]
    return laid_out(list(_columns(rows, firsts)), width)


Row = tuple[DeviceStatus, list[LaneStatus]]


def _columns(rows: Sequence[Row], firsts: Sequence[bool]) -> Iterator[TableColumn]:
    """Columns; only the first row of a device has its figures."""
    devices = [device for device, _ in rows]

    def texts(cells: Sequence[str]) -> list[Text]:
        return [Text(cell if first else "") for cell, first in zip(cells, firsts, strict=True)]

    names = [
        Text(printable(each.name) if first else "", style="bold") for each, first in zip(devices, firsts, strict=True)
    ]
    yield TableColumn(Text("device"), names)
    figures = (
        ("power", 0, [UNKNOWN if each.power_w is None else watts(each.power_w) for each in devices]),
        ("MHz", 1, [_clocks(each) for each in devices]),
        ("°C", 4, [_or_unknown(each.temperature_c, "{:.0f}") for each in devices]),
        ("busy", 3, [_or_unknown(None if each.busy is None else 100 * each.busy, "{:.0f} %") for each in devices]),
        ("memory", 0, [_memory(each) for each in devices]),
        ("joules", 2, [UNKNOWN if each.energy_j is None else small_energy(each.energy_j) for each in devices]),
    )
    for name, lesser, cells in figures:
        if any(cell != UNKNOWN for cell in cells):  # processors have neither clocks nor temperature
            yield TableColumn(Text(name), texts(cells), right=True, lesser=lesser)
    yield TableColumn(Text("turn"), [_turn(device, lanes) for device, lanes in rows], is_name=True)
    if any(each.setting for each in devices):
        yield TableColumn(Text("set to"), texts([values_words(each.setting) for each in devices]), lesser=5)
    yield TableColumn(Text("model"), texts([printable(each.described) for each in devices]), lesser=6)


def _turn(device: DeviceStatus, lanes: Sequence[LaneStatus]) -> Text:
    """The job with the turn of each lane, and those beside it."""
    if device.failed:
        return Text(f"failed: {printable(device.failed)}", style="red")
    words = Text()
    for lane in lanes:
        words.append(" | " if words else "")
        others = [printable(job) for job in lane.jobs if job != lane.holder]
        if lane.holder:
            words.append(f"{HOLDS} {printable(lane.holder)}", style="green")
            words.append(f" + {', '.join(others)}" if others else "")
        else:
            words.append(", ".join(others) or "idle", style="" if others else "bright_black")
    return words


def _clocks(device: DeviceStatus) -> str:
    if device.gpu_clock_mhz is None:
        return UNKNOWN
    return f"{device.gpu_clock_mhz:.0f}" + (
        "" if device.memory_clock_mhz is None else f"/{device.memory_clock_mhz:.0f}"
    )


def _memory(device: DeviceStatus) -> str:
    whole = format_size(device.memory_total_bytes)
    return f"{UNKNOWN if device.memory_bytes is None else _in_unit_of(device.memory_bytes, whole)} / {whole}"


def _in_unit_of(size_bytes: int, whole: str) -> str:
    """A size without its unit, if that is the unit of the whole."""
    number, _, unit = format_size(size_bytes).partition(" ")
    return number if unit == whole.partition(" ")[2] else f"{number} {unit}"


def watts(power_w: float) -> str:
    """Power (W) in words."""
    return f"{number(power_w)} W"


def _or_unknown(value: float | None, form: str) -> str:
    return UNKNOWN if value is None else form.format(value)
