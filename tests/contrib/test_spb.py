"""Partial backpropagation of gangs: its averages, its mistakes, and the words of the plan on it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.contrib.policies.jigsaw import busy_share
from ecoshare.contrib.spb import depth, layers_within
from tests.warm import ROOT, ecoshare

RANK = Path(__file__).parent / "spb_rank.py"


@given(ranks=st.integers(1, 12), step=st.integers(0, 100), layers=st.integers(1, 40))
def test_one_rank_of_each_step_reaches_all_layers_and_every_rank_reaches_the_last(
    ranks: int, step: int, layers: int
) -> None:
    """Otherwise a layer would have no gradient in some step, or one depth would stay with one rank."""
    depths = [depth(rank, ranks, step) for rank in range(ranks)]
    assert sorted(depths) == list(range(1, ranks + 1))
    assert sorted(depth(0, ranks, step + each) for each in range(ranks)) == sorted(depths)
    reached = [layers_within(layers, rank, ranks, step) for rank in range(ranks)]
    assert max(reached) == layers and min(reached) >= 1


@given(ranks=st.integers(1, 12), backward=st.floats(0.0, 1.0))
def test_the_busy_part_is_the_mean_over_the_depths(ranks: int, backward: float) -> None:
    """The policy would else place gangs by other lengths than theirs."""
    lengths = [1.0 - backward + backward * depth(rank, ranks, 0) / ranks for rank in range(ranks)]
    assert busy_share(ranks, backward) == pytest.approx(sum(lengths) / ranks)


@pytest.mark.slow
def test_ranks_average_over_those_that_have_a_gradient_and_stay_equal_bit_for_bit() -> None:
    """If it failed, the weights of the ranks would drift apart, or the early layers would learn too little."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "3", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(RANK)], env={**common, "RANK": str(rank)}, cwd=ROOT, text=True, stdout=subprocess.PIPE
        )
        for rank in range(3)
    ]
    printed = [rank.communicate(timeout=120)[0].split() for rank in ranks]
    assert [words[0] for words in printed] == ["True"] * 3
    assert len({words[1] for words in printed}) == 1


WRONG = """
import torch
from ecoshare.contrib.spb import partial
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.SyncBatchNorm(2))
for number, (made, rank, ranks, step) in enumerate([
    (torch.nn.Linear(2, 2), 2, 2, 0), (torch.nn.Linear(2, 2), 0, 2, 0), (torch.nn.ReLU(), 0, 1, 0), (model, 0, 1, 0),
    (torch.nn.Linear(2, 2), 0, 1, -1),
]):
    try:
        with partial(made, rank, ranks, step):
            print("no error")
    except (ValueError, RuntimeError) as error:
        print(type(error).__name__, error)
made = torch.nn.Linear(2, 2)
for _ in range(2):
    try:
        with partial(made, 0, 1, 0):
            made(torch.ones(1, 2)).sum().backward()
    except ValueError as error:
        print(error)
"""


def test_each_mistake_has_an_error_that_says_what_to_do() -> None:
    done = subprocess.run([sys.executable, "-c", WRONG], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "ValueError rank 2 of 2 in step 0: expected 0 <= rank < ranks and a step from 0 on",
        "RuntimeError there is no process group: call `torch.distributed.init_process_group` first",
        "ValueError the model has no parameters to train",
        "ValueError SyncBatchNorm exchanges messages inside the block: take BatchNorm",
        "ValueError rank 0 of 1 in step -1: expected 0 <= rank < ranks and a step from 0 on",
        "the model has gradients already: call `optimizer.zero_grad()` before the block",
    ]


JOBS = """
version: 1
defaults: {gpus: 2, launch: ranks}
jobs:
  - {name: partly, script: partly.py}
  - {name: named, script: partly.py, class: mine}
  - {name: wholly, script: wholly.py}
"""


TOLD = "partial backpropagation (ecoshare.contrib.spb) changes the results of {}"


def test_the_plan_names_jobs_that_use_it_whatever_their_class(tmp_path: Path) -> None:
    """Otherwise results would change without a word, and the policy would not know the gangs."""
    (tmp_path / "partly.py").write_text("import helper\n")
    (tmp_path / "helper.py").write_text("from ecoshare.contrib.spb import partial\n")
    (tmp_path / "wholly.py").write_text("# from ecoshare.contrib.spb import partial\n")
    (tmp_path / "jobs.yaml").write_text(JOBS)
    done = ecoshare("run", "jobs.yaml", "--device", "cpu/2", "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert TOLD.format("partly, named") in " ".join((done.stdout + done.stderr).split())
    for shown in (" spb-partly-", " spb-mine-", " wholly-"):
        assert shown in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two devices need two processors")
def test_gangs_beside_each_other_print_what_they_print_alone_and_table_and_report_name_them(tmp_path: Path) -> None:
    """If it failed, the turns by iterations would change results, or lock gangs that share their lanes for ever."""
    lines = [
        f"  - {{name: {name}, script: {ROOT / 'examples' / 'spb_digits.py'}, args: [--epochs, 2]}}" for name in "abcd"
    ]
    (tmp_path / "jobs.yaml").write_text("\n".join([*JOBS.splitlines()[:4], *lines]))
    ways = {"after": "jigsaw --lanes 1", "beside": "jigsaw --lanes 2", "turns": "fair --lanes 2 --jobs-per-lane 2"}
    printed = []
    for folder, way in ways.items():
        options = ["--device", "cpu/2", "--no-profiles", "--runs", folder, "--policy", *way.split()]
        done = ecoshare("run", "jobs.yaml", *options, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        printed += [(tmp_path / folder / "latest" / "jobs" / name / "stdout.log").read_text() for name in "abcd"]
    assert len(set(printed)) == 1 and "accuracy" in printed[0]
    report = (tmp_path / "turns" / "latest" / "report.html").read_text()
    told = TOLD.format("a, b, c and 1 more")
    assert told in done.stdout and told in report
