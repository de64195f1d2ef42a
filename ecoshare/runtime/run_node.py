"""A node as its run sees it, and the run as its nodes see it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ecoshare.core.driving import NodeCommands
from ecoshare.core.events import Event
from ecoshare.lane.messages import Ready
from ecoshare.record.samples import Line
from ecoshare.runtime.joining_devices import JoiningDevices, LeavingDevices
from ecoshare.runtime.node_readings import NodeReadings
from ecoshare.serving.request_intervals import RequestInterval


def _never(_devices: JoiningDevices | LeavingDevices) -> None:
    raise AssertionError("no machine joins or leaves this run")


@dataclass(frozen=True, slots=True)
class NodeRun:
    """The run as its nodes see it.

    Attributes:
        now_s: Returns the time (s) since the run was first opened.
        tell: Reports an event to the core. A function that gives None when its turn comes reports nothing.
        begin: Begins work beside the loop of the run; the end of the run cancels it.
        stopping: Returns whether the run is being stopped.
        live_jobs: Returns the number of jobs that have not ended.
        hear_samples: Each gets every line of the samples.
        hear_requests: Gets the intervals that a service has recorded, with its name and the number of its attempt.
        attempt_over: Called with the name and the attempt of a job that has ended, before the core is told.
        join: Adds devices of a machine that has come.
        leave: Does without the devices of a machine, if that can be now. It may be called again.
        waiting_jobs: Returns the number of jobs that wait for a place.
    """

    now_s: Callable[[], float]
    tell: Callable[[Callable[..., Event | None]], None]
    begin: Callable[[Coroutine[Any, Any, None]], None]
    stopping: Callable[[], bool]
    live_jobs: Callable[[], int]
    hear_samples: Sequence[Callable[[Line], None]]
    hear_requests: Callable[[str, int, Sequence[RequestInterval]], None]
    attempt_over: Callable[[str, int], None]
    join: Callable[[JoiningDevices], None] = _never
    leave: Callable[[LeavingDevices], None] = _never
    waiting_jobs: Callable[[], int] = lambda: 0


class RunNode(NodeCommands, NodeReadings, Protocol):
    """A node as its run sees it: `runtime/node.py` on this machine."""

    @property
    def ready(self) -> Ready | None:
        """Start message of the server of the lanes; None before it has loaded torch."""
        ...

    @property
    def is_measuring(self) -> bool:
        """Whether a window is open. The job may have ended, with its profile still to be stored."""
        ...

    @property
    def waited(self) -> bool:
        """Whether a run that only measures was stopped, because its programs waited and did nothing."""
        ...

    async def open(self) -> None:
        """Get the server of the lanes.

        Raises:
            OSError: The process cannot be created.
            UnfitEnvironment: The node cannot provide one.
        """
        ...

    def works(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Work that goes on beside the loop of the run until it is cancelled."""
        ...

    async def first_samples(self) -> None:
        """Wait a moment for the first sample of each device: joules are counted from there."""
        ...

    def keep_only(self, names: Collection[str]) -> None:
        """Forget all other jobs, which have ended."""
        ...

    def end_silent_server(self) -> None:
        """Kill the server if a job is left after the time limit of a stop. The server does not answer then."""
        ...

    async def finish(self) -> None:
        """Take the last sample of each device, when all jobs have ended."""
        ...

    async def close(self) -> None:
        """End everything that is left, and restore the devices. Each step runs even if another one fails."""
        ...
