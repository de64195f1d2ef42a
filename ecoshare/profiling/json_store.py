"""Readable files that many runs share: read with whatever is wrong as a note, replaced at once, set aside when damaged.

There is no lock, which a stopped process could keep from all others: whoever writes last wins, and both had measured.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import BinaryIO, TypeVar

from pydantic import BaseModel, StrictInt, ValidationError

from ecoshare.common import documents
from ecoshare.common.atomic_write import atomic_write
from ecoshare.errors import UnfitEnvironment

HINT = "choose another folder with --profiles"
STALE_S = 3600.0
"""A file that has been in writing for so long has lost its writer."""

Content = TypeVar("Content")


def made_utc() -> str:
    """Now, as such files tell when they were made: ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class KeptFiles:
    """The files of one kind in a folder, which need not exist yet.

    Attributes:
        notes: What is in the way of using some file, a line each, for the caller to show.
    """

    def __init__(self, folder: Path, schema_version: int, damaged: str, deep: int) -> None:
        """Nothing is read yet.

        Args:
            damaged: What a file that is none of these is said to be.
            deep: How many parts of the place of a mistake are told.
        """
        self.notes: list[str] = []
        self._folder, self._schema_version, self._damaged, self._deep = folder, schema_version, damaged, deep

    def read(self, path: Path, parse: Callable[[bytes], Content]) -> Content | None:
        """What a file holds; None where there is none that this version can use. A damaged one is set aside.

        Args:
            parse: Raises a `ValidationError`, or a `ValueError` that says what is wrong.
        """
        try:
            with documents.open_regular(path) as file:
                data = file.read()
                try:
                    return parse(data)
                except ValidationError as error:
                    if self._is_newer(path, data):
                        return None
                    first = error.errors(include_input=False)[0]
                    problem = ": ".join([*(str(part) for part in first["loc"][: self._deep]), first["msg"]])
                except ValueError as error:
                    problem = str(error)
                self._reject(path, file, problem)
        except FileNotFoundError:
            pass
        except OSError as error:
            self.note(f"{path} cannot be used: {error.strerror or error}")
        return None

    def write(self, path: Path, text: str) -> None:
        """Write or replace a file. One that a newer version of ecoshare wrote stays as it is, and `notes` say so.

        Raises:
            UnfitEnvironment: No room, or no permission.
        """
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sweep(self._folder)
            with contextlib.suppress(FileNotFoundError):
                if self._is_newer(path, path.read_bytes()):
                    return
            atomic_write(path, text, sync=True, mode=0o600, concurrent=True)
        except OSError as error:
            raise UnfitEnvironment(f"cannot write {path}: {error.strerror or error}", HINT) from error

    def remove(self, path: Path) -> bool:
        """Remove a file; whether it was there.

        Raises:
            UnfitEnvironment: No permission.
        """
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise UnfitEnvironment(f"cannot remove {path}: {error.strerror or error}") from error
        return True

    def note(self, line: str) -> None:
        """Something to be told, once."""
        if line not in self.notes:
            self.notes.append(line)

    def _is_newer(self, path: Path, data: bytes) -> bool:
        version = _schema_version(data)
        if version > self._schema_version:
            self.note(f"{path} is of a newer version of ecoshare (schema {version}), and is neither used nor replaced")
        return version > self._schema_version

    def _reject(self, path: Path, file: BinaryIO, problem: str) -> None:
        what = f"{path} {self._damaged} ({problem})"
        try:
            if aside := _set_aside(path, file):
                self.note(f"{what}; it was renamed to {aside.name}")
        except OSError as error:
            self.note(f"{what}, and cannot be renamed: {error.strerror or error}")


def _schema_version(data: bytes) -> int:
    """What a file says of itself; 0 where it says nothing."""
    try:
        return _Header.model_validate_json(data).schema_version
    except ValidationError:
        return 0


class _Header(BaseModel):
    schema_version: StrictInt


def _sweep(folder: Path) -> None:
    """Remove what writers left that were killed."""
    for path in folder.glob(".*.new"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > STALE_S:
                path.unlink()


def _set_aside(path: Path, file: BinaryIO) -> Path | None:
    """Rename `path`, of which `file` is open; None where somebody else did, or has saved a new one by now."""
    for number in count(1):
        aside = path.with_name(f"{path.name}.corrupt" + (f"-{number}" if number > 1 else ""))
        with contextlib.suppress(FileExistsError):
            aside.touch(mode=0o600, exist_ok=False)  # of two who come at once each has a name of its own
            break
    try:
        path.replace(aside)
    except FileNotFoundError:
        aside.unlink()
        return None
    if os.path.samestat(aside.stat(), os.fstat(file.fileno())):
        return aside
    aside.replace(path)  # a good one, taken by mistake; if a third is there by now, either will do
    return None
