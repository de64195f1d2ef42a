"""`up`: a queue, which runs jobs that are submitted to it until it is ended."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from ecoshare.api.request_values import check_control, with_fields
from ecoshare.api.run_jobs import SharingRequest, here_or_elsewhere, holder, job_planner
from ecoshare.api.run_result import RunResult, restore_error
from ecoshare.errors import JobFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class UpRequest(SharingRequest):
    """Request for a queue. The fields, with those of `SharingRequest`, are the options of `ecoshare up`.

    Attributes:
        name: Name of the queue.
        resume: Whether jobs that an earlier session of the queue has left go on. They keep their devices then.
        keep_s: Time (s) for which the data of a job are kept after its end; None for ever.
        listen: Loopback address, such as `127.0.0.1:8265`, at which the queue is served over TCP, too, with its page;
            port 0 for any free one. The note that tells the address has the token. None for the socket alone.
    """

    name: str = "default"
    resume: bool = False
    keep_s: float | None = None
    listen: str | None = None


def up(request: UpRequest | None = None, /, **fields: Any) -> RunResult:
    """Serve a queue until `ecoshare down`, Ctrl-C or SIGTERM ends it. Jobs that have not ended wait for another `up`.

    Args:
        request: A request; None for one of `fields` alone.
        fields: Fields of the `UpRequest`.

    Raises:
        UsageError: The fields contradict each other, the queue is up already, or it has jobs left without `resume`.
        UnfitEnvironment: This machine cannot run jobs, another run uses a device, or the address is in use.
        NotRestored: Knobs of a device could not be restored.
        KeyboardInterrupt: The user pressed Ctrl-C.
    """
    request = with_fields(request or UpRequest(), fields)
    check_control(request.control)
    request = here_or_elsewhere(request)
    from ecoshare.api.caller_process import drive
    from ecoshare.devices.choice import find_all
    from ecoshare.queue.opening import open_queue
    from ecoshare.queue.tcp_entry import ListenAddress

    listen = None if request.listen is None else ListenAddress.parse(request.listen)
    serve = partial(
        open_queue,
        request.name,
        job_planner(request, request.name),
        partial(find_all, request.device, request.devices),
        request.device,
        request.progress,
        request.resume,
        request.keep_s,
        listen,
        holder(request),
        request.note,
    )
    return drive(request.signals, lambda signals: RunResult.of(serve(signals)))


def check_end(result: RunResult, name: str) -> None:
    """Return if a queue ended because it was asked to. The command `ecoshare up` exits with the code of the error.

    Args:
        result: Result of the queue.
        name: Name of the queue.

    Raises:
        NotRestored: Knobs of a device could not be restored.
        JobFailed: All devices have failed. Jobs that had not ended wait for another `up`.
    """
    from ecoshare.queue.queue_folder import QueueFolder

    if result.unrestored:
        raise restore_error(result)
    devices = result.summary.devices
    failed = [f"{each.name} failed: {each.failed.reason}" for each in devices if each.failed is not None]
    if failed and len(failed) == len(devices):
        raise JobFailed(
            f"the queue {name!r} has no device left: {'; '.join(failed)}",
            f"`ecoshare up --resume{QueueFolder.of(name).option}` goes on with its jobs on the devices that work",
        )
