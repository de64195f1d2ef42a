"""Commands that are launchers, and commands that only look like one."""

from __future__ import annotations

import shlex

import pytest

from ecoshare.lane.child_processes import launcher_in, launcher_of, rank_in


@pytest.mark.parametrize(
    ("script", "module", "args", "launcher"),
    [
        (None, "torch.distributed.run", ["--nproc-per-node", "2", "train.py"], "torchrun"),
        (None, "torch.distributed.launch", ["train.py"], "torch.distributed.launch"),
        (None, "accelerate.commands.launch", ["train.py"], "accelerate"),
        (None, "accelerate.commands.accelerate_cli", ["launch", "train.py"], "accelerate"),
        (None, "accelerate.commands.accelerate_cli", ["config"], ""),
        (None, "deepspeed.launcher.runner", ["train.py"], "deepspeed"),
        ("/venv/bin/torchrun", None, ["train.py"], "torchrun"),
        ("/venv/bin/accelerate", None, ["launch", "train.py"], "accelerate"),
        ("/venv/bin/accelerate", None, ["env"], ""),
        ("/venv/bin/horovodrun", None, [], "horovodrun"),
        ("/home/me/train.py", None, ["--launcher", "torchrun"], ""),
        ("/home/me/deepspeed.py", None, [], ""),
        (None, "mypackage.train", [], ""),
        (None, None, [], ""),
    ],
)
def test_a_job_is_a_launcher_by_its_program(
    script: str | None, module: str | None, args: list[str], launcher: str
) -> None:
    assert launcher_of(script, module, args) == launcher


@pytest.mark.parametrize(
    ("command", "launcher"),
    [
        ("torchrun --nproc-per-node 2 train.py", "torchrun"),
        ("/venv/bin/python -m torch.distributed.run train.py", "torchrun"),
        ("python3.11 -u -X dev -m torch.distributed.run train.py", "torchrun"),
        ("python -u /venv/bin/accelerate launch train.py", "accelerate"),
        ("env OMP_NUM_THREADS=1 nohup torchrun train.py", "torchrun"),
        ("CUDA_VISIBLE_DEVICES=0 torchrun train.py", "torchrun"),
        ("bash -c 'cd /data && torchrun train.py'", "torchrun"),
        ("python train.py --launcher torchrun", ""),
        ("python -m pip install deepspeed", ""),
        ("which torchrun", ""),
        ("bash run.sh", ""),
        ("python", ""),
        ("python -m", ""),
        ("", ""),
    ],
)
def test_a_command_line_starts_a_launcher_by_its_program(command: str, launcher: str) -> None:
    assert launcher_in(shlex.split(command)) == launcher


def test_a_text_for_a_shell_is_read_command_by_command() -> None:
    assert launcher_in("cd /data && torchrun train.py; echo torchrun") == "torchrun"
    assert launcher_in("echo torchrun && ls") == ""
    assert launcher_in("echo 'no end") == "", "the shell says what is wrong with it"


def test_a_rank_has_another_number_than_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it failed, every helper of a job on a cluster, which has a rank itself, would count as a rank."""
    monkeypatch.setenv("RANK", "3")
    assert rank_in({"RANK": "3", "HOME": "/"}) == ""
    assert rank_in({"RANK": "3", "LOCAL_RANK": "1"}) == "LOCAL_RANK"
    assert rank_in({"HOME": "/"}) == rank_in(None) == ""
