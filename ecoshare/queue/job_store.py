"""Jobs of a queue on the disk: what was submitted, and how each job ended. A database of SQLite.

A submission is on the disk before it is acknowledged. The log of the run says what became of the jobs; the store keeps
their ends so that a list of them costs no pass over the log. A queue that is opened again compares the two.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ecoshare.core.arrival_gate import MISSED, missed
from ecoshare.errors import UnfitEnvironment, UsageError
from ecoshare.queue.queue_documents import Submission

_SCHEMA = 1

_TABLES = """
CREATE TABLE submissions (
    id TEXT PRIMARY KEY,
    document TEXT NOT NULL
);
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    submission TEXT NOT NULL REFERENCES submissions (id),
    given TEXT NOT NULL,
    is_sweep INTEGER NOT NULL,
    run TEXT NOT NULL,
    submitted_unix_s REAL NOT NULL,
    held INTEGER NOT NULL DEFAULT 0,
    priority INTEGER,
    started_unix_s REAL,
    ended_unix_s REAL,
    state TEXT,
    exit_code INTEGER,
    reason TEXT NOT NULL DEFAULT '',
    attempts INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX jobs_left ON jobs (number) WHERE state IS NULL;
CREATE INDEX jobs_ended ON jobs (ended_unix_s) WHERE state IS NOT NULL;
"""

_CLOCK = """
CREATE TABLE IF NOT EXISTS clock (
    boot TEXT NOT NULL,
    since_boot_s REAL NOT NULL,
    unix_s REAL NOT NULL,
    ahead_s REAL NOT NULL
);
"""
"""Last reading of the clock, and how far it has been set ahead in all."""

_WAITS_S = 10.0
"""Time (s) for which another process may keep the store locked."""

_SLEW_S = 60.0
"""Difference (s) of two clocks from which one of them has been set."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job or sweep of the store.

    Attributes:
        number: Place in the order of submission.
        name: Name in the queue.
        submission: Id of its submission.
        given: Name in its job file.
        is_sweep: Whether it is a sweep.
        run: Name of the run folder that it was submitted to.
        submitted_unix_s: Time of its submission.
        held: Whether the user holds it.
        priority: Priority that it was given later; None for that of its file.
        started_unix_s: Time of its first start; None before.
        ended_unix_s: Time of its end; None before.
        state: Final state; None before its end.
        exit_code: Exit code of its last attempt.
        reason: Cause of an end without success.
        attempts: Number of its attempts at its end. If it runs again, the number of those that count no more.
    """

    number: int
    name: str
    submission: str
    given: str
    is_sweep: bool
    run: str
    submitted_unix_s: float
    held: bool
    priority: int | None
    started_unix_s: float | None
    ended_unix_s: float | None
    state: str | None
    exit_code: int | None
    reason: str
    attempts: int


@dataclass(frozen=True, slots=True)
class JobEnd:
    """End of a job or sweep; see `JobRow`."""

    name: str
    state: str
    ended_unix_s: float
    started_unix_s: float | None = None
    exit_code: int | None = None
    reason: str = ""
    attempts: int = 0


class _Names(Set[str]):
    """Names in the store, which are looked up there."""

    def __init__(self, found: Callable[..., list[str]]) -> None:
        """Names that a function finds; it takes a condition with its values."""
        self._found = found

    def __contains__(self, name: object) -> bool:
        return bool(self._found("name = ?", name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._found())

    def __len__(self) -> int:
        return len(self._found())


def _patiently(change: Callable[[], object]) -> None:
    """Make a change for which SQLite itself does not wait: of the journal, while another process makes it, too."""
    until_s = time.monotonic() + _WAITS_S
    while True:
        try:
            change()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until_s:
                raise
            time.sleep(0.01)
        else:
            return


class JobStore:
    """Jobs of one queue on the disk. All methods may be called in any thread, and block while they use the disk."""

    def __init__(self, path: Path) -> None:
        """Open the store at `path`, which may not exist.

        Raises:
            UsageError: The file is no store of this version.
            UnfitEnvironment: The file cannot be read or written.
        """
        self._path, self._lock, self._reads = path, threading.Lock(), threading.Lock()
        with self._user_errors():
            path.touch(mode=0o600, exist_ok=True)
            self._database = self._connected()
            try:
                self._prepare()
            except BaseException:
                self._database.close()  # a transaction that it has begun would lock the store for all
                raise
            # Reads do not wait for the disk: a connection of their own sees what was committed last.
            self._reader = self._connected()

    def _prepare(self) -> None:
        """Make the tables of a new store. Several processes may do this at once: the first one makes them."""
        database = self._database
        (mode,) = database.execute("PRAGMA journal_mode").fetchone()
        if mode != "wal":
            _patiently(lambda: database.execute("PRAGMA journal_mode = WAL"))
        database.execute("PRAGMA synchronous = FULL")
        database.execute("PRAGMA foreign_keys = ON")
        if self._version() == 0:
            database.execute("BEGIN IMMEDIATE")
            if self._version() == 0:
                for statement in f"{_TABLES} PRAGMA user_version = {_SCHEMA}".split(";"):
                    database.execute(statement)
            database.execute("COMMIT")
        if (version := self._version()) != _SCHEMA:
            raise UsageError(f"{self._path} is of version {version}, and this ecoshare writes {_SCHEMA}")
        database.execute(_CLOCK)

    def _version(self) -> int:
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        return int(version)

    def _connected(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, check_same_thread=False, isolation_level=None, timeout=_WAITS_S)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Context manager: a connection that reads what was committed last."""
        with self._reads, self._user_errors():
            yield self._reader

    @contextlib.contextmanager
    def _user_errors(self) -> Iterator[None]:
        """Context manager: errors of the database become messages for the user."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise UnfitEnvironment(f"cannot write {self._path}: {error}") from error
            raise UsageError(f"{self._path}: {error}", "the database of the queue is damaged") from error
        except OSError as error:
            raise UnfitEnvironment(f"cannot write {self._path}: {error.strerror or error}") from error

    @contextlib.contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """Context manager: all changes, on the disk at the end, or none."""
        with self._lock, self._user_errors():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
                self._database.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._database.execute("ROLLBACK")
                raise

    def _rows(self, where: str, values: Sequence[Any] = ()) -> list[JobRow]:
        with self._reading() as database:
            found = database.execute(f"SELECT * FROM jobs {where}", values).fetchall()
        return [
            JobRow(number, name, submission, given, bool(is_sweep), run, at_s, bool(held), *rest)
            for number, name, submission, given, is_sweep, run, at_s, held, *rest in found
        ]

    def close(self) -> None:
        with self._lock, self._reads:
            self._reader.close()
            self._database.close()

    def add(self, submission: Submission, names: Sequence[tuple[str, str, bool]], run: str, at_unix_s: float) -> None:
        """Add a submission and its jobs, held if it says so. They are on the disk when this returns.

        Args:
            submission: The submission.
            names: For each job the name in the queue, the name in its file, and whether it is a sweep.
            run: Name of the run folder.
            at_unix_s: Time of the submission.

        Raises:
            UnfitEnvironment: The disk is full, or the file cannot be written.
        """
        with self._changing() as database:
            database.execute("INSERT INTO submissions VALUES (?, ?)", (submission.id, submission.model_dump_json()))
            database.executemany(
                "INSERT INTO jobs (name, given, is_sweep, submission, run, submitted_unix_s, held) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(*each, submission.id, run, at_unix_s, submission.held) for each in names],
            )

    def retry(self, attempts: Mapping[str, int], still: Mapping[str, str], run: str, at_unix_s: float) -> None:
        """Note that jobs run again, as if they were submitted now.

        Args:
            attempts: Number of the attempts that each job has had in the run, by its name.
            still: Reason why other jobs, which were cancelled because of those, stay cancelled, by name.
            run: Name of the run folder.
            at_unix_s: Present time (s since 1970).
        """
        with self._changing() as database:
            database.executemany(
                "UPDATE jobs SET run = ?, submitted_unix_s = ?, attempts = ?, held = 0, started_unix_s = NULL, "
                "ended_unix_s = NULL, state = NULL, exit_code = NULL, reason = '' WHERE name = ?",
                [(run, at_unix_s, count, name) for name, count in attempts.items()],
            )
            database.executemany(
                "UPDATE jobs SET reason = ? WHERE name = ?", [(reason, name) for name, reason in still.items()]
            )

    def submission(self, name: str) -> Submission | None:
        """Submission with this id; None if there is none."""
        with self._reading() as database:
            found = database.execute("SELECT document FROM submissions WHERE id = ?", (name,)).fetchone()
        return None if found is None else Submission.model_validate_json(found[0])

    def of_submission(self, name: str) -> list[JobRow]:
        """Jobs of a submission, in its order; empty if there is none of this id."""
        return self._rows("WHERE submission = ? ORDER BY number", (name,))

    def listed(self, most_ended: int) -> tuple[list[JobRow], int]:
        """Jobs that have not ended and, at most so many, those that ended last, in the order of submission.

        Returns:
            The jobs, and the number of those that have ended and are not among them.
        """
        left, ended = self.left(), self.ended(most_ended)  # in this order: none is missing that ends between the two
        rows = {row.number: row for row in (*left, *ended)}
        return [rows[number] for number in sorted(rows)], self.count_ended() - len(ended)

    def left(self) -> list[JobRow]:
        """Jobs that have not ended, in the order of submission."""
        return self._rows("WHERE state IS NULL ORDER BY number")

    def ended(self, most: int) -> list[JobRow]:
        """Jobs that ended last, at most so many, in the order of submission."""
        found = self._rows("WHERE state IS NOT NULL ORDER BY ended_unix_s DESC LIMIT ?", (most,))
        return sorted(found, key=lambda row: row.number)

    def count_ended(self) -> int:
        """Number of jobs that have ended."""
        with self._reading() as database:
            (count,) = database.execute("SELECT count(*) FROM jobs WHERE state IS NOT NULL").fetchone()
        return int(count)

    def find(self, name: str) -> JobRow | None:
        """Job with this name; None if there is none."""
        return next(iter(self._rows("WHERE name = ?", (name,))), None)

    def states(self, names: Iterable[str]) -> dict[str, str]:
        """Final states of those of the named jobs that have ended."""
        listed = json.dumps(list(names))
        rows = self._rows("WHERE state IS NOT NULL AND name IN (SELECT value FROM json_each(?))", (listed,))
        return {row.name: row.state or "" for row in rows}

    def names(self) -> Set[str]:
        """Names of all jobs, as they are when they are asked for: there may be a hundred thousand."""
        return _Names(partial(self._names, "1"))

    def sweeps(self) -> Set[str]:
        """Names of all sweeps, see `names`."""
        return _Names(partial(self._names, "is_sweep"))

    def _names(self, which: str, own: str = "1", *values: str) -> list[str]:
        with self._reading() as database:
            return [name for (name,) in database.execute(f"SELECT name FROM jobs WHERE {which} AND {own}", values)]

    def ended_by(self, run: str, at_unix_s: float) -> list[JobRow]:
        """Jobs of a run that ended by some time (s since 1970), of submissions that have no job left."""
        left = "SELECT submission FROM jobs WHERE state IS NULL"
        return self._rows(f"WHERE run = ? AND ended_unix_s <= ? AND submission NOT IN ({left})", (run, at_unix_s))

    def behind(self, names: Iterable[str]) -> list[JobRow]:
        """Jobs that were cancelled because one of these did not complete, or another job of the result did not."""
        rows = self._rows("WHERE state = 'cancelled' AND reason LIKE ? ORDER BY number", (f"%{MISSED}",))
        found: dict[str, JobRow] = {}
        left = set(names)
        while left:
            behind = {row.name: row for row in rows if missed(row.reason) in left}
            left = behind.keys() - found.keys()
            found |= behind
        return [row for row in rows if row.name in found]

    def steady_unix_s(self, unix_s: float, boot: str, since_boot_s: float) -> float:
        """Present time (s since 1970) for ages of what the store has: a clock that was set ahead makes nothing older.

        Args:
            unix_s: Present time of the clock.
            boot: Id of this boot of the machine. After another boot nothing shows that the clock was set.
            since_boot_s: Time (s) since that boot.
        """
        with self._changing() as database:
            before = database.execute("SELECT * FROM clock").fetchone()
            ahead_s = 0.0
            if before is not None:
                jump_s = (unix_s - before[2]) - (since_boot_s - before[1]) if before[0] == boot else 0.0
                ahead_s = max(0.0, before[3] + (jump_s if abs(jump_s) >= _SLEW_S else 0.0))
            database.execute("DELETE FROM clock")
            database.execute("INSERT INTO clock VALUES (?, ?, ?, ?)", (boot, since_boot_s, unix_s, ahead_s))
        return unix_s - ahead_s

    def of_run(self, run: str) -> list[JobRow]:
        return self._rows("WHERE run = ?", (run,))

    def remove(self, names: Iterable[str]) -> None:
        """Remove jobs, and the submissions that have no job any more."""
        with self._changing() as database:
            database.executemany("DELETE FROM jobs WHERE name = ?", [(name,) for name in names])
            database.execute("DELETE FROM submissions WHERE id NOT IN (SELECT submission FROM jobs)")

    def end(self, ends: Iterable[JobEnd], started: Mapping[str, float] | None = None) -> None:
        """Note the ends of jobs and sweeps, and the starts of others. The first end and the first start of each count.

        Args:
            ends: The ends.
            started: Times of starts (s since 1970), by the name of the job.
        """
        with self._changing() as database:
            database.executemany(
                "UPDATE jobs SET started_unix_s = ? WHERE name = ? AND started_unix_s IS NULL",
                [(at_unix_s, name) for name, at_unix_s in (started or {}).items()],
            )
            database.executemany(
                "UPDATE jobs SET state = :state, ended_unix_s = :ended_unix_s, "
                "started_unix_s = coalesce(started_unix_s, :started_unix_s), "
                "exit_code = :exit_code, reason = :reason, attempts = :attempts WHERE name = :name AND state IS NULL",
                [asdict(each) for each in ends],
            )

    def hold(self, name: str, held: bool) -> None:
        """Note that the user holds a job, or has released it."""
        with self._changing() as database:
            database.execute("UPDATE jobs SET held = ? WHERE name = ?", (held, name))

    def prioritise(self, name: str, priority: int) -> None:
        """Note the priority that the user has given to a job."""
        with self._changing() as database:
            database.execute("UPDATE jobs SET priority = ? WHERE name = ?", (priority, name))
