"""Resolve the paths of a job file."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path
from typing import Final, Literal

from ecoshare.jobs.quoted import quoted

PathKey = Literal["script", "cwd", "python", "on_end", "trace"]

PATH_KEYS: Final[tuple[PathKey, ...]] = ("script", "cwd", "python")


class JobPaths:
    """Finds the scripts, working folders, programs and traces that a job file names.

    Paths become absolute but keep their links: the interpreter of a virtual environment is a link that must
    be called by its own name. Each path is looked up once, since ten thousand jobs often share one script.

    Attributes:
        folder: Absolute path of the job file's folder; relative paths start there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._found: dict[tuple[PathKey, str], Path | ValueError] = {}

    def find(self, key: PathKey, text: str) -> Path:
        """Absolute path for the value `text` of this key.

        Raises:
            ValueError: The path does not exist, is of the wrong kind, or is not accessible.
        """
        if (key, text) not in self._found:
            try:
                self._found[key, text] = self._look_up(key, text)
            except ValueError as error:
                self._found[key, text] = error
        found = self._found[key, text]
        if isinstance(found, ValueError):
            raise ValueError(*found.args)
        return found

    def under_cwd(self, script: str, cwd: str) -> str:
        """Hint to append to the error for a missing script; empty unless the script is in `cwd`."""
        with contextlib.suppress(OSError):
            if not Path(script).is_absolute() and (self.folder / cwd / script).is_file():
                there = quoted(str(Path(cwd, script)))
                return f" (scripts are relative to the job file, not to 'cwd'); did you mean {there}?"
        return ""

    def _look_up(self, key: PathKey, text: str) -> Path:
        path = self.folder / text
        if key in ("python", "on_end") and os.sep not in text:
            # A bare name is looked up on the PATH, as in a shell; a path is not.
            program = shutil.which(text)
            if program is None:
                raise ValueError(f"no program {quoted(text)} on the PATH")
            return Path(program).absolute()
        try:
            mode = path.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            raise ValueError(self._missing(key, text)) from None
        except OSError as error:
            reason = os.strerror(error.errno).lower() if error.errno else "it cannot be found"
            raise ValueError(f"{quoted(text)}: {reason}") from None
        if key == "cwd" and not stat.S_ISDIR(mode):
            raise ValueError(f"{quoted(text)} is not a folder")
        if key != "cwd" and stat.S_ISDIR(mode):
            raise ValueError(f"{quoted(text)} is a folder, not a file")
        if key != "cwd" and not stat.S_ISREG(mode):
            raise ValueError(f"{quoted(text)} is not a regular file")
        is_read = key in ("script", "trace")
        if not os.access(path, os.R_OK if is_read else os.X_OK):
            raise ValueError(f"{quoted(text)} is not {'readable' if is_read else 'executable'} for you")
        return path

    def _missing(self, key: PathKey, text: str) -> str:
        if text.startswith("~"):
            return f"'~' is not expanded here; write the whole path instead of {quoted(text)}"
        where = "" if Path(text).is_absolute() else f" in {str(self.folder)!r}"
        return f"no {'folder' if key == 'cwd' else 'file'} {quoted(text)}{where}"
