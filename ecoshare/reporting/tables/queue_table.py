"""Tables of a queue and of one of its jobs, for the terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from ecoshare.base.plural import counted, listed
from ecoshare.jobs.quantities import format_duration
from ecoshare.reporting.figures import say, with_steps
from ecoshare.reporting.progress import COLOURS
from ecoshare.reporting.tables.text_table import TableColumn, print_columns

_ENDINGS = {"drain": ", which is drained", "stop": ", which is being stopped"}


def print_queue(queue: Mapping[str, Any], console: Console) -> None:
    """Print the jobs of a queue, those in front that have not ended.

    Args:
        queue: A `QueueStatus` as plain data.
        console: Console to print on.
    """
    up = format_duration(max(0.0, time.time() - queue["opened_unix_s"]))
    loads = "" if queue["warm"] else ", torch is being loaded"
    head = f"queue {queue['name']}{_ENDINGS.get(queue['ending'], '')}: up for {up}"
    say(console, f"{head}, policy {queue['policy']}, on {_in_words(queue['devices'])}{loads}")
    for place, words in _places(queue["devices"]):
        say(console, f"  {place:<10}  {words}")
    for warning in queue["warnings"]:
        say(console, f"  {warning}", style="yellow")
    jobs = queue["jobs"]
    if not jobs:
        say(console, "no job was submitted yet")
        return
    print_columns(_columns(jobs), console)
    if queue["ending"]:
        say(console, "what does not end now waits for `ecoshare up --resume`")
    if queue["more"]:
        say(console, f"and {counted(queue['more'], 'job')} that ended earlier")


def _in_words(devices: Sequence[Mapping[str, Any]]) -> str:
    """All devices of a queue: their models, and their number if there are several."""
    models = listed(list(dict.fromkeys(each["described"] for each in devices)))
    return models if len(devices) == 1 else f"{counted(len(devices), 'device')}: {models}"


def _places(devices: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Name and state of each machine, if the queue has several; and of each other device that has failed."""
    machines: dict[str, list[Mapping[str, Any]]] = {}
    for each in devices:
        machine, slash, _ = each["name"].partition("/")
        machines.setdefault(machine if slash else "", []).append(each)
    for machine, own in machines.items():
        failed = [each for each in own if each["failed"]]
        if machine and len(failed) == len(own):
            yield machine, f"failed: {failed[0]['failed']}"
            continue
        if machine:
            yield machine, counted(len(own), "device")
        for each in failed:
            yield each["name"], f"failed: {each['failed']}"


def _columns(jobs: list[dict[str, Any]]) -> list[TableColumn]:
    now_s = time.time()
    return [
        TableColumn(Text("job"), [Text(job["name"]) for job in jobs], is_name=True),
        TableColumn(Text("state"), [Text(_state(job), style=COLOURS.get(job["state"], "")) for job in jobs]),
        TableColumn(Text("iterations"), [Text(_iterations(job)) for job in jobs], right=True, lesser=1),
        TableColumn(Text("it/s"), [Text(_rate(job)) for job in jobs], right=True, lesser=2),
        TableColumn(Text("waited"), [Text(_waited(job, now_s)) for job in jobs], right=True, lesser=3),
        TableColumn(Text("ran"), [Text(_ran(job, now_s)) for job in jobs], right=True, lesser=1),
        TableColumn(Text("priority"), [Text(str(job["priority"])) for job in jobs], right=True, lesser=4),
    ]


def _state(job: Mapping[str, Any]) -> str:
    if job["state"] == "arriving" and job["waits_for"]:
        return f"after {listed(job['waits_for'])}"
    code = job["exit_code"]
    return f"{job['state']} ({code})" if job["state"] == "failed" and code else str(job["state"])


def _iterations(job: Mapping[str, Any]) -> str:
    if job["trials"] is not None:
        return f"{sum(job['ended_trials'].values())}/{counted(job['trials'], 'trial')}"
    if not job["iterations"] and not job["of_iterations"]:
        return ""
    count = f"{job['iterations']}/{job['of_iterations']}" if job["of_iterations"] else str(job["iterations"])
    return with_steps(count, job.get("by_steps", False))


def _rate(job: Mapping[str, Any]) -> str:
    return "" if job["iterations_per_s"] is None else f"{job['iterations_per_s']:.1f}"


def _waited(job: Mapping[str, Any], now_s: float) -> str:
    to_s = job["started_unix_s"] or job["ended_unix_s"] or now_s
    return format_duration(max(0.0, to_s - job["submitted_unix_s"]))


def _ran(job: Mapping[str, Any], now_s: float) -> str:
    if job["started_unix_s"] is None:
        return ""
    return format_duration(max(0.0, (job["ended_unix_s"] or now_s) - job["started_unix_s"]))


def print_job(job: Mapping[str, Any], console: Console) -> None:
    """Print everything that a queue tells of one job.

    Args:
        job: A `JobStatus` as plain data.
        console: Console to print on.
    """
    now_s = time.time()
    facts = {
        "state": _state(job),
        "reason": job["reason"],
        "exit code": job["exit_code"],
        "submitted": _when(job["submitted_unix_s"]),
        "started": _when(job["started_unix_s"]),
        "ended": _when(job["ended_unix_s"]),
        "waited": _waited(job, now_s),
        "ran": _ran(job, now_s),
        "iterations": _iterations(job),
        "it/s": _rate(job),
        "attempts": job["attempts"] or None,
        "priority": job["priority"],
        "lanes": ", ".join(map(str, job["lanes"])),
        "devices": ", ".join(job["devices"]),
        "output": f"{job['run']}/jobs/{job['name']}" if job["trials"] is None else "",
    }
    say(console, job["name"])
    for name, value in facts.items():
        if value not in (None, ""):
            say(console, f"  {name:<11}{value}")


def _when(unix_s: float | None) -> str:
    return "" if unix_s is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_s))
