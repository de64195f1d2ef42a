"""Readable files that many runs share: a bad file becomes a note, a write is atomic, a damaged file is set aside.

There is no lock, since a stopped process could hold it for ever. The last writer wins, which is sound: both measured.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, StrictInt, ValidationError

from ecoshare.base import documents
from ecoshare.base.disk import atomic_write
from ecoshare.errors import UnfitEnvironment
from ecoshare.knowledge.profiles_folder import HINT

CLASS_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
"""Name of a job class, which is also the name of its files."""

STALE_S = 3600.0
"""Age (s) from which a temporary file is taken for one that a killed writer left."""

Content = TypeVar("Content")


class KeptFiles:
    """The files of one kind in a folder, which need not exist yet.

    Attributes:
        notes: Reasons why files cannot be used, one line each, for the caller to show.
    """

    def __init__(self, folder: Path, schema_version: int, damaged: str, deep: int) -> None:
        """Prepare the access; nothing is read yet.

        Args:
            folder: Folder of the files.
            schema_version: Newest schema version that this program can use.
            damaged: Words for a file that is not of this kind, such as `is no result of tuning`.
            deep: Number of parts of a mistake's place that a note shows.
        """
        self.notes: list[str] = []
        self._folder, self._schema_version, self._damaged, self._deep = folder, schema_version, damaged, deep

    def read(self, path: Path, parse: Callable[[bytes], Content]) -> Content | None:
        """Content of a file; None if there is no file that this version can use. A damaged file is set aside.

        Args:
            path: Path of the file.
            parse: Turns bytes into content. It raises a `ValidationError`, or a `ValueError` that says what is wrong.
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

    def make(self) -> None:
        """Make the folder, and check that files can be written there.

        Raises:
            UnfitEnvironment: The folder cannot be made, or cannot be written to.
        """
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._folder):
                pass
        except OSError as error:
            raise UnfitEnvironment(f"cannot write to {self._folder}: {error.strerror or error}", HINT) from error

    def write(self, path: Path, text: str) -> None:
        """Write or replace a file. A file from a newer version of ecoshare stays as it is, and `notes` says so.

        Raises:
            UnfitEnvironment: The file cannot be written: no room, or no permission.
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
        """Remove a file; return whether it was there.

        Raises:
            UnfitEnvironment: The file cannot be removed: no permission.
        """
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise UnfitEnvironment(f"cannot remove {path}: {error.strerror or error}") from error
        return True

    def note(self, line: str) -> None:
        """Add a line to `notes`, once."""
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


class OfClass(BaseModel):
    """Content of the file of a job class."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    schema_version: int
    job_class: str


ClassContent = TypeVar("ClassContent", bound=OfClass)


class ClassFiles(Generic[ClassContent]):
    """The files of one kind in a folder, one for each class and with its name."""

    def __init__(self, folder: Path, content: type[ClassContent], schema_version: int, damaged: str, deep: int) -> None:
        """Prepare the access; nothing is read yet. See `KeptFiles` for the rest.

        Args:
            content: Model of the content.
        """
        self._folder, self._content = folder, content
        self._kept = KeptFiles(folder, schema_version, damaged, deep)

    @property
    def notes(self) -> list[str]:
        """Reasons why files cannot be used, one line each, for the caller to show."""
        return self._kept.notes

    def find(self, job_class: str) -> ClassContent | None:
        """Content of a class, always from the disk; None if there is none that this version can use."""
        return self._read(self._file(job_class)) if CLASS_NAME.fullmatch(job_class) else None

    def all(self) -> list[ClassContent]:
        """Contents of all classes that this version can use, by class."""
        try:
            paths = sorted(self._folder.glob("[!.]*.json"))
        except OSError as error:
            self._kept.note(f"{self._folder} cannot be read: {error.strerror or error}")
            return []
        return [content for path in paths if (content := self._read(path)) is not None]

    def write(self, content: ClassContent) -> None:
        """Write or replace the file of a class. One from a newer version stays as it is, and `notes` says so.

        Raises:
            UnfitEnvironment: The file cannot be written: no room, or no permission.
        """
        self._kept.write(self._file(content.job_class), content.model_dump_json(indent=1) + "\n")

    def forget(self, job_class: str) -> ClassContent | None:
        """Remove the file of a class; return its content, or None if there was none.

        Raises:
            UnfitEnvironment: The file cannot be removed: no permission.
        """
        found = self.find(job_class)
        return found if found is not None and self._kept.remove(self._file(job_class)) else None

    def _file(self, job_class: str) -> Path:
        return self._folder / f"{job_class}.json"

    def _read(self, path: Path) -> ClassContent | None:
        def parse(data: bytes) -> ClassContent:
            content = self._content.model_validate_json(data)
            if content.job_class != path.stem:
                raise ValueError("it is that of another class")
            return content

        return self._kept.read(path, parse)


def check_class_name(job_class: str) -> None:
    """Check that a class can have files.

    Raises:
        ValueError: The name of the class cannot be a file name here.
    """
    if not CLASS_NAME.fullmatch(job_class):
        raise ValueError(f"not the name of a class: {job_class!r}")


def _schema_version(data: bytes) -> int:
    """Schema version that a file states; 0 if it states none."""
    try:
        return _Header.model_validate_json(data).schema_version
    except ValidationError:
        return 0


class _Header(BaseModel):
    schema_version: StrictInt


def _sweep(folder: Path) -> None:
    """Remove temporary files that killed writers left."""
    for path in folder.glob(".*.new"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > STALE_S:
                path.unlink()


def _set_aside(path: Path, file: BinaryIO) -> Path | None:
    """Rename `path`, open as `file`, and return the new path; None if another process renamed or replaced it."""
    for number in count(1):
        aside = path.with_name(f"{path.name}.corrupt" + (f"-{number}" if number > 1 else ""))
        with contextlib.suppress(FileExistsError):
            aside.touch(mode=0o600, exist_ok=False)  # two processes at once get different names
            break
    try:
        path.replace(aside)
    except FileNotFoundError:
        aside.unlink()
        return None
    if os.path.samestat(aside.stat(), os.fstat(file.fileno())):
        return aside
    aside.replace(path)  # a good file, taken by mistake; if there is a third by now, either will do
    return None
