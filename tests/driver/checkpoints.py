"""Checkpoint calls of a fake driver, as tests see and disturb them.

::

    checkpoints = Checkpoints(driver)
    checkpoints.fail("Restore", OUT_OF_MEMORY)
    ...
    assert checkpoints.state(pid) == "CHECKPOINTED"
"""

from __future__ import annotations

from tests.driver import build, state
from tests.driver.cuda_processes import STATES, CudaProcesses
from tests.driver.fake import FakeDriver
from tests.driver.state import Page, State

OUT_OF_MEMORY, OPERATING_SYSTEM, ILLEGAL_STATE, NOT_READY, NOT_SUPPORTED, UNKNOWN = 2, 304, 401, 600, 801, 999
"""Values of `CUresult`."""


class Checkpoints:
    """Processes with CUDA on the GPUs of a fake driver, and faults of the calls that park them.

    The name of a call lacks its prefix: `Lock`, `Checkpoint`, `Restore`, `Unlock`, `GetState`. Names are patterns, as
    in `faults.py`. `FakeDriver.mend` removes the faults.
    """

    def __init__(self, driver: FakeDriver) -> None:
        """The processes of this driver."""
        self._state, self._processes = State(driver.state_path), CudaProcesses(driver.state_path)

    def state(self, pid: int) -> str | None:
        """State of a process, such as `CHECKPOINTED`; None if it has not used CUDA, or has ended."""
        found = self._processes.of(pid)
        return None if found is None else STATES[found.state]

    def parked_bytes(self, pid: int) -> int:
        """Memory (bytes) that a checkpoint has taken off all GPUs."""
        found = self._processes.of(pid)
        return 0 if found is None else sum(found.parked_bytes)

    def is_in_call(self, pid: int) -> bool:
        """Whether a process is in a CUDA call that has not blocked at its begin."""
        found = self._processes.of(pid)
        return found is not None and found.calls > 0

    def fail(self, call: str, result: int, *, first: int = 1, times: int = 0) -> None:
        """Let calls do nothing and return this `CUresult`.

        Args:
            first: Number of the first matching call that fails, counted from 1.
            times: Number of matching calls that fail; 0 is all.
        """
        with self._state.change() as page:
            _place(page, call, state.FAULT_RETURN, result, first, times)

    def hang(self, call: str, *, first: int = 1, times: int = 0) -> None:
        """Let calls do what they should and never return, as a driver goes on without its caller."""
        with self._state.change() as page:
            _place(page, call, state.FAULT_HANG, 0, first, times)


def old_driver() -> dict[str, str]:
    """Environment in which child processes find the library of a driver before 570."""
    return {"LD_LIBRARY_PATH": str(build.old_cuda().parent)}


def _place(page: Page, call: str, kind: int, code: int, first: int, times: int) -> None:
    free = next(each for each in page.faults if each.kind == 0)
    free.functions, free.kind, free.code, free.gpu = f"cuCheckpointProcess{call}".encode(), kind, code, -1
    free.first, free.times, free.calls, free.struck = first, times, 0, 0
