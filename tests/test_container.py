"""The first process of a container runs a command, and the Dockerfile names what there is."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from ecoshare.api.queue_client import Queue
from tests.devices.claims import FOUND_W, die_after_setting, limited, state_in
from tests.docs.examples import blocks
from tests.driver import COMPILER, FakeDriver, presets
from tests.queue.queues import UP, WAITS
from tests.warm import ROOT, ecoshare, wait_for

ENTRY = ROOT / "scripts" / "container_entry.py"
DOCKERFILE = ROOT / "Dockerfile"
PAGE = ROOT / "docs" / "quickstart.md"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc")
"""Words that make a command process 1 of a namespace of its own, as it is in a container."""

ORPHANS = """
import os, sys, time
reads, writes = os.pipe()
for _ in range(3):  # as daemons do: a fork of a fork, which loses its parent
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            os.write(writes, b"%d " % os.getpid())
            os._exit(0)
        os._exit(0)
    os.wait()
os.close(writes)
orphans = os.fdopen(reads).read().split()
def left():
    return [pid for pid in orphans if os.path.exists(f"/proc/{pid}")]
until_s = time.monotonic() + 10
while left() and time.monotonic() < until_s:
    time.sleep(0.02)
print("orphans", len(orphans), "left", len(left()), "parent", os.getppid())
"""

HEARS = """
import os, signal, sys, time
def heard(number, frame):  # a signal can come within a print, which a handler may not enter again
    os.write(1, f"heard {signal.Signals(number).name}\\n".encode())
    sys.exit(5)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, heard)
os.write(1, b"ready\\n")
while True:  # a signal just before a sleep does not end it, and is heard after it
    time.sleep(0.05)
"""


def environment(**more: str) -> dict[str, str]:
    """Environment in which `ecoshare` is that of these tests."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **more}


def entered(
    *words: str | Path,
    before: tuple[str, ...] = (),
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: int = subprocess.DEVNULL,
) -> subprocess.Popen[str]:
    """Command started as a container starts it."""
    return subprocess.Popen(
        [*before, sys.executable, str(ENTRY), *map(str, words)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env or environment(),
        cwd=cwd,
    )


def has_namespaces() -> bool:
    if shutil.which(NAMESPACE[0]) is None:
        return False
    return subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("sh", "-c", "exit 7"), 7),
        (("sh", "-c", "kill -TERM $$"), 128 + signal.SIGTERM),
        (("no-such-program",), 127),
        ((str(ROOT / "README.md"),), 126),
        ((), 2),
    ],
)
def test_the_exit_code_is_that_of_the_command(words: tuple[str, ...], code: int, tmp_path: Path) -> None:
    process = entered(*words, env=environment(ECOSHARE_STATE=str(tmp_path)))
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    assert "Traceback" not in errors and "restore" not in errors, "nothing is said if there is nothing to restore"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_command_gets_signals(number: signal.Signals, tmp_path: Path) -> None:
    (program := tmp_path / "hears.py").write_text(HEARS)
    process = entered(sys.executable, program, env=environment(ECOSHARE_STATE=str(tmp_path / "state")))
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(number)
    said, errors = process.communicate(timeout=60)
    assert (said, process.returncode) == (f"heard {number.name}\n", 5), errors


@pytest.mark.slow
@pytest.mark.parametrize("is_first", [False, True])
def test_orphans_do_not_stay_zombies(is_first: bool, tmp_path: Path) -> None:
    """The entry is process 1, or below another init. If it failed, a long queue would run out of process numbers."""
    if is_first and not has_namespaces():
        pytest.skip("this user may make no namespace of processes")
    (program := tmp_path / "orphans.py").write_text(ORPHANS)
    before = NAMESPACE if is_first else ()
    process = entered(sys.executable, program, before=before, env=environment(ECOSHARE_STATE=str(tmp_path / "state")))
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert said.split() == ["orphans", "3", "left", "0", "parent", "1" if is_first else str(process.pid)]


needs_driver = pytest.mark.skipif(COMPILER is None, reason="the fake driver is written in C")


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[FakeDriver]:
    """Driver of a GPU with a power limit of its administrator."""
    with FakeDriver(tmp_path, [presets.H200]) as made:
        limited(made, FOUND_W)
        yield made


@pytest.mark.slow
@needs_driver
def test_settings_are_restored_also_if_the_command_fails(driver: FakeDriver, tmp_path: Path) -> None:
    state = state_in(tmp_path)
    before = driver.gpu(0).settings()
    die_after_setting(driver, state, {"power_limit": 400.0})
    assert driver.gpu(0).settings() != before
    env = environment(**driver.environment, ECOSHARE_STATE=str(state.journals))
    process = entered("sh", "-c", "exit 3", env=env)
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 3 and "power_limit is 600 W" in errors and said == ""
    assert driver.gpu(0).settings() == before


@pytest.mark.slow
@needs_driver
def test_the_guard_of_a_killed_controller_comes_to_its_end(driver: FakeDriver, tmp_path: Path) -> None:
    """If it failed, the kernel would kill the guard with the container, before clocks and power are restored."""
    before = driver.gpu(0).settings()
    env = environment(**driver.environment, ECOSHARE_STATE=str(tmp_path / "state"))
    setter = ROOT / "tests" / "devices" / "setter.py"
    words = (sys.executable, setter, driver.gpu(0).uuid, "3", tmp_path)
    process = entered(*words, env=env, cwd=ROOT, stdin=subprocess.PIPE)  # it sets the GPU until its input is closed
    try:
        wait_for(lambda: driver.gpu(0).settings() != before or process.poll() is not None)
        (controller,) = [pid for pid in children(process.pid) if "setter.py" in command_line(pid)]
        os.kill(controller, signal.SIGKILL)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 128 + signal.SIGKILL, errors
        assert driver.gpu(0).settings() == before
        assert not list((tmp_path / "state").glob("*.json"))
    finally:
        process.kill()


def children(pid: int) -> list[int]:
    """All descendants of a process."""
    found = [pid]
    for each in found:
        try:
            found += map(int, Path(f"/proc/{each}/task/{each}/children").read_text().split())
        except OSError:
            continue
    return found[1:]


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


@pytest.mark.nightly
@pytest.mark.cold
@pytest.mark.timeout(300)
def test_a_queue_goes_on_in_another_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each container has process numbers and a host name of its own, and only the state folder stays."""
    if not has_namespaces():
        pytest.skip("this user may make no namespace of processes")
    monkeypatch.setenv("ECOSHARE_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("ECOSHARE_QUEUE", raising=False)
    (tmp_path / "waits.py").write_text(WAITS)
    go = tmp_path / "go"

    def container(name: str) -> subprocess.Popen[str]:
        own = f'hostname {name}; mount -t tmpfs -o size=64m tmpfs /dev/shm; exec "$@"'
        before = (*NAMESPACE, "--uts", "--mount", "--kill-child", "sh", "-c", own, "sh")
        words = ("ecoshare", "up", "--name", "test", "--resume", *UP)
        return entered(*words, before=before, cwd=tmp_path)

    def answers() -> bool:
        return ecoshare("status", "--queue", "test", cwd=tmp_path).returncode == 0

    with container("one") as first:
        wait_for(lambda: answers() or first.poll() is not None)
        for name in ("runs", "waits"):
            words = ("--name", name, *(() if name == "runs" else ("--after", "runs")), "--", str(go))
            done = ecoshare("submit", "--queue", "test", "waits.py", *words, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
        wait_for(lambda: Queue("test").job("runs").state == "running")
        first.kill()  # the namespace goes with it, as a container does at `docker kill`
    wait_for(lambda: ecoshare("status", "--queue", "test", cwd=tmp_path).returncode == 7)
    with container("two") as second:
        wait_for(lambda: answers() or second.poll() is not None)
        go.touch()
        assert [job.state for job in Queue("test").wait("runs", "waits")] == ["completed"] * 2
        assert Queue("test").job("runs").attempts == 2
        (init,) = [pid for pid in children(second.pid) if "container_entry" in command_line(pid)]
        os.kill(init, signal.SIGTERM)  # `docker stop` does so
        _, errors = second.communicate(timeout=60)
    assert second.returncode == 0, errors


# The Dockerfile, as far as it can be read here


def instructions() -> list[tuple[str, str]]:
    """Instructions of the Dockerfile with their arguments."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in text.splitlines() if line.strip()]


def test_the_dockerfile_copies_what_git_tracks() -> None:
    copied = [word for name, words in instructions() if name == "COPY" for word in words.split()[:-1]]
    assert copied
    for path in copied:
        listed = subprocess.run(
            ["git", "ls-files", "--stage", path], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert listed.stdout, f"{path} is not in the repository"
        if path.startswith("scripts/"):
            assert listed.stdout.startswith("100755"), "the container executes it"


def test_the_dockerfile_has_the_version_and_the_extras_of_the_project() -> None:
    text = DOCKERFILE.read_text()
    assert f'version="{PROJECT["version"]}"' in text and f'licenses="{PROJECT["license"]}"' in text
    extras = re.search(r"^ARG EXTRAS=(\S+)$", text, re.MULTILINE)
    assert extras is not None and set(extras[1].split(",")) <= PROJECT["optional-dependencies"].keys()
    pinned = (ROOT / "constraints.txt").read_text()
    assert "\ntorch==" in pinned and text.count("--constraint /opt/build/constraints.txt") == 2


@pytest.mark.nightly
def test_the_dockerfile_and_its_page_name_commands_that_exist() -> None:
    """Options are parsed before `--help` is printed, so a wrong one is an error."""
    given = dict(instructions())
    default: list[str] = json.loads(given["ENTRYPOINT"]) + json.loads(given["CMD"])
    entry, *words = default
    assert entry == "container-entry"
    console = "".join(block.text for block in blocks(PAGE) if block.language == "console").replace("\\\n", " ")
    lines = [line for line in console.splitlines() if re.match(r"\$ docker (compose exec|run) .* ecoshare ", line)]
    (composed,) = [yaml.safe_load(block.text) for block in blocks(PAGE) if block.mark("file") == "compose.yaml"]
    queue = composed["services"]["queue"]
    asked = queue["healthcheck"]["test"]
    assert len(lines) > 4 and asked[:2] == ["CMD", "ecoshare"]
    named = [words[1:], queue["command"], asked[2:]]
    named += [shlex.split(line.rpartition(" ecoshare ")[2]) for line in lines]
    for own in named:
        done = ecoshare(*(own[: own.index("--")] if "--" in own else own), "--help")
        assert done.returncode == 0, f"{own}: {done.stderr}"
