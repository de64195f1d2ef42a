"""`ecoshare doctor`."""

from __future__ import annotations

import json

import typer
from rich.console import Console

from ecoshare.cli.options import JsonOption


def doctor(as_json: JsonOption = False) -> None:
    """Check what this machine offers: device, torch, MPS, energy meters, permissions."""
    from ecoshare.reporting.machine_check import examine, print_findings

    findings = examine()
    if as_json:
        print(json.dumps([finding.as_dict() for finding in findings], indent=2))
    else:
        print_findings(findings, Console(highlight=False))
    if any(finding.verdict == "fail" for finding in findings):
        raise typer.Exit(4)
