"""A run's summary in other formats."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from ecoshare.errors import UsageError

COLUMNS = (
    "name",
    "class",
    "state",
    "exit_code",
    "attempts",
    "iterations",
    "eval_iterations",
    "arrival_s",
    "start_s",
    "finish_s",
    "jct_s",
    "queue_s",
    "slowdown",
    "longest_wait_s",
    "peak_memory_bytes",
    "energy_j",
    "energy_source",
    "energy_per_iteration_j",
    "error",
)


def export(summary: dict[str, Any], form: str) -> str:
    """The summary as text: `json`, the whole of it; `csv`, a row a job, empty where a value is not known.

    Raises:
        UsageError: Another format.
    """
    if form == "json":
        return json.dumps(summary, indent=2) + "\n"
    if form == "csv":
        return _csv(summary)
    raise UsageError(f"--format {form}: expected json or csv")


def _csv(summary: dict[str, Any]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for job in summary["jobs"]:
        energy = job["energy"] or {}
        row = {**job, "energy_j": energy.get("value_j"), "energy_source": energy.get("source")}
        writer.writerow({name: _cell(row[name]) for name in COLUMNS})
    return text.getvalue()


def _cell(value: Any) -> Any:
    """Text that a spreadsheet would take for a formula is quoted; what a job printed must not run there."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return value
