"""The key `on_end:`: a command that runs at the end of a job or of the run, and checks of that command."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Final, Literal

from ecoshare.errors import Mistake
from ecoshare.jobs import document
from ecoshare.jobs.document import Document
from ecoshare.jobs.quantities import quoted
from ecoshare.jobs.sweep import filled, names_in

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


OF_A_JOB: Final = ("job", "state", "run")
"""Placeholders in the command of a job: its name, its final state, and the run folder."""

OF_THE_RUN: Final = ("state", "run")
"""Placeholders in the command of the run: its final state and the run folder."""


def on_end_words(command: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Words of a command with its placeholders filled in; other braces stay."""
    return [filled(word, dict(values)) for word in command]


def on_end_mistakes(
    node: document.Node, known: Sequence[str], where: str, whole: Document, paths: JobPaths
) -> Iterator[Mistake]:
    """Mistakes under the key `on_end` of a mapping: a missing program, and unknown placeholders.

    Args:
        known: The placeholders that are valid in this command.
        where: Path of the mapping; empty for the document as a whole.
    """
    command = node.entries["on_end"][1] if isinstance(node, document.Mapping) and "on_end" in node.entries else None
    for place, word in enumerate(command.items if isinstance(command, document.Sequence) else ()):
        if not isinstance(word, document.Scalar):
            continue  # the schema reports this
        path = f"{where}.on_end[{place}]".lstrip(".")
        for unknown in sorted(names_in(word.text) - set(known)):
            yield whole.source.mistake(word.start, path, _unknown(unknown, known))
        if place == 0 and word.text.strip() and not names_in(word.text):
            try:
                paths.find("on_end", word.text)
            except ValueError as error:
                yield whole.source.mistake(word.start, path, str(error))


def _unknown(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name[:100], known, n=1)
    hint = f"did you mean '{{{close[0]}}}'?" if close else "known are " + ", ".join(f"'{{{each}}}'" for each in known)
    only = " here: the run is more than one job" if name in OF_A_JOB else ""
    return f"{quoted('{' + name + '}')} stands for nothing{only}; {hint}"
