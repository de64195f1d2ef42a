"""Services of a plan: notes about their ends, and the files with the times of their requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from ecoshare.common.plural import listed
from ecoshare.errors import UsageError
from ecoshare.jobs.request_trace import RequestTrace, read_trace
from ecoshare.lane.files import make_folder
from ecoshare.record.run_folder import RunFolder, unwritable, write_text
from ecoshare.runtime.planned_job import PlannedJob
from ecoshare.values.service import ARRIVALS


def notes(jobs: Sequence[PlannedJob]) -> list[str]:
    """Notes about servers that sleep, processes of services, and the end of services without a last request.

    Args:
        jobs: All jobs, and the template of each sweep.
    """
    found = [
        f"{job.spec.name} sleeps while other jobs of its lane have the turn: clients ask it at "
        f"http://127.0.0.1:{job.spec.service.port}"
        for job in jobs
        if job.spec.service is not None and job.spec.service.sleep
    ]
    apart = [
        job.spec.name
        for job in jobs
        if job.spec.service is not None and job.spec.service.requests is None and job.source.isolation == "lane"
    ]
    if apart:
        what = "gets a process of its own" if len(apart) == 1 else "get processes of their own"
        found.append(f"{listed(apart)} {what}: `isolation: lane` is for services with `requests`")
    services = [job.spec.name for job in jobs if job.spec.is_open_ended]
    if not services:
        return found
    verb = "serves" if len(services) == 1 else "serve"
    until = "until Ctrl-C" if len(services) == len(jobs) else "until all other jobs have ended"
    return [*found, f"{listed(services)} {verb} {until}"]


def check_places(jobs: Sequence[PlannedJob], places: int) -> None:
    """Refuse services that would leave no place for the other jobs of a run, which then never ended.

    Args:
        jobs: All jobs, and the template of each sweep.
        places: Places of all lanes together.

    Raises:
        UsageError: The services would take all places.
    """
    services = [job.spec.name for job in jobs if job.spec.is_open_ended]
    if services and len(services) < len(jobs) and len(services) >= places:
        raise UsageError(
            f"{listed(services)} would keep all places of the run ({places}), so other jobs would wait for ever",
            "give more with --lanes or --jobs-per-lane, or give the services a last request (`count`)",
        )


def write_arrivals(jobs: Iterable[PlannedJob], folder: RunFolder) -> None:
    """Write the times of the requests of each service with a trace into the folder of its job: one (s) a line.

    The times are divided by `speed`. A file of an earlier session stays as it is.

    Raises:
        UsageError: A trace has changed since the job file was read, and has mistakes now.
        UnfitEnvironment: The disk is full, or permission is missing.
    """
    traces: dict[tuple[Path, str], RequestTrace] = {}
    for job in jobs:
        requests = job.source.service.requests if job.source.service is not None else None
        if requests is None or requests.trace is None:
            continue
        path = folder.job(job.spec.name) / ARRIVALS
        if path.exists():
            continue
        key = requests.trace, requests.task or ""
        if key not in traces:
            traces[key] = read_trace(requests.trace, str(requests.trace), requests.task or "")
        if problems := traces[key].problems:
            raise UsageError(f"requests of {job.spec.name}: {problems[0]}")
        times_s = traces[key].arrivals_s[: requests.count]
        try:
            make_folder(path.parent)
        except OSError as error:
            raise unwritable(path.parent, error) from error
        write_text(path, "".join(f"{at_s / requests.speed:.6f}\n" for at_s in times_s))
