"""The folder of journals. A run that looks in another folder would leave a device as a dead run has set it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ecoshare.devices.control.state_folder import DeviceLock, described, in_use
from ecoshare.lane import interpreter
from ecoshare.reporting import machine_check
from tests.warm import ROOT, ecoshare, wait_for

USER = 65534
"""User that is not root and needs no entry in the password database."""

_JOURNALS = """
import json, os, sys
from ecoshare.devices.control.state_folder import StateFolder
os.seteuid(int(sys.argv[1]))
found = {}
for words in sys.argv[2:]:
    for name in ("ECOSHARE_STATE", "XDG_STATE_HOME"):
        os.environ.pop(name, None)
    os.environ.update(json.loads(words))
    found[words] = str(StateFolder.of_this_user().journals)
print(json.dumps(found))
"""

EXPECTED = {
    "unset": ({}, "/h/.local/state/ecoshare"),
    "empty": ({"XDG_STATE_HOME": ""}, "/h/.local/state/ecoshare"),
    "set": ({"XDG_STATE_HOME": "/x y"}, "/x y/ecoshare"),
    "ours": ({"ECOSHARE_STATE": "/s", "XDG_STATE_HOME": "/x"}, "/s"),
    "ours, empty": ({"ECOSHARE_STATE": "", "XDG_STATE_HOME": "/x"}, "/x/ecoshare"),
    # The XDG specification has a relative path ignored: journals would lie where each run was started.
    "relative": ({"XDG_STATE_HOME": "relative"}, "/h/.local/state/ecoshare"),
}


def journals(user: int) -> list[str]:
    """State folder in each environment of `EXPECTED`, for a process of this user."""
    given = [json.dumps(environment) for environment, _ in EXPECTED.values()]
    done = subprocess.run(
        [sys.executable, "-c", _JOURNALS, str(user), *given],
        env={**os.environ, "HOME": "/h"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    return [found[each] for each in given]


def test_a_users_journals_are_in_the_users_state_folder() -> None:
    user = os.geteuid() or USER
    assert journals(user) == [expected for _, expected in EXPECTED.values()]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be root")
def test_roots_journals_are_the_machines_whatever_the_home_is() -> None:
    """Else `sudo ecoshare restore` would look in the home of the user that called it."""
    ours = [environment.get("ECOSHARE_STATE") for environment, _ in EXPECTED.values()]
    assert journals(0) == [own or "/var/lib/ecoshare" for own in ours]


def test_each_page_that_names_the_state_folder_names_that_of_root() -> None:
    """Before, the commands of the pages led root to a folder that does not exist."""
    naming = [each for each in (ROOT / "docs").glob("*.md") if ".local/state/ecoshare" in each.read_text()]
    assert naming and [each.name for each in naming if "/var/lib/ecoshare" not in each.read_text()] == []


def test_doctor_prints_the_folders_of_its_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECOSHARE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("ECOSHARE_PROFILES", "/proc/nowhere")
    monkeypatch.chdir(tmp_path)
    found = {each.subject: each for each in machine_check._folders()}
    assert list(found) == ["state", "locks", "profiles", "runs"]
    assert found["state"].evidence.startswith(f"{tmp_path / 'state'}: queues")
    assert found["runs"].evidence.startswith(f"{tmp_path / 'ecoshare-runs'}: ")
    assert found["profiles"].remedy.startswith("ECOSHARE_PROFILES") or os.access("/proc", os.W_OK)


def put(kind: str, path: Path) -> None:
    """Leave something in the folder of locks, as another user may."""
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to(path.parent / "elsewhere")
        case "link to a fifo":
            os.mkfifo(path.parent / "fifo")
            path.symlink_to("fifo")


@pytest.mark.parametrize("kind", ["fifo", "folder", "link", "link to a fifo"])
def test_a_file_of_another_user_is_no_lock_and_blocks_no_run(tmp_path: Path, kind: str) -> None:
    """Else any local user could hang the runs of all users with a FIFO."""
    path = tmp_path / "ecoshare-cpu.lock"
    put(kind, path)
    with pytest.raises(OSError, match=r"no regular file|Too many levels|symbolic"):
        DeviceLock(path)
    assert in_use(path) is None
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["ecoshare-cpu.lock", "ecoshare-cpu.queue", "ecoshare-cpu.0123.run"])
def test_a_run_says_what_is_in_its_way_or_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    state = tmp_path / "state"
    state.mkdir()
    monkeypatch.setenv("ECOSHARE_STATE", str(state))
    put("fifo", state / name)
    (tmp_path / "train.py").write_text("print('done')\n")
    done = ecoshare("run", "train.py", "--device", "cpu", "--no-report", cwd=tmp_path)
    assert "Traceback" not in done.stderr
    if name.endswith(".queue"):
        assert done.returncode == 4
        assert f"error: cannot lock {state / name}: it is no regular file" in done.stderr
        assert "ECOSHARE_STATE" in done.stderr
    else:
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("line", "shown", "said"),
    [
        (["-c", "import time; time.sleep(60)"], b"-c", "(python -c ...)"),
        (
            interpreter.program_command("ecoshare.runtime.nodes.guard", "token", "/nowhere", "0")[1:],
            b"ecoshare: guard",
            "(ecoshare: guard)",
        ),
    ],
)
def test_the_holder_of_a_lock_is_named_without_its_program(line: list[str], shown: bytes, said: str) -> None:
    process = subprocess.Popen([sys.executable, *line], stdin=subprocess.PIPE)
    wait_for(lambda: shown in Path(f"/proc/{process.pid}/cmdline").read_bytes())
    assert described(process.pid).endswith(f"process {process.pid} {said}")
    process.kill()
    process.communicate()
