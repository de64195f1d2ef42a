"""`Queue`: jobs for a queue that is up, its state and its ends."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ecoshare.base.plural import listed
from ecoshare.errors import InvalidJobFile, QueueDown, UnfitEnvironment, UsageError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from ecoshare.jobs.from_values import Jobs
    from ecoshare.queue.client import QueueConnection
    from ecoshare.queue.queue_documents import Acknowledged, JobsChanged, JobStatus, QueueStatus, Submission
    from ecoshare.queue.queue_folder import QueueFolder

_API = "/api/v1"
_LONG_POLL_S = 20.0
"""Time (s) within which the queue answers a question for the end of a job, whether it has come or not."""

EnvironmentFrom = Literal["none", "listed", "all"]


class Queue:
    """A queue of this user that `ecoshare up` has opened. Each call connects anew, so an object may be kept for long.

    Each method raises `EcoshareError` if the queue refuses what is asked for, or is not up: `UnfitEnvironment`, or its
    kind `QueueDown` if jobs wait for `ecoshare up --resume`. While it is down, `left`, `job` and `wait` tell what its
    folder has, and `clear` empties that.
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
        held: bool = False,
    ) -> Acknowledged:
        """Submit jobs; return the names that they were given. They are on the disk of the queue by then.

        Args:
            jobs: Path of a job file, paths of scripts, or the content of a job file as a mapping.
            args: Arguments of the scripts.
            env_from: Environment of the jobs: `all` is that of this process, `listed` has the named variables of it
                only, and `none` is that of the queue.
            variables: Names of the variables for `listed`.
            options: Keys that each script gets, as in a job file: `priority`, `slowdown`, `gpus`, `after`, `name`.
            held: Whether none of the jobs starts before it is released.

        Raises:
            InvalidJobFile: The jobs have mistakes, or wait for a job that has not completed and never will.
        """
        submission = made_submission(jobs, args, env_from, variables, options or {}, held)
        try:
            answer = self.submit_made(submission)
        except InvalidJobFile as error:
            if not submission.of_scripts:
                raise
            words = "; ".join(f"{each.where}: {each.what}" for each in error.mistakes)
            raise UsageError(words, error.hint) from error
        left_out = sorted(os.environ.keys() - submission.environment) if env_from == "all" else []
        if not left_out:
            return answer
        note = f"the jobs do not get {listed(left_out)}: the value is no UTF-8 text"
        return answer.model_copy(update={"notes": [*answer.notes, note]})

    def submit_made(self, submission: Submission) -> Acknowledged:
        """Submit jobs. A submission that the queue has already is not submitted again."""
        from ecoshare.queue.queue_documents import Acknowledged

        return Acknowledged.model_validate(self._ask("POST", "/jobs", submission))

    def status(self, ended: int = 20) -> QueueStatus:
        """State of the queue, with all jobs that have not ended, and so many that ended last."""
        from ecoshare.queue.queue_documents import QueueStatus

        return QueueStatus.model_validate(self._ask("GET", "/jobs", ended=ended))

    def page(self) -> str:
        """URL of the page of the queue, with the token: keep it secret.

        Raises:
            UsageError: The queue is served on its socket alone.
        """
        from ecoshare.queue.tcp_entry import page_of

        with self._connected() as connection:
            folder = connection.folder
        if (page := page_of(folder)) is None:
            raise UsageError(
                f"the queue {self.name!r} has no page",
                f"`ecoshare up --listen 127.0.0.1:8265{folder.option}` opens a queue with one",
            )
        return page

    def left(self) -> list[JobStatus]:
        """States of all jobs and sweeps that have not ended, in the order of their submission."""
        from ecoshare.queue.client import left_in
        from ecoshare.queue.statuses import kept_status

        try:
            return [each for each in self.status(0).jobs if each.ended_unix_s is None]
        except UnfitEnvironment as error:
            folder = self._folder_of_down(error)
            return [kept_status(row, folder.runs) for row in left_in(folder)]

    def job(self, name: str) -> JobStatus:
        """State of one job or sweep."""
        try:
            return self._job("GET", name)
        except UnfitEnvironment as error:
            return self._kept(name, error)

    def wait(self, *names: str) -> list[JobStatus]:
        """States of jobs and sweeps after their ends. An unknown name is refused before the wait begins.

        Args:
            names: Names of jobs and sweeps; none for all that have not ended.

        Raises:
            QueueDown: The queue is down or goes down, and some of them wait for another session. The others have ended.
        """
        for name in names:
            self.job(name)
        found: list[JobStatus] = []
        waiting: list[str] = []
        for name in names or [each.name for each in self.left()]:
            try:
                found.append(self._after_its_end(name))
            except QueueDown:
                waiting.append(name)
        if waiting:
            raise self._down(waiting)
        return found

    def _after_its_end(self, name: str) -> JobStatus:
        """State of a job after its end.

        Raises:
            QueueDown: It does not end before another session of the queue.
        """
        from ecoshare.queue.client import QueueConnection
        from ecoshare.queue.queue_documents import JobStatus

        while True:
            try:
                with QueueConnection(self.name, math.inf) as connection:
                    told = connection.ask("GET", _API + self._path(name), wait_s=_LONG_POLL_S)
            except UnfitEnvironment as error:
                status = self._kept(name, error)  # the folder has all ends by then
                if status.ended_unix_s is None:
                    raise self._down([name]) from error
            else:
                status = JobStatus.model_validate(told)
            if status.ended_unix_s is not None:
                return status

    def _kept(self, name: str, error: UnfitEnvironment) -> JobStatus:
        """State of a job of a queue that is down or goes down, from its folder.

        Raises:
            UnfitEnvironment: The queue is neither, or there is none: `error`.
            UsageError: There is no such job.
        """
        from ecoshare.queue.client import found_in
        from ecoshare.queue.statuses import kept_status

        folder = self._folder_of_down(error)
        if (row := found_in(folder, name)) is None:
            raise UsageError(f"the queue {self.name!r} has no job {name!r}")
        return kept_status(row, folder.runs)

    def _folder_of_down(self, error: UnfitEnvironment) -> QueueFolder:
        """Folder of a queue that is down or goes down.

        Raises:
            UnfitEnvironment: The queue is neither, or there is none: `error`.
        """
        from ecoshare.queue.queue_folder import QueueFolder

        folder = QueueFolder.of(self.name)
        if isinstance(error, QueueDown) or (folder.database.exists() and not folder.is_up()):
            return folder
        raise error

    def _down(self, names: Sequence[str]) -> QueueDown:
        from ecoshare.queue.queue_folder import QueueFolder

        folder = QueueFolder.of(self.name)
        goes = "is going down" if folder.is_up() else "is down"
        waits = "waits" if len(names) == 1 else "wait"
        words = f"the queue {self.name!r} {goes}: {listed(names)} {waits} for `ecoshare up --resume{folder.option}`"
        return QueueDown(words, jobs=names)

    def cancel(self, *names: str, at_once: bool = False, all_jobs: bool = False) -> JobsChanged:
        """Cancel jobs and sweeps: those of them that can be. Running jobs end at their next boundary, or now.

        Args:
            names: Names of jobs and sweeps.
            at_once: Whether running jobs are killed now.
            all_jobs: Whether all jobs and sweeps that have not ended are cancelled.

        Raises:
            UsageError: None of the named jobs can be cancelled.
        """
        if not (names or all_jobs):
            raise UsageError("no job was named to be cancelled", "name jobs, or all of them (`--all`)")
        return self._changed("/cancel", names, all=all_jobs, at_once=at_once)

    def retry(self, *names: str) -> JobsChanged:
        """Run jobs again that have failed or were cancelled, under their names: those of them for which it can be done.

        Jobs that were cancelled because one of them did not complete run again, too.

        Raises:
            UsageError: None of the named jobs can run again.
        """
        return self._changed("/retry", names)

    def _changed(self, path: str, names: Sequence[str], **more: Any) -> JobsChanged:
        from ecoshare.queue.queue_documents import JobsChanged

        for name in names:
            self._path(name)
        return JobsChanged.model_validate(self._ask("POST", path, {"jobs": list(names), **more}))

    def hold(self, name: str) -> JobStatus:
        """Keep a job that waits from starting."""
        return self._job("PATCH", name, {"held": True})

    def release(self, name: str) -> JobStatus:
        """Let a held job start again."""
        return self._job("PATCH", name, {"held": False})

    def prioritise(self, name: str, priority: int) -> JobStatus:
        """Give a job another priority."""
        return self._job("PATCH", name, {"priority": priority})

    def output(
        self, name: str, *, errors: bool = False, follow: bool = False, lines: int | None = None
    ) -> Iterator[bytes]:
        """Output of a job as it was written; with `follow`, until its end.

        Args:
            name: Name of the job or trial.
            errors: Whether to read its stderr instead of its stdout.
            follow: Whether to go on until the job has ended.
            lines: Number of last lines to begin with; None for the whole output.

        Raises:
            QueueDown: With `follow`: the queue goes down, and the job waits for another session.
        """
        params: dict[str, str | int | bool] = {"stream": "stderr" if errors else "stdout", "follow": follow}
        if lines is not None:
            params["lines"] = lines
        path = f"{_API}{self._path(name)}/output"
        with self._connected() as connection:
            try:
                yield from connection.stream(path, follow, **params)
            except QueueDown:
                if not follow:
                    raise
        if follow:
            self._check_end(name)

    def _check_end(self, name: str) -> None:
        """Check that an output has ended with its job, and not with the queue.

        Raises:
            QueueDown: It has ended with the queue.
        """
        from ecoshare.jobs.sweep import sweep_of

        try:
            self._after_its_end(name)
        except UsageError:  # it is a trial, which the queue lists with its sweep
            try:
                is_cut = self.status(0).ending == "stop"
            except QueueDown:
                is_cut = True
            if is_cut:
                raise self._down([sweep_of(name)]) from None

    def end(self, how: Literal["drain", "stop", "now"] = "stop") -> None:
        """Bring the queue to its end, and return when it is down.

        Args:
            how: `drain` lets what runs come to its end, `stop` ends jobs at their next boundary, `now` kills them.
        """
        with self._connected() as connection:
            connection.ask("POST", f"{_API}/end", {"how": how})
            connection.wait_for_end()

    def clear(self) -> None:
        """Forget all jobs of a queue that is down, and remove their data and the options of the queue.

        Raises:
            UsageError: The queue is up.
            UnfitEnvironment: There is no such queue, or files cannot be removed.
        """
        from ecoshare.queue.queue_folder import QueueFolder

        QueueFolder.of(self.name).clear()

    def _connected(self) -> QueueConnection:
        from ecoshare.queue.client import QueueConnection

        return QueueConnection(self.name)

    def _ask(self, method: str, path: str, body: BaseModel | Mapping[str, Any] | None = None, **params: Any) -> Any:
        with self._connected() as connection:
            return connection.ask(method, _API + path, body, **params)

    def _job(self, method: str, name: str, body: Mapping[str, Any] | None = None, **params: Any) -> JobStatus:
        from ecoshare.queue.queue_documents import JobStatus

        return JobStatus.model_validate(self._ask(method, self._path(name), body, **params))

    def _path(self, name: str) -> str:
        """Path of a job or trial. Text that cannot be its name is refused: it could lead to another path."""
        from ecoshare.jobs.fields import is_name

        if not is_name(name):
            raise UsageError(f"the queue {self.name!r} has no job {name!r}")
        return f"/jobs/{name}"


def made_submission(
    jobs: Jobs,
    args: Sequence[str],
    env_from: EnvironmentFrom,
    variables: Collection[str],
    options: Mapping[str, Any],
    held: bool = False,
) -> Submission:
    """Submission of jobs from this process, with its working folder, environment and interpreter; see `Queue.submit`.

    Variables that are no UTF-8 text are left out of the whole environment, since JSON has no place for them.

    Raises:
        UsageError: A file is missing, the arguments contradict each other, or a path or a named variable is no UTF-8
            text.
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
    if unfit := sorted(name for name in variables if not _is_utf8(name + os.environ[name])):
        raise UsageError(f"--env {unfit[0]}: the variable is no UTF-8 text, and a queue takes no other")
    names = os.environ if env_from == "all" else variables
    shared = {name: os.environ[name] for name in names if _is_utf8(name + os.environ[name])}
    given = job_text(jobs, args, options)
    for path in (str(given.folder), given.shown, sys.executable):
        if not _is_utf8(path):
            raise UsageError(f"the path {path!r} is no UTF-8 text, and a queue takes no other")
    return Submission(
        id=new_id(),
        text=given.text,
        file=given.shown,
        folder=str(given.folder),
        made=given.made,
        of_scripts=given.of_scripts,
        environment=shared,
        is_whole_environment=env_from == "all",
        python=sys.executable,
        held=held,
    )


def _is_utf8(text: str) -> bool:
    """Whether a text of the system, which may be any bytes, is UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
