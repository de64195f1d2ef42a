"""Runs the `on_end:` commands beside the scheduler. They can neither delay it nor change the exit code of the run.

::

    driver ──event──► look ──► a task for each job that has ended ──► process in a session of its own
                                                                                 stdout, stderr ──► on_end.log

A job that the end of its run stops counts as cancelled. The same job of a queue waits for `ecoshare up --resume`: its
end is not told before it comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from ecoshare.core.events import CancelRequested, Event, RetryRequested
from ecoshare.core.records import Job, JobState
from ecoshare.core.scheduler import Scheduler
from ecoshare.jobs.end_commands import on_end_words
from ecoshare.lane.files import make_folder, open_to_append
from ecoshare.record.run_folder import RunFolder
from ecoshare.runtime.planning.planned_job import PlannedJob

LIMIT_S = 60.0
"""Time (s) after which a command is killed. A process that must outlive it can leave its session."""

_AT_ONCE = 4
_MOST_NOTES = 3


@dataclass(slots=True)
class OnEnd:
    """Runs the `on_end:` commands of the jobs of one run.

    Attributes:
        jobs: Jobs of the run, by name. Trials are added during the run.
        notes: List that gets one line for each of the first few failed commands.
        of_queue: Whether they are jobs of a queue.
        limit_s: Longest time (s) of a command, and of all commands that are left after the last job has ended.
    """

    folder: RunFolder
    jobs: Mapping[str, PlannedJob]
    notes: list[str]
    of_queue: bool = False
    limit_s: float = LIMIT_S
    _told: set[str] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))
    _failures: int = 0

    def look(self, event: Event, core: Scheduler) -> None:
        """Start the command of each job that ended with this event. The core has handled the event already."""
        if isinstance(event, RetryRequested):
            self._told.discard(event.job)
        for job in core.ended:
            if not (self.of_queue and job.resumable):
                self._ended(job.spec.name, job.state)
        if isinstance(event, CancelRequested) and event.job in self.jobs and event.job not in core.jobs:
            self._ended(event.job, JobState.CANCELLED)  # it never arrives

    def _ended(self, name: str, state: JobState) -> None:
        if name not in self._told:
            self._told.add(name)
            self._begin(name, state.value)

    def keep_only(self, names: Collection[str]) -> None:
        """Forget the ends of all other jobs."""
        self._told.intersection_update(names)

    async def finish(self, jobs: Mapping[str, Job]) -> None:
        """Wait for the commands in progress, and kill those that take too long.

        Args:
            jobs: All jobs that the core knows. The other jobs of the run did not arrive before the stop, and count as
                cancelled.
        """
        for name in set[str]() if self.of_queue else self.jobs.keys() - jobs.keys() - self._told:
            self._ended(name, JobState.CANCELLED)
        await self._wait()

    async def end(self) -> None:
        """Kill all commands and wait until they have ended."""
        self.give_up()
        await self._wait()

    async def _wait(self) -> None:
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=self.limit_s)
            if late:
                self.give_up()
                await asyncio.wait(late)

    def give_up(self) -> None:
        """Kill all commands, without a wait for their end."""
        for task in self._tasks:
            task.cancel()

    def _begin(self, name: str, state: str) -> None:
        job = self.jobs[name].source
        if not job.on_end:
            return
        words = on_end_words(job.on_end, {"job": name, "state": state, "run": str(self.folder.path.absolute())})
        task = asyncio.get_running_loop().create_task(self._run(name, words, job.cwd, {**os.environ, **job.env}))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, name: str, words: list[str], cwd: Path, environment: dict[str, str]) -> None:
        folder = self.folder.job(name)
        problem = "stopped before its end"
        try:
            async with self._turns:
                make_folder(folder)  # a job that never started has no folder
                problem = await run_command(words, cwd, environment, folder / "on_end.log", self.limit_s)
        except OSError as error:
            problem = str(error.strerror or error)
        finally:
            if problem:
                self._note(f"on_end of {name}: {problem}; its output is in {folder / 'on_end.log'}")

    def _note(self, line: str) -> None:
        self._failures += 1
        if self._failures <= _MOST_NOTES:
            self.notes.append(line)
        elif self._failures == _MOST_NOTES + 1:
            self.notes.append("on_end of more jobs has failed")


def run_at_end_of_run(words: Sequence[str], state: str, folder: RunFolder, cwd: Path) -> str:
    """Run the `on_end:` command of the run and wait for it; a note for the user if it fails, otherwise empty."""
    filled = on_end_words(words, {"state": state, "run": str(folder.path.absolute())})
    log = folder.on_end_log
    try:
        problem = asyncio.run(run_command(filled, cwd, dict(os.environ), log, LIMIT_S))
    except OSError as error:
        problem = str(error.strerror or error)
    return f"on_end of the run: {problem}; its output is in {log}" if problem else ""


async def run_command(
    words: Sequence[str], cwd: Path, environment: Mapping[str, str], log: Path, limit_s: float
) -> str:
    """Run a command in a session of its own, and append its output to `log`.

    After `limit_s`, or on cancellation, the process group of the command is killed.

    Returns:
        Reason for a failure, in words; empty if the command succeeded.

    Raises:
        OSError: The log cannot be written.
    """
    with os.fdopen(open_to_append(log), "ab") as output:
        try:
            process = await _start(words, cwd, environment, output)
        except OSError as error:
            return f"{words[0]} cannot be started: {error.strerror or error}"
        except ValueError as error:  # a placeholder has brought in a NUL character
            return f"{words[0]} cannot be started: {error}"
        try:
            async with asyncio.timeout(limit_s):
                code = await process.wait()
        except TimeoutError:
            return f"{words[0]} was killed after {limit_s:g} s"
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
    if code < 0:
        return f"{words[0]} was ended by {signal.Signals(-code).name}"
    return f"{words[0]} left with exit code {code}" if code else ""


async def _start(
    words: Sequence[str], cwd: Path, environment: Mapping[str, str], output: IO[bytes]
) -> asyncio.subprocess.Process:
    # A session of its own: a Ctrl-C in the terminal ends the run, and the command must survive to report that.
    return await asyncio.create_subprocess_exec(
        *words,
        cwd=cwd,
        env=dict(environment),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )
