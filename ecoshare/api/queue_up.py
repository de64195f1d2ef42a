"""`up`: a queue, which runs jobs that are submitted to it until it is ended."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from ecoshare.api.request_values import check_control, with_fields
from ecoshare.api.run_jobs import SharingRequest, job_planner
from ecoshare.api.run_result import RunResult


@dataclass(frozen=True, slots=True, kw_only=True)
class UpRequest(SharingRequest):
    """Request for a queue. The fields, with those of `SharingRequest`, are the options of `ecoshare up`.

    Attributes:
        name: Name of the queue.
        resume: Whether jobs that an earlier session of the queue has left go on. They keep their devices then.
    """

    name: str = "default"
    resume: bool = False


def up(request: UpRequest | None = None, /, **fields: Any) -> RunResult:
    """Serve a queue until `ecoshare down`, Ctrl-C or SIGTERM ends it. Jobs that have not ended wait for another `up`.

    Args:
        request: A request; None for one of `fields` alone.
        fields: Fields of the `UpRequest`.

    Raises:
        UsageError: The fields contradict each other, the queue is up already, or it has jobs left without `resume`.
        UnfitEnvironment: This machine cannot run jobs, or another run uses a device.
        NotRestored: Knobs of a device could not be restored.
        KeyboardInterrupt: The user pressed Ctrl-C.
    """
    request = with_fields(request or UpRequest(), fields)
    check_control(request.control)
    from ecoshare.api.caller_process import drive
    from ecoshare.devices.choice import find_all
    from ecoshare.devices.occupancy import DeviceAdmission
    from ecoshare.queue.opening import open_queue

    serve = partial(
        open_queue,
        request.name,
        job_planner(request, request.name),
        partial(find_all, request.device, request.devices),
        request.progress,
        request.resume,
        DeviceAdmission.of(request.wait, request.share_device),
        request.note,
    )
    return drive(request.signals, lambda signals: RunResult.of(serve(signals)))
