"""Services beside training: `scripts/demo --services`.

    ecoshare run ──► two HTTP servers and a job that trains
    ask.py ──HTTP──► the servers, over loopback

The client is no job of the run: it uses no device, and a job on processors has the turn from its start on.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from scripts.bench.benchmarking import ROOT

EXAMPLE = ROOT / "examples" / "services"
URLS = ("http://127.0.0.1:8710/read/", "http://127.0.0.1:8711/")
"""Addresses of the servers, with the ports of `examples/services/jobs.yaml`."""


def main() -> int:
    """Run the servers, the training and their client, and print what to look at; returns the exit code of the run."""
    parser = argparse.ArgumentParser(prog="scripts/demo", description="Any other option is one of `ecoshare run`.")
    parser.add_argument("--services", action="store_true", required=True, help="two HTTP servers beside training")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", metavar="DIR", help="folder of the runs")
    given, more = parser.parse_known_args()
    line = [sys.executable, "-m", "ecoshare", "run", str(EXAMPLE / "jobs.yaml"), "--lanes", "1"]
    line += ["--runs", str(given.runs), "--no-profiles", *more]
    if "--dry-run" in more:
        return subprocess.run(line, check=False).returncode
    if (used := in_use()) is not None:
        print(f"error: port {used} is in use: end the program that listens there", file=sys.stderr)
        return 4
    run = subprocess.Popen(line)
    client = subprocess.Popen(
        [sys.executable, str(EXAMPLE / "ask.py"), *URLS], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        code = run.wait()
        if code:
            client.terminate()  # a server may never have come up
        asked = client.communicate()[0].splitlines()
    except KeyboardInterrupt:  # the run has it, too, and ends its jobs
        code = run.wait()
        client.wait()
        return code
    if code == 0:
        latest = (given.runs / "latest").resolve()
        print("\n" + "\n".join(shown(latest, json.loads((latest / "summary.json").read_text()), asked)))
    return code


def in_use() -> int | None:
    """Port of the servers at which another program listens; None if there is none."""
    for url in URLS:
        port = urlsplit(url).port
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port or 0)) == 0:
                return port
    return None


def shown(run: Path, summary: dict[str, Any], asked: list[str]) -> list[str]:
    """Lines on a finished run: answers as the client saw them and as the services did, and the training beside them."""
    lines = ["Look at what the client saw:", *(f"  {each}" for each in asked)]
    lines.append("The services themselves, and the training beside them:")
    for job in summary["jobs"]:
        name, held_s, found = job["name"], job["held_s"], job["service"]
        if found is None:
            lines.append(f"  {name}: {job['iterations']} iterations, held the turn for {held_s:.1f} s")
        elif not found["answered"]:
            lines.append(f"  {name}: no answers")
        else:
            kept = 1.0 - found["late"] / found["answered"]
            words = f"{found['answered']} answers, {kept:.1%} within {1000 * found['target_s']:g} ms"
            lines.append(f"  {name}: {words}, p99 {1000 * found['p99_s']:.1f} ms, held the turn for {held_s:.1f} s")
    return [*lines, f"  turns and latencies, as a picture: {run / 'report.html'}"]


if __name__ == "__main__":
    sys.exit(main())
