"""Event logs of real runs: read, and replayed. Every other test that runs jobs checks the replay, too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ecoshare.base.device import Device
from ecoshare.core.events import Config, RunOpened, StopRequested
from ecoshare.errors import UsageError
from ecoshare.record import event_log
from tests.runtime.running import SCRIPTS, run, slow_steps

REPLAY = """
import sys
from pathlib import Path
from ecoshare.record import event_log
steps = list(event_log.replay(event_log.read(Path(sys.argv[1]))))
assert all(logged == now for _, logged, now in steps), [step for step in steps if step[1] != step[2]]
print(len(steps), sum(len(now) for _, _, now in steps), "torch" in sys.modules)
"""


@pytest.mark.nightly
def test_a_recorded_run_replays_without_torch(tmp_path: Path) -> None:
    jobs = [slow_steps(f"j{n}", 20 + 10 * n, 10, priority=n, iterations=20 + 10 * n) for n in range(5)]
    fails = {"name": "fails", "script": str(SCRIPTS / "raises.py"), "retries": 1, "arrival": "1 s"}
    done = run(tmp_path, *jobs, fails, options=("--policy", "priority", "--jobs-per-lane", "3"))
    replayed = subprocess.run(
        [sys.executable, "-c", REPLAY, str(done.folder / "events.jsonl")], capture_output=True, text=True, check=False
    )
    assert replayed.returncode == 0, replayed.stderr
    events, commands, torch_loaded = replayed.stdout.split()
    assert int(events) >= 20 and int(commands) >= 8 and torch_loaded == "False"


def test_a_cut_last_line_is_ignored_and_a_broken_one_named(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    written = event_log.EventLog(path)
    written.write(RunOpened(0.0, 1, Config("fifo"), (Device("cpu", "here", 1),)), [])
    written.write(StopRequested(1.0, False), [])
    written.close()
    with path.open("a") as file:
        file.write('{"event": "Stop')
    assert len(list(event_log.read(path))) == 2
    event_log.EventLog(path).close()
    assert path.read_text().endswith("false}\n")
    with path.open("a") as file:
        file.write('{"event": "Nothing"}\n')
    with pytest.raises(UsageError, match=r"events.jsonl:3: not an entry"):
        list(event_log.read(path))
