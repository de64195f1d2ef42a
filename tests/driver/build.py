"""Build of the driver's library, once for all tests of a process."""

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
    """Path of the library, in a folder of its own that is removed at the end of this process.

    The library has no SONAME. With one, a process that loaded it by its path would get it for the real one later, too.
    """
    folder = Path(tempfile.mkdtemp(prefix="fake-nvml-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    built = folder / "libnvidia-ml.so.1"
    compile_c(built, *sorted(SOURCES.glob("*.c")), options=("-shared", "-fPIC", "-fvisibility=hidden"))
    return built


def compile_c(output: Path, *sources: Path, options: tuple[str, ...] = ()) -> None:
    """Compile C files; the messages of the compiler are shown if it fails."""
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
