"""ecoshare: several unmodified PyTorch jobs share a device and spend as few joules on it as possible.

Scripts need not import this package. A script that marks the ends of its iterations itself calls `iteration()`.
A program that starts jobs calls `run`, `simulate`, `profile` or `tune`; see `ecoshare.api`.
"""

from __future__ import annotations

from collections.abc import Callable

TYPE_CHECKING = False  # type checkers take it as True; `typing` would cost each job's process some milliseconds
if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from ecoshare.api.profile_script import ProfileRequest as ProfileRequest
    from ecoshare.api.profile_script import ProfileResult as ProfileResult
    from ecoshare.api.profile_script import profile as profile
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
    from ecoshare.lane.service_job import NextAnswer
    from ecoshare.values.service import ServiceSpec

__version__ = "0.1.0"

_API = {
    "profile_script": ("ProfileRequest", "ProfileResult", "profile"),
    "replay_search": ("ReplayRequest", "ReplayResult", "replay"),
    "run_jobs": ("ResumeRequest", "RunRequest", "plan", "resume", "run"),
    "run_result": ("RunResult",),
    "simulate_trace": ("SimulateRequest", "SimulateResult", "simulate"),
    "tune_packing": ("TuneRequest", "TuneResult", "tune"),
}
"""Names of the Python API by module of `ecoshare.api`. They are imported at their first use: jobs need none of them."""

_declare: Callable[[], None] | None = None
"""Function behind `iteration`. The runner sets it inside the process of a job."""

_report: Callable[[dict[str, float]], None] | None = None
"""Function behind `report`. The runner sets it, too."""

_service: ServiceSpec | None = None
"""Service that this process is. The runner sets it, and the next two."""

_answering: Callable[[float, float | None], AbstractContextManager[NextAnswer]] | None = None
"""Function behind the batches of `serve`: the service has its turn inside the context."""

_requests_path = ""
"""Path for the record of the requests of this service."""

_function: Callable[[str], None] | None = None
"""Function that a job calls if it is not a script. `lane.forked_server` sets it."""

_bare: frozenset[str] = frozenset()
"""Modules that the interpreter had loaded before ecoshare. `lane.boot` sets it."""


def iteration() -> None:
    """Mark the end of an iteration. The call does nothing outside `ecoshare run`.

    Call it at a point where no work is half done, in loops that ecoshare cannot see: loops without modules, optimizers
    or a `DataLoader`.
    """
    if _declare is not None:
        _declare()


def report(**values: float) -> None:
    """Report values of this trial of a sweep, such as `report(val_loss=0.3)`.

    The call does nothing outside `ecoshare run`. Each call is a step. Call it equally often in every trial, for example
    once an epoch. The sweep's `metric:` names the value that counts. A value is anything that `float` accepts,
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

                return getattr(import_module(f"ecoshare.api.{module}"), name)
        raise AttributeError(f"module 'ecoshare' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *(name for names in _API.values() for name in names)})
