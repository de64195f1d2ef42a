"""Build of the driver's libraries, once for all tests of a process."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parent
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


NVML, CUDA = "libnvidia-ml.so.1", "libcuda.so.1"
_SHARED = ("-shared", "-fPIC", "-fvisibility=hidden")


@functools.cache
def library() -> Path:
    """Path of NVML's library, beside that of CUDA in a folder that is removed at the end of this process.

    The libraries have no SONAME. With one, a process that loaded one by its path would get it for the real one later,
    too.
    """
    folder = _folder()
    for name, sources in ((NVML, ("nvml.c", "topology.c")), (CUDA, ("cuda.c",))):
        compile_c(folder / name, *_sources(*sources), options=_SHARED)
    return folder / NVML


@functools.cache
def old_cuda() -> Path:
    """Path of CUDA's library as of a driver before 570, alone in its folder."""
    built = _folder() / CUDA
    compile_c(built, *_sources("cuda.c"), options=(*_SHARED, "-DOLD_DRIVER"))
    return built


@functools.cache
def cuda_without_device() -> Path:
    """Path of CUDA's library of a machine without a device, alone in its folder."""
    built = _folder() / CUDA
    compile_c(built, SOURCES / "no_device.c", options=_SHARED)
    return built


def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="fake-nvml-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _sources(*front: str) -> list[Path]:
    return [SOURCES / name for name in (*front, "model.c", "shared.c")]


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
