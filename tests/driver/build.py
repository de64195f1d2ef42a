"""Builds the driver's library, once for all tests of a process."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parent
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


@functools.cache
def library() -> Path:
    """The library, in a folder of its own that is removed at the end of this process.

    It has no SONAME: with one, a test that loaded it by its path would have it found for the real one ever after.
    """
    folder = Path(tempfile.mkdtemp(prefix="fake-nvml-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    built = folder / "libnvidia-ml.so.1"
    compile_c(built, *sorted(SOURCES.glob("*.c")), options=("-shared", "-fPIC", "-fvisibility=hidden"))
    return built


def compile_c(output: Path, *sources: Path, options: tuple[str, ...] = ()) -> None:
    """Compile C files; what the compiler has to say is shown when it fails."""
    if COMPILER is None:
        raise FileNotFoundError("there is no C compiler on the path")
    command: list[str | Path] = [
        COMPILER,
        "-O1",
        "-Wall",
        f"-I{SOURCES}",
        *options,
        "-o",
        output,
        *sources,
        "-lm",
        "-pthread",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
