"""The folder of journals: a run that looks in another one leaves a device as a dead run has set it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

USER = 65534
"""A user that is not root and needs no entry in the password database."""

_JOURNALS = """
import json, os, sys
from ecoshare.hardware.state import StateFolder
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
    """The folder in each environment of `EXPECTED`, for a process of this user."""
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
