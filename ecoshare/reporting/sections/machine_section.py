"""Section with the devices and the versions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ecoshare.common.plural import counted
from ecoshare.jobs.quantities import format_size
from ecoshare.record.run_data import RunData
from ecoshare.reporting.job_table import NOT_KNOWN, ReportInput, ReportSection, energy_words, fragment

PLACE = 100

_MACHINE = {
    "ecoshare": "ecoshare",
    "torch": "torch",
    "python": "Python",
    "platform": "system",
    "intra_op_threads": "threads of an operation",
    "mps": "MPS",
}
"""Entries of environment.json that are shown, with their labels. Other entries are private."""

_BODY = """\
<table>
{% for name, value in machine %}
<tr><th scope="row">{{ name }}</th><td{% if value == not_known %} class="quiet"{% endif %}>{{ value }}</td></tr>
{% endfor %}
</table>
"""


def sections(report: ReportInput) -> Iterator[ReportSection]:
    """Yield the devices and the versions."""
    title = "Device and versions" if len(report.data.devices) == 1 else "Devices and versions"
    yield ReportSection(title, fragment(_BODY, machine=_machine(report.data)), "machine")


def _machine(data: RunData) -> list[tuple[str, str]]:
    found = []
    for device in data.summary.devices:
        parts = [words for words in (device.model, device.driver) if words]
        if device.memory_bytes:
            parts.append(f"{format_size(device.memory_bytes)} for jobs")
        if device.cores:
            parts.append(counted(device.cores, "core"))
        if device.power_limit_w:
            parts.append(f"power limit {device.power_limit_w:.0f} W")
        if len(data.devices) > 1 and device.energy is not None:
            parts.append(energy_words(device.energy))
        if device.failed is not None:
            parts.append(device.failed.in_words)
        found.append((device.name, ", ".join(parts) or NOT_KNOWN))
    return found + [(word, _known(data.environment.get(name))) for name, word in _MACHINE.items()]


def _known(value: Any) -> str:
    return NOT_KNOWN if value is None else str(value)
