"""Run of a gang and other scripts on several devices, with a look at what it shows: `scripts/demo --devices cpu/2`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from ecoshare.jobs.quantities import format_energy
from scripts.bench.benchmarking import ROOT
from scripts.bench.gang_turns import turns


def main() -> int:
    """Run the examples, and print what to look at; returns the exit code of the run."""
    parser = argparse.ArgumentParser(prog="scripts/demo", description="Any other option is one of `ecoshare run`.")
    parser.add_argument("--devices", required=True, metavar="NAMES", help="such as cpu/2, or a number of GPUs")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", metavar="DIR", help="folder of the runs")
    given, more = parser.parse_known_args()
    line = [sys.executable, "-m", "ecoshare", "run", str(ROOT / "examples" / "devices.yaml"), "--policy", "fair"]
    line += ["--devices" if given.devices.isdecimal() else "--device", given.devices]
    line += ["--runs", str(given.runs), "--no-profiles"]
    code = subprocess.run([*line, *more], check=False).returncode
    summary = given.runs / "latest" / "summary.json"
    if code == 0 and "--dry-run" not in more:
        print("\n" + "\n".join(shown(summary.parent.resolve(), json.loads(summary.read_text()))))
    return code


def shown(run: Path, summary: dict[str, Any]) -> list[str]:
    """Lines on a finished run: jobs and joules by device, the turns of its gangs, and its report."""
    lines = ["Look at:"]
    for device in summary["devices"]:
        name = device["name"]
        jobs = [job["name"] for job in summary["jobs"] if name in job["devices"]]
        lines.append(f"  {name}: {', '.join(jobs)}; {joules(device['energy'])}")
    lines.append(f"  all devices: {joules(summary['energy'])}, the sum")
    for job in summary["jobs"]:
        if len(job["devices"]) > 1:
            lines.append(f"  {job['name']}: {gang(run, job)}")
    return [*lines, f"  the lanes of each device, as a picture: {run / 'report.html'}"]


def joules(energy: dict[str, Any] | None) -> str:
    """Energy in words, with its source."""
    return "energy not known" if energy is None else f"{format_energy(energy['value_j'])} {energy['source']}"


def gang(run: Path, job: dict[str, Any]) -> str:
    """Turns of a gang in words."""
    ranks = len(job["devices"])
    found = turns(run / "jobs" / job["name"], ranks, job["attempts"])
    count = len(found.iterations)
    words = f"{ranks} ranks on {' and '.join(job['devices'])} had {count} turns beside other jobs"
    return f"{words}, and ended {found.together} of them after the same iteration"


if __name__ == "__main__":
    sys.exit(main())
