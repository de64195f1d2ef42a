"""Commands of ecoshare for tests: forked from a zygote, or started as by a user's shell."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ecoshare.lane import interpreter
from ecoshare.runtime.nodes.warm_server import SPIN_COUNT
from tests.warm.client import ZygoteChild
from tests.warm.server import WarmServer, fork

ROOT = Path(__file__).parents[2]
COLD = [sys.executable, "-m", "ecoshare"]
"""Words of the real command, which loads everything."""

_READ_WHILE_LOADING = ("OMP_", "MKL_", "KMP_", "GOMP_", "PYTHON", "TORCH", "LD_PRELOAD")
"""Environment variables that libraries read while they are loaded; a process that has loaded them ignores these."""

_SET_BY_LIBRARIES = {"KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK", "TORCHINDUCTOR_CACHE_DIR"}
"""Variables that libraries set in their process when they are imported, and that change nothing for others."""

_AS_IT_BEGAN = dict(os.environ)
"""Environment of this process at its start, in which the zygotes are started, before tests are imported."""


_LOAD_S = 3.0
"""Time (s) that a real server takes to load torch, or more."""


class Started:
    """Started command with its output.

    Attributes:
        pid: Process number.
        words: Words after `ecoshare`.
    """

    def __init__(
        self,
        *words: str | os.PathLike[str],
        cwd: str | os.PathLike[str] | None = None,
        environment: Mapping[str, str] | None = None,
        new_session: bool = False,
        cold: bool = False,
        loads: bool = False,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        script: Path | None = None,
    ) -> None:
        """Start the command.

        Args:
            script: A Python script to start instead of `ecoshare`; the words are its arguments.
            environment: Whole environment; by default that of this process.
            cold: Start the real command, instead of forking one that has loaded everything.
            loads: Let its lane server take seconds to be ready, as one that loads torch does.
            stdin: Descriptor for standard input, which is empty by default.
            stdout: Descriptor for standard output, which is kept by default; `stderr` likewise.
        """
        self.words = [os.fspath(word) for word in words]
        environment = dict(os.environ if environment is None else environment)
        self._out, self._err = os.memfd_create("stdout"), os.memfd_create("stderr")
        nothing = os.open(os.devnull, os.O_RDONLY)
        given = (stdin, stdout, stderr)
        files = [
            own if each is None else each for own, each in zip((nothing, self._out, self._err), given, strict=True)
        ]
        self._process: ZygoteChild | _Spawned
        if cold:
            self._process = _Spawned(self.words, files, cwd, environment, new_session)
        else:
            request = {
                "words": self.words,
                "script": None if script is None else str(script),
                "cwd": os.fspath(cwd or Path.cwd()),
                "environment": environment,
                "new_session": new_session,
                "servers": None if _loads_otherwise(environment) else [_zygote("server"), _LOAD_S if loads else 0.0],
            }
            self._process = ZygoteChild(_zygote("command"), request, files)
        os.close(nothing)
        self.pid = self._process.pid
        self.returncode: int | None = None
        _started.append(self)

    def poll(self) -> int | None:
        """Exit code, negative for a signal; None while the command runs."""
        if self.returncode is None:
            self.returncode = self._process.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; returns the exit code.

        Raises:
            subprocess.TimeoutExpired: It runs on.
        """
        if self.returncode is None:
            self.returncode = self._process.wait(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(["ecoshare", *self.words], timeout or 0.0, self.stdout, self.stderr)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end; returns the output.

        Raises:
            subprocess.TimeoutExpired: It runs on.
        """
        self.wait(timeout)
        return self.stdout, self.stderr

    def done(self) -> subprocess.CompletedProcess[str]:
        """Wait for the end; returns the finished command."""
        code = self.wait()
        if self in _started:  # a test that asks again and again would keep the files of each
            _started.remove(self)
        return subprocess.CompletedProcess(["ecoshare", *self.words], code, self.stdout, self.stderr)

    @property
    def written(self) -> bytes:
        """Bytes on standard output so far."""
        return _content(self._out)

    @property
    def stdout(self) -> str:
        """Text on standard output so far."""
        return self.written.decode()

    @property
    def stderr(self) -> str:
        """Text on standard error so far."""
        return _content(self._err).decode()

    def send_signal(self, number: int) -> None:
        """Send a signal to the command."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """Send SIGKILL to the command."""
        self.send_signal(signal.SIGKILL)

    def __del__(self) -> None:
        for each in (self._out, self._err):
            with contextlib.suppress(OSError):
                os.close(each)


_started: list[Started] = []


@contextlib.contextmanager
def ending_what_runs() -> Iterator[None]:
    """At exit, kill commands that were started meanwhile and still run.

    A run that a failed test left would keep its devices from the runs of all tests after it.
    """
    before = len(_started)
    yield
    for each in _started[before:]:
        if each.poll() is None:
            each.kill()
            each.wait()
    del _started[before:]


def ecoshare(
    *words: str | os.PathLike[str],
    cwd: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command of ecoshare to its end."""
    return Started(*words, cwd=cwd, environment=environment).done()


def fork_script(script: Path, *words: str, cwd: Path, environment: Mapping[str, str]) -> tuple[int, bytes] | None:
    """Exit code and stdout of `python script words`, forked from an interpreter that has loaded torch and no ecoshare.

    None if torch would have loaded differently in that environment.
    """
    if _loads_otherwise(environment):
        return None
    request = {"words": words, "script": str(script), "cwd": str(cwd), "environment": dict(environment)}
    with Path(os.devnull).open("r+b") as nothing, tempfile.TemporaryFile() as out:
        files = [nothing.fileno(), out.fileno(), nothing.fileno()]
        code = ZygoteChild(_zygote("script"), {**request, "new_session": False}, files).wait()
        assert code is not None
        out.seek(0)
        return code, out.read()


def spawned(token: str, log: Path) -> WarmServer:
    """Server in place of `ecoshare.runtime.nodes.warm_server.Spawned`, for a test that runs jobs in its own process."""
    return WarmServer(_zygote("server"), 0.0, token, log)


def fork_server(token: str, log: Path, channel: socket.socket) -> ZygoteChild:
    """Lane server for a test that is its controller, at the other end of `channel`."""
    return fork(_zygote("server"), token, log, channel)


class _Spawned:
    """Process of the real command, with the methods of `ZygoteChild`."""

    def __init__(
        self,
        words: list[str],
        files: list[int],
        cwd: str | os.PathLike[str] | None,
        environment: dict[str, str],
        new_session: bool,
    ) -> None:
        stdin, stdout, stderr = files
        self._process = subprocess.Popen(
            ["env", "--default-signal=HUP", *COLD, *words],  # tests in the background may ignore it, as `nohup` does
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env=environment,
            start_new_session=new_session,
        )
        self.pid = self._process.pid
        self.send_signal = self._process.send_signal

    def wait(self, timeout_s: float | None = None) -> int | None:
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None


def _loads_otherwise(environment: Mapping[str, str]) -> bool:
    """Whether libraries would behave differently if they were loaded in this environment, not in that of the tests."""
    names = (environment.keys() | _AS_IT_BEGAN.keys()) - _SET_BY_LIBRARIES
    return any(
        environment.get(name) != _AS_IT_BEGAN.get(name) for name in names if name.startswith(_READ_WHILE_LOADING)
    )


def share_zygotes(*kinds: str) -> None:
    """Start the zygotes of these kinds for this process and for the workers that it will start."""
    os.environ[_SHARED] = tempfile.mkdtemp(prefix="ecoshare-tests-")
    for kind in kinds:
        _zygote(kind)


_SHARED = "ECOSHARE_TESTS_ZYGOTES"
"""Variable with the folder of the sockets of zygotes that another process of the tests has started."""


@functools.cache
def _zygote(kind: str) -> str:
    """Path at which a zygote of this kind listens."""
    if (shared := Path(os.environ.get(_SHARED, ""), kind)).is_socket():
        return str(shared)
    folder = Path(os.environ.get(_SHARED) or tempfile.mkdtemp(prefix="ecoshare-tests-"))
    end, theirs = os.pipe()
    # Threads that wait must not burn the processors that others compute on: read when torch is loaded, and by no job.
    environment = {"GOMP_SPINCOUNT": SPIN_COUNT, **_AS_IT_BEGAN}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / kind))
        listener.listen(64)
        if kind == "server":
            # The very start of a real server, so that jobs find the modules and the paths of one.
            line = interpreter.program_command("", "")
            line[2] = line[2].partition("from importlib import import_module")[0] + _BY_PATH
            line[4:] = [str(ROOT / "tests/warm/zygote.py"), kind, str(listener.fileno())]
        elif kind == "script":
            program = "import sys; from importlib.util import module_from_spec, spec_from_file_location" + _BY_PATH
            line = [sys.executable, "-c", program, "", str(ROOT / "tests/warm/zygote.py"), kind, str(listener.fileno())]
        else:
            program = "import sys; sys.path[0] = sys.argv[1]; from tests.warm import zygote; "
            program += f"zygote.main({kind!r}, {listener.fileno()})"
            line = [sys.executable, "-c", program, str(ROOT)]
        process = subprocess.Popen(
            line,
            stdin=end,
            stdout=subprocess.DEVNULL,
            env=environment,
            pass_fds=[listener.fileno()],
            cwd="/",
            start_new_session=True,
        )
    os.close(end)

    def over(pid: int = os.getpid()) -> None:
        if os.getpid() == pid:  # not in what a test has forked
            os.close(theirs)
            process.wait()
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(over)
    return str(folder / kind)


_BY_PATH = """
spec = spec_from_file_location("_zygote", sys.argv[2])
sys.modules["_zygote"] = module = module_from_spec(spec)
spec.loader.exec_module(module)
module.main(sys.argv[3], int(sys.argv[4]))
"""


def wait_for(
    reached: Callable[[], object], within_s: float = 180.0, otherwise: Callable[[], object] = lambda: "not reached"
) -> None:
    """Wait until a condition holds; tests wait for conditions rather than for times.

    A look that takes long is followed by a long pause, or commands that look would take the processors from what they
    wait for.

    Args:
        otherwise: Message if the condition does not come true in time.
    """
    until_s = (looked_s := time.monotonic()) + within_s
    while not reached():
        assert time.monotonic() < until_s, (f"within {within_s} s", otherwise())
        time.sleep(min(max(0.005, 2.0 * (time.monotonic() - looked_s)), 1.0))
        looked_s = time.monotonic()


def _content(file: int) -> bytes:
    return os.pread(file, os.fstat(file).st_size, 0)
