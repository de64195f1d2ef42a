"""Runs one job inside its own process: a user's script as `__main__`, with the lane's turn around it.

::

    warm server ──fork──► run(launch)            fresh.py ──own interpreter──► run(launch)
                            │  environment, sys.argv, sys.path, working folder: as `python script.py`
                            │  seeds drawn anew (a fork would repeat the server's)
                            │  turn taken: on the CPU now, on CUDA when the script or a child first uses it
                            │  (fused jobs and launchers: now)
                            ▼
                          script ──boundaries──► Turn
                            │
                            ▼  interpreter exits as usual; the turn is left last
"""

from __future__ import annotations

import atexit
import builtins
import io
import os
import runpy
import sys
import types
from functools import lru_cache
from importlib.machinery import SourceFileLoader
from pathlib import Path

import ecoshare
from ecoshare.lane import confinement, interpreter, processes
from ecoshare.lane.after_import import after_import
from ecoshare.lane.hooked_job import HookedJob
from ecoshare.lane.interpreter import let_threads_drop
from ecoshare.lane.messages import LaunchAttempt
from ecoshare.lane.supervisor import gang
from ecoshare.lane.turn import Leaving


def run(launch: LaunchAttempt, forked: bool) -> None:
    """Run the script of `launch` to its end, and leave the process as `python script.py` would.

    Args:
        launch: The attempt to run.
        forked: Whether this process has the random states of a parent.

    Raises:
        SystemExit: If the script exits before its end, or fails.
    """
    rank = f" rank {gang.number_of(launch, launch.rank)}" if launch.ranks else ""
    processes.show_as(launch.job + rank, command_line(launch))
    job = _job_of(launch)
    if launch.ranks:
        atexit.register(let_threads_drop)
    atexit.register(job.end)  # the first to be registered is the last to run
    job.hear()
    dress(launch)
    if forked:
        reseed()
        confinement.match_threads(launch.processors)
        gang.match_threads(launch)
    if launch.device == "cuda":
        job.watch_children()
    job.start()
    after_import("torch", job.watch_torch)
    execute(launch, job)


def _job_of(launch: LaunchAttempt) -> HookedJob:
    if launch.service is None:
        return HookedJob(launch)
    if launch.service.get("sleep"):
        from ecoshare.lane.sleeping_job import SleepingJob

        return SleepingJob(launch)
    from ecoshare.lane.service_job import ServiceJob

    return ServiceJob(launch)


def execute(launch: LaunchAttempt, job: HookedJob) -> None:
    """Run the script itself.

    Raises:
        SystemExit: If the script exits before its end, or fails. An exception is printed to its stderr.
        Leaving: If the job must leave its shared process.
    """
    try:
        if launch.called is not None:
            assert ecoshare._function is not None, "the server was forked with one"
            ecoshare._function(launch.called)
        elif launch.script is not None:
            _execute(launch.script)
        else:
            runpy.run_module(str(launch.module), run_name="__main__", alter_sys=True)
    except Leaving:
        raise
    except BaseException as error:
        job.tell_end(error)
        if isinstance(error, SystemExit):
            raise
        error = _without_our_frames(error)
        sys.excepthook(type(error), error, error.__traceback__)
        raise SystemExit(130 if isinstance(error, KeyboardInterrupt) else 1) from None


def command_line(launch: LaunchAttempt) -> list[str]:
    """Words with which a user would start the job in its folder, without the interpreter."""
    if launch.called is not None:
        return sys.argv  # those of the user's process, which has the function
    if launch.script is None:
        return ["-m", str(launch.module), *launch.args]
    script = Path(launch.script)
    return [str(script.relative_to(launch.cwd) if script.is_relative_to(launch.cwd) else script), *launch.args]


def dress(launch: LaunchAttempt) -> None:
    """Set `sys`, the environment and the working folder to what the script would find alone."""
    interpreter.change(os.environ, launch.env)
    if isinstance(sys.stdout, io.TextIOWrapper):  # the log can be followed while the job runs
        sys.stdout.reconfigure(line_buffering=True, write_through=bool(os.environ.get("PYTHONUNBUFFERED")))
    os.chdir(launch.cwd)
    if launch.called is not None:
        return
    if launch.script is not None:
        sys.argv = command_line(launch)
        sys.path.insert(0, str(Path(launch.script).parent))
    else:
        sys.argv = [str(launch.module), *launch.args]
        sys.path.insert(0, launch.cwd)


def reseed() -> None:
    """Draw new seeds from the system, as a fresh interpreter does. After a fork Python's own `random` has done so."""
    import numpy
    import torch

    # `torch.seed` would take a millisecond: it queues a call, with the stack, for each accelerator that is not in use.
    torch.default_generator.seed()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.seed_all()
    numpy.random.seed()


class DerivedSeeds:
    """Seeds of numbered calls for the generators behind `random`, `numpy.random` and torch.

    Each seed follows from the state of its generator in the process that makes this object, and from the number. So
    calls of a seeded program repeat, whatever runs before or beside them, and calls of another one never do.
    """

    def __init__(self) -> None:
        """Draw one number from each generator, so that the next object of the process has other seeds.

        `DataLoader` does so for the seeds of its workers.
        """
        import random

        import numpy

        torch = sys.modules.get("torch")
        self._python = random.getrandbits(64)
        self._numpy = int.from_bytes(numpy.random.bytes(8))
        self._torch: int | None = None  # a call that imports it finds the seeds of a fresh interpreter
        if torch is not None:
            self._torch = int(torch.empty((), dtype=torch.int64, device="cpu").random_())

    def set(self, number: int) -> None:
        """Seed the generators of this process for a call."""
        import random

        import numpy

        random.seed(_derived(self._python, number))
        numpy.random.seed([_derived(self._numpy, number) >> shift & 0xFFFFFFFF for shift in (0, 32)])
        if self._torch is not None:
            # It seeds CUDA, too: else a seed that the program set before CUDA began would be that of every call.
            sys.modules["torch"].manual_seed(_derived(self._torch, number))


def _derived(drawn: int, number: int) -> int:
    import hashlib

    return int.from_bytes(hashlib.blake2b(f"{drawn}:{number}".encode(), digest_size=8).digest())


def _execute(script: str) -> None:
    code = _compiled(script, Path(script).read_bytes())
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __file__=script,
        __builtins__=builtins,
        __cached__=None,
        __loader__=SourceFileLoader("__main__", script),
    )
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


@lru_cache(maxsize=16)
def _compiled(script: str, source: bytes) -> types.CodeType:
    """Code of a script, compiled once for all jobs of a process."""
    return compile(source, script, "exec", dont_inherit=True)


def _without_our_frames(error: BaseException) -> BaseException:
    """The error with the traceback that it would have without ecoshare."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return error.with_traceback(trace)
