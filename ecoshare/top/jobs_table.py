"""Table of the jobs, in which a row is selected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text
from textual.coordinate import Coordinate
from textual.widgets import DataTable

from ecoshare.base.plural import counted, listed
from ecoshare.jobs.quantities import format_duration, format_size, number
from ecoshare.queue.queue_documents import JobStatus
from ecoshare.record.run_view import DeviceStatus, LaneStatus
from ecoshare.record.setting_history import values_words
from ecoshare.reporting.figures import UNKNOWN, printable, small_energy, turn_wait, with_steps
from ecoshare.reporting.progress import COLOURS
from ecoshare.reporting.tables.text_table import TableColumn, fitted, laid_out, middle
from ecoshare.top.top_view import TopView, holders

HOLDS = "▶"
"""Mark of the job that has the turn."""


def job_columns(view: TopView) -> list[TableColumn]:
    """Columns with a cell for each job of the view."""
    return list(_columns(view))


def _columns(view: TopView) -> Iterator[TableColumn]:
    jobs, holding = view.jobs, holders(view.devices)
    names = [Text(printable(job.name), style=_dim(job)) for job in jobs]
    states = [_state(job, job.name in holding) for job in jobs]
    yield TableColumn(Text("job"), names, is_name=True)
    yield TableColumn(Text("  state"), states, is_name=True)
    place = [printable(_place(job)) for job in jobs]
    for name, lesser, cells in (
        ("device" if len(view.devices) > 1 else "lane", 4, place),
        ("iterations", 0, [_iterations(job) for job in jobs]),
        ("it/s", 0, [_rate(job) for job in jobs]),
        ("joules", 0, ["" if job.energy_j is None else small_energy(job.energy_j) for job in jobs]),
        ("ends in", 0, [_left(job, view.now_s) for job in jobs]),
        ("ran", 2, [_ran(job, view.now_s) for job in jobs]),
        ("waited", 3, [_waited(job, view.now_s) for job in jobs]),
        ("priority", 5, [str(job.priority) for job in jobs]),
        ("slowdown", 6, ["" if job.slowdown is None else f"{job.slowdown:.2f}" for job in jobs]),
        ("attempt", 7, ["" if not job.attempts else str(job.attempts) for job in jobs]),
    ):
        if any(cells):
            styled = [Text(cell, style=_dim(job)) for cell, job in zip(cells, jobs, strict=True)]
            yield TableColumn(Text(name), styled, right=True, lesser=lesser)
    if any(job.service is not None for job in jobs):
        yield from _service_columns(jobs)


def _service_columns(jobs: Sequence[JobStatus]) -> Iterator[TableColumn]:
    services = [job.service for job in jobs]
    late = [Text("" if each is None else str(each.late)) for each in services]
    yield TableColumn(Text("late"), late, right=True, lesser=2)
    yield TableColumn(Text("p99 now"), [_p99(job) for job in jobs], right=True, lesser=1)


def _p99(job: JobStatus) -> Text:
    """The percentile of the last seconds and the target; red if it is above."""
    service = job.service
    if service is None or job.state != "running":
        return Text()
    now = UNKNOWN if service.p99_s is None else format_duration(service.p99_s)
    is_late = service.p99_s is not None and service.p99_s > service.target_s
    return Text(f"{now} of {format_duration(service.target_s)}", style="red" if is_late else "")


def _state(job: JobStatus, holds: bool) -> Text:
    words = job.state
    if job.state == "arriving" and job.waits_for:
        words = f"after {listed([printable(name) for name in job.waits_for])}"
    elif job.turn_wait_s:
        words = turn_wait(job.turn_wait_s, [printable(name) for name in job.behind])
    elif job.state == "failed" and job.exit_code:
        words = f"failed ({job.exit_code})"
    return Text(f"{HOLDS if holds else ' '} {words}", style=COLOURS.get(job.state, ""))


def _place(job: JobStatus) -> str:
    return ",".join(job.devices) or ",".join(map(str, job.lanes))


def _iterations(job: JobStatus) -> str:
    if job.service is not None:
        return counted(job.service.arrived, "request")
    if job.trials is not None:
        return f"{sum(job.ended_trials.values())}/{counted(job.trials, 'trial')}"
    if not job.iterations and not job.of_iterations:
        return ""
    count = f"{job.iterations}/{job.of_iterations}" if job.of_iterations else str(job.iterations)
    return with_steps(count, job.by_steps)


def _rate(job: JobStatus) -> str:
    return "" if job.iterations_per_s is None else f"{job.iterations_per_s:.1f}"


def _left(job: JobStatus, now_s: float) -> str:
    if job.expected_end_unix_s is None:
        return ""
    return coarse(job.expected_end_unix_s - now_s)


def _ran(job: JobStatus, now_s: float) -> str:
    if job.started_unix_s is None:
        return ""
    return coarse((now_s if job.ended_unix_s is None else job.ended_unix_s) - job.started_unix_s)


def _waited(job: JobStatus, now_s: float) -> str:
    ends = (job.started_unix_s, job.ended_unix_s, now_s)
    return coarse(next(each for each in ends if each is not None) - job.submitted_unix_s)


def _dim(job: JobStatus) -> str:
    """Style of a job that has ended, so that those that go on stand out."""
    return "bright_black" if job.ended_unix_s is not None else ""


def coarse(duration_s: float) -> str:
    """Duration for a figure that is drawn anew each second: without digits that change all the time."""
    shown_s = max(0.0, duration_s)
    return format_duration(round(shown_s)) if shown_s >= 10.0 else f"{round(shown_s, 1):g} s"


_GAP = 2
_SCROLLBAR = 1


class JobsTable(DataTable[Text]):
    """Jobs of a view, one a row. The selected job stays selected when rows move."""

    def __init__(self) -> None:
        """Table without jobs."""
        super().__init__(cursor_type="row", show_header=True, cell_padding=_GAP // 2)
        self._names: list[str] = []
        self._layout: list[tuple[str, int]] = []
        self._cells: list[list[Text]] = []

    @property
    def selected(self) -> str:
        """Name of the selected job; empty if there is none."""
        return self._names[self.cursor_row] if 0 <= self.cursor_row < len(self._names) else ""

    def show(self, view: TopView, width: int) -> None:
        """Show the jobs of a view in a table of this width, in terminal cells."""
        columns = job_columns(view)
        room = width - _GAP - _SCROLLBAR
        placed = fitted(columns, room, _GAP)
        layout = [(str(column.heading), max(1, wide)) for column, wide in placed]
        cells = [
            [_aligned(column.cells[row], wide, column.right) for column, wide in placed]
            for row in range(len(view.jobs))
        ]
        names = [job.name for job in view.jobs]
        if (layout, names) == (self._layout, self._names):
            self._update(cells)
        else:
            self._rebuild(layout, names, cells, [column.right for column, _ in placed])
        self._layout, self._names, self._cells = layout, names, cells

    def _update(self, cells: list[list[Text]]) -> None:
        for row, (before, now) in enumerate(zip(self._cells, cells, strict=True)):
            for column, (old, new) in enumerate(zip(before, now, strict=True)):
                if old != new or old.style != new.style:
                    self.update_cell_at(Coordinate(row, column), new)

    def _rebuild(
        self, layout: list[tuple[str, int]], names: list[str], cells: list[list[Text]], right: list[bool]
    ) -> None:
        selected, row_before, scrolled = self.selected, self.cursor_row, self.scroll_y
        with self.app.batch_update():
            self.clear(columns=True)
            for (heading, wide), is_right in zip(layout, right, strict=True):
                self.add_column(_aligned(Text(heading), wide, is_right), width=wide)
            for row in cells:
                self.add_row(*row)
            if names:
                place = names.index(selected) if selected in names else min(row_before, len(names) - 1)
                self.move_cursor(row=max(0, place), scroll=False)
                self.scroll_to(y=scrolled, animate=False, force=True)

    def on_resize(self, _event: Any) -> None:
        """Keep the selected job in sight."""
        self.call_after_refresh(self._scroll_cursor_into_view, animate=False)


def _aligned(cell: Text, wide: int, is_right: bool) -> Text:
    """The cell in this width: cut in its middle, or aligned on the right."""
    cut = middle(cell, wide)
    return Text(" " * max(0, wide - cut.cell_len)).append_text(cut) if is_right else cut


_MOST_ROWS = 8
"""Most rows with one for each lane; otherwise there is one for each device."""


def device_rows(devices: Sequence[DeviceStatus], width: int) -> list[Text]:
    """Lines of a table of devices, at most this many cells wide."""
    rows = [(device, [lane]) for device in devices for lane in device.lanes or [LaneStatus(number=0, jobs=[])]]
    if len(rows) > _MOST_ROWS:
        rows = [(device, device.lanes) for device in devices]
    firsts = [place == 0 or rows[place - 1][0] is not device for place, (device, _) in enumerate(rows)]
    return laid_out(list(_device_columns(rows, firsts)), width)


Row = tuple[DeviceStatus, list[LaneStatus]]


def _device_columns(rows: Sequence[Row], firsts: Sequence[bool]) -> Iterator[TableColumn]:
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
