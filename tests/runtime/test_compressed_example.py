"""The example with compressed exchanges: its baseline is plain DDP, and a profile keeps what it reports."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.running import EXAMPLES
from tests.runtime.test_profile import profile, saved

SCRIPT = EXAMPLES / "compressed.py"
ARGS = ("--steps", "12", "--report-every", "4", "--width", "64")

PLAIN = f"""
import sys
sys.path.insert(0, {str(EXAMPLES)!r})
sys.argv = ["compressed.py", *sys.argv[1:]]
import compressed
compressed.DistributedDataParallel.register_comm_hook = lambda *args: None
compressed.main()
"""
"""The example without any hook."""


def losses(*program: str) -> list[str]:
    """Test losses that rank 0 prints, to the last bit."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    line = [sys.executable, *program]
    ranks = [
        subprocess.Popen(line, env={**os.environ, **address, "RANK": rank}, stdout=subprocess.PIPE, text=True)
        for rank in "01"
    ]
    try:
        printed = [rank.communicate(timeout=100)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0]
    return [words.split()[6] for words in printed[0].splitlines()[1:]]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_hook_none_is_plain_ddp_bit_for_bit() -> None:
    """If it failed, the baseline of every comparison would be another training."""
    plain = losses("-c", PLAIN, *ARGS)
    assert len(plain) == 3 and all(float(loss) > 0 for loss in plain)
    assert losses(str(SCRIPT), *ARGS, "--hook", "none") == plain
    assert losses(str(SCRIPT), *ARGS, "--hook", "fp16") != plain


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_profile_keeps_bytes_and_accuracy(tmp_path: Path) -> None:
    args = ("--iterations", "10", "--", "--report-every", "2", "--width", "64", "--steps", "100000", "--hook")
    for hook in ("none", "fp16"):
        done = profile(tmp_path, str(SCRIPT), *args, hook)
        assert done.returncode == 0, done.stderr
    made = {each.origin.args[-1]: each for each in saved(tmp_path).values()}
    sent = {hook: each.reported["sent_bytes"][-1] for hook, each in made.items()}
    assert sent["none"] == 2 * (sent["fp16"] or 0.0)
    assert all(0.0 < (value or 0.0) <= 1.0 for value in made["fp16"].reported["accuracy"])
    files = [f"profiles/{made[hook].job_class}.json" for hook in ("none", "fp16")]
    shown = profile(tmp_path, files[1], "--compare", files[0])
    assert "sent_bytes, report" in shown.stdout and "accuracy, report" in shown.stdout and "verdict" in shown.stdout
