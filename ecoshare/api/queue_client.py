"""`Queue`: jobs for a queue that is up, its state and its ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ecoshare.errors import InvalidJobFile, UsageError

if TYPE_CHECKING:
    from ecoshare.jobs.from_values import Jobs
    from ecoshare.queue.client import QueueClient
    from ecoshare.queue.queue_documents import Acknowledged, JobStatus, QueueStatus, Submission

EnvironmentFrom = Literal["none", "listed", "all"]


class Queue:
    """A queue of this user that `ecoshare up` has opened. Each call connects anew, so an object may be kept for long.

    Each method raises `EcoshareError` if the queue is not up (`UnfitEnvironment`), or refuses what is asked for.
    """

    def __init__(self, name: str = "default") -> None:
        """Queue with this name, which need not be up yet.

        Raises:
            UsageError: The text cannot be the name of a queue.
        """
        from ecoshare.queue.queue_folder import QueueFolder

        self.name = QueueFolder.of(name).name

    def submit(
        self,
        jobs: Jobs,
        args: Sequence[str] = (),
        *,
        env_from: EnvironmentFrom = "all",
        variables: Collection[str] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Acknowledged:
        """Submit jobs; return the names that they were given. They are on the disk of the queue by then.

        Args:
            jobs: Path of a job file, paths of scripts, or the content of a job file as a mapping.
            args: Arguments of the scripts.
            env_from: Environment of the jobs: `all` is that of this process, `listed` has the named variables of it
                only, and `none` is that of the queue.
            variables: Names of the variables for `listed`.
            options: Keys that each script gets, as in a job file: `priority`, `slowdown`, `gpus`, `after`, `name`.

        Raises:
            InvalidJobFile: The jobs have mistakes.
        """
        submission = made_submission(jobs, args, env_from, variables, options or {})
        with self._client() as client:
            try:
                return client.submit(submission)
            except InvalidJobFile as error:
                if not submission.of_scripts:
                    raise
                raise UsageError("; ".join(f"{each.where}: {each.what}" for each in error.mistakes)) from error

    def status(self, ended: int = 20) -> QueueStatus:
        """State of the queue, with all jobs that have not ended, and so many that ended last."""
        with self._client() as client:
            return client.status(ended)

    def job(self, name: str) -> JobStatus:
        """State of one job or sweep."""
        with self._client() as client:
            return client.job(name)

    def wait(self, *names: str) -> list[JobStatus]:
        """States of jobs and sweeps after their ends."""
        with self._client() as client:
            return [client.wait(name) for name in names]

    def cancel(self, *names: str, at_once: bool = False) -> None:
        """Cancel jobs and sweeps. Running jobs end at their next boundary, or now."""
        with self._client() as client:
            client.cancel(names, at_once)

    def hold(self, name: str) -> JobStatus:
        """Keep a job that waits from starting."""
        with self._client() as client:
            return client.hold(name)

    def release(self, name: str) -> JobStatus:
        """Let a held job start again."""
        with self._client() as client:
            return client.release(name)

    def prioritise(self, name: str, priority: int) -> JobStatus:
        """Give a job another priority."""
        with self._client() as client:
            return client.prioritise(name, priority)

    def output(
        self, name: str, *, errors: bool = False, follow: bool = False, lines: int | None = None
    ) -> Iterator[bytes]:
        """Output of a job as it was written; with `follow`, until its end.

        Args:
            name: Name of the job or trial.
            errors: Whether to read its stderr instead of its stdout.
            follow: Whether to go on until the job has ended.
            lines: Number of last lines to begin with; None for the whole output.
        """
        with self._client() as client:
            yield from client.output(name, "stderr" if errors else "stdout", follow, lines)

    def end(self, how: Literal["drain", "stop", "now"] = "stop") -> None:
        """Bring the queue to its end, and return when it is down.

        Args:
            how: `drain` lets what runs come to its end, `stop` ends jobs at their next boundary, `now` kills them.
        """
        with self._client() as client:
            client.end(how)

    def _client(self) -> QueueClient:
        from ecoshare.queue.client import QueueClient

        return QueueClient(self.name)


def made_submission(
    jobs: Jobs,
    args: Sequence[str],
    env_from: EnvironmentFrom,
    variables: Collection[str],
    options: Mapping[str, Any],
) -> Submission:
    """Submission of jobs from this process, with its working folder, environment and interpreter; see `Queue.submit`.

    Raises:
        UsageError: A file is missing, or the arguments contradict each other.
    """
    from ecoshare.jobs.from_values import job_text
    from ecoshare.queue.client import new_id
    from ecoshare.queue.queue_documents import Submission

    if env_from not in ("none", "listed", "all"):
        raise UsageError(f"--env-from {env_from}: expected none, listed or all")
    if variables and env_from != "listed":
        raise UsageError("--env names variables for --env-from listed")
    missing = sorted(name for name in variables if name not in os.environ)
    if missing:
        raise UsageError(f"--env {missing[0]}: there is no such variable here")
    shared = os.environ if env_from == "all" else {name: os.environ[name] for name in variables}
    given = job_text(jobs, args, options)
    return Submission(
        id=new_id(),
        text=given.text,
        file=given.shown,
        folder=str(given.folder),
        made=given.made,
        of_scripts=given.of_scripts,
        environment=dict(shared),
        is_whole_environment=env_from == "all",
        python=sys.executable,
    )
