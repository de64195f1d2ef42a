"""Devices and machines in the text of `ecoshare status`."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from ecoshare.reporting.tables.queue_table import print_queue


def device(name: str, failed: str = "") -> dict[str, Any]:
    return {"name": name, "described": "NVIDIA H100", "failed": failed}


@pytest.mark.parametrize(
    ("devices", "shown"),
    [
        ([device("cuda:0")], ["on NVIDIA H100"]),
        (
            [device("cuda:0"), device("cuda:1", "it fell off the bus")],
            ["on 2 devices: NVIDIA H100", "  cuda:1      failed: it fell off the bus"],
        ),
        (
            [
                device("first/cuda:0"),
                device("first/cuda:1"),
                device("second/cuda:0", "the node second is lost"),
                device("second/cuda:1", "the node second is lost"),
                device("third/cuda:0"),
                device("third/cuda:1", "it fell off the bus"),
            ],
            [
                "on 6 devices: NVIDIA H100",
                "  first       2 devices",
                "  second      failed: the node second is lost",
                "  third       2 devices",
                "  third/cuda:1  failed: it fell off the bus",
            ],
        ),
    ],
)
def test_machines_and_failures_are_shown(
    devices: list[dict[str, Any]], shown: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    queue = {"name": "lab", "ending": "", "opened_unix_s": 0.0, "policy": "fair", "warm": True}
    warnings = ["the disk is full"]
    print_queue({**queue, "devices": devices, "jobs": [], "warnings": warnings}, Console(highlight=False))
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.endswith(f"policy fair, {shown[0]}")
    assert lines == [*shown[1:], "  the disk is full", "no job was submitted yet"]
