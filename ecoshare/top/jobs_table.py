"""Table of the jobs, in which a row is selected."""

from __future__ import annotations

from typing import Any

from rich.text import Text
from textual.coordinate import Coordinate
from textual.widgets import DataTable

from ecoshare.reporting.text_table import fitted, middle
from ecoshare.top.job_columns import job_columns
from ecoshare.top.top_view import TopView

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
