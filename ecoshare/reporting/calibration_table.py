"""Shows how much the devices of one model differ."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from ecoshare.common.plural import counted
from ecoshare.jobs.quantities import format_duration
from ecoshare.profiling.calibration_store import DeviceCalibrationResult
from ecoshare.profiling.device_speeds import ANY, COMPUTE, MEMORY, RelativeSpeed
from ecoshare.reporting.prose import say
from ecoshare.reporting.text_table import TableColumn, print_columns

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
