"""ecoshare: several unmodified PyTorch jobs share a device and spend as few joules on it as possible.

Scripts need not import this package. A script that marks the ends of its iterations itself calls `iteration()`.
A program that starts jobs calls `run`, `simulate`, `profile` or `tune`; see `ecoshare.api`. A program that answers
requests calls `serve`.
"""

from __future__ import annotations

from collections.abc import Callable

TYPE_CHECKING = False  # type checkers take it as True; `typing` would cost each job's process some milliseconds
if TYPE_CHECKING:
    from ecoshare.api.compare_policies import compare as compare
    from ecoshare.api.profile_script import ProfileRequest as ProfileRequest
    from ecoshare.api.profile_script import ProfileResult as ProfileResult
    from ecoshare.api.profile_script import profile as profile
    from ecoshare.api.queue_client import Queue as Queue
    from ecoshare.api.queue_up import UpRequest as UpRequest
    from ecoshare.api.queue_up import up as up
    from ecoshare.api.replay_search import ReplayRequest as ReplayRequest
    from ecoshare.api.replay_search import ReplayResult as ReplayResult
    from ecoshare.api.replay_search import replay as replay
    from ecoshare.api.run_jobs import ResumeRequest as ResumeRequest
    from ecoshare.api.run_jobs import RunRequest as RunRequest
    from ecoshare.api.run_jobs import plan as plan
    from ecoshare.api.run_jobs import resume as resume
    from ecoshare.api.run_jobs import run as run
    from ecoshare.api.run_result import RunResult as RunResult
    from ecoshare.api.simulate_trace import SimulateRequest as SimulateRequest
    from ecoshare.api.simulate_trace import SimulateResult as SimulateResult
    from ecoshare.api.simulate_trace import simulate as simulate
    from ecoshare.api.tune_packing import TuneRequest as TuneRequest
    from ecoshare.api.tune_packing import TuneResult as TuneResult
    from ecoshare.api.tune_packing import tune as tune
    from ecoshare.base.service import Answering, AnswerMeasurement, ServiceSpec, ServiceThread
    from ecoshare.lane.serving.batch_server import Server as Server
    from ecoshare.lane.serving.batch_server import serve as serve
    from ecoshare.lane.serving.request_queue import QueueFull as QueueFull
    from ecoshare.simulation.result import Comparison as Comparison

__version__ = "0.1.0"

_API = {
    "api.compare_policies": ("compare",),
    "api.profile_script": ("ProfileRequest", "ProfileResult", "profile"),
    "api.queue_client": ("Queue",),
    "api.queue_up": ("UpRequest", "up"),
    "api.replay_search": ("ReplayRequest", "ReplayResult", "replay"),
    "api.run_jobs": ("ResumeRequest", "RunRequest", "plan", "resume", "run"),
    "api.run_result": ("RunResult",),
    "api.simulate_trace": ("SimulateRequest", "SimulateResult", "simulate"),
    "api.tune_packing": ("TuneRequest", "TuneResult", "tune"),
    "lane.serving.batch_server": ("Server", "serve"),
    "lane.serving.request_queue": ("QueueFull",),
    "simulation.result": ("Comparison",),
}
"""Names of the Python API by module. They are imported at their first use: most jobs need none of them."""

_declare: Callable[[], None] | None = None
"""Function behind `iteration`. The runner sets it inside the process of a job."""

_report: Callable[[dict[str, float]], None] | None = None
"""Function behind `report`. The runner sets it, too."""

_service: ServiceSpec | None = None
"""Service that the job file describes. The runner sets it before the script starts; `serve` then goes by it."""

_answering: Answering | None = None
"""Context around each call of a service's handler, which has the turn inside. The runner sets it, too."""

_most_batch: Callable[[], int] | None = None
"""Function that returns the largest batch that a service may form now, 0 for any. The runner sets it, too."""

_thread: ServiceThread | None = None
"""The only thread of a service that shares its process with other jobs; None for a service with a process of its own.
The runner sets it, too."""

_requests_path: str = ""
"""Path of the record of a service's requests; empty outside a run. The runner sets it, too."""

_opened_s: float = 0.0
"""Time (s) on the monotonic clock when the run was opened: times in the record count from it. The runner sets it, too.
"""

_measurement: AnswerMeasurement | None = None
"""Measurement of the service's answers, in a run for a profile. The runner sets it, too; `Server.run` then measures."""

_function: Callable[[str], None] | None = None
"""Function that a job calls if it is not a script. `lane.forked_server` sets it."""

_bare: frozenset[str] = frozenset()
"""Modules that the interpreter had loaded before ecoshare. `lane.interpreter` sets it."""


def iteration() -> None:
    """Mark the end of an iteration. The call does nothing outside `ecoshare run`.

    Call it at a point where no work is half done, in loops that ecoshare cannot see: loops without modules, optimizers
    or a `DataLoader`.
    """
    if _declare is not None:
        _declare()


def report(**values: float) -> None:
    """Report values of this script, such as `report(val_loss=0.3)`.

    The call does nothing outside `ecoshare run` and `ecoshare profile`. Each call is a step. Call it equally often in
    every trial of a sweep, for example once an epoch. The sweep's `metric:` names the value that counts. A profile has
    the first 1,000, and `ecoshare profile --compare` shows them. A value is anything that `float` accepts,
    including a tensor of one element.

    Raises:
        TypeError: A value cannot be converted to a number.
        ValueError: A string is not a number.
    """
    numbers = {name: float(value) for name, value in values.items()}
    if _report is not None:
        _report(numbers)


if not TYPE_CHECKING:  # else a wrong name would pass for one of these

    def __getattr__(name: str) -> object:
        for module, names in _API.items():
            if name in names:
                from importlib import import_module

                return getattr(import_module(f"ecoshare.{module}"), name)
        raise AttributeError(f"module 'ecoshare' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *(name for names in _API.values() for name in names)})
