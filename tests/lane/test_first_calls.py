"""First calls that two threads must not make at once."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

LOOKS = """
import json, os
import torch
from ecoshare.lane import hooks

before, threads = torch.get_rng_state(), len(os.listdir("/proc/self/task"))
hooks.call_once()
print(json.dumps({
    "started": len(os.listdir("/proc/self/task")) - threads,
    "same": torch.equal(before, torch.get_rng_state()),
    "dtype": str(torch.get_default_dtype()),
}))
"""


@pytest.mark.nightly
def test_they_start_no_thread_and_draw_no_number() -> None:
    """Else a process that has made them could not be forked, or a script's random draws would change."""
    done = subprocess.run([sys.executable, "-c", LOOKS], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"started": 0, "same": True, "dtype": "torch.float32"}
