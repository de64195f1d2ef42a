"""Devices of a run, by their names, by their number, or all of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ecoshare.devices.choice import find_all, find_one
from ecoshare.errors import EcoshareError, UnfitEnvironment, UsageError
from tests.driver import FakeDriver, presets


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """Driver with two GPUs of one model, and one of another between them."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return FakeDriver(tmp_path, [presets.H200, presets.A4000, presets.H200])


def names(wanted: str | None = None, count: int | None = None) -> list[str]:
    return [each.name for each in find_all(wanted, count)]


def test_a_run_takes_all_gpus_of_one_model(three: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    with three:
        assert names() == ["cuda:0", "cuda:2"]
        assert names(count=1) == ["cuda:0"]
        assert names("cuda:2,cuda:0") == ["cuda:2", "cuda:0"]
        assert names("cuda:1") == ["cuda:1"] and names("cpu") == ["cpu"]
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
        assert names() == ["cuda:1"], "the numbers are those of the visible ones"


def test_a_small_card_that_comes_first_is_not_the_model_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with FakeDriver(tmp_path, [presets.A4000, presets.H200, presets.H200]):
        assert names() == ["cuda:1", "cuda:2"] and find_one()[0].name == "cuda:1"
        assert names("cuda") == ["cuda:0"], "a name means what it says"


@pytest.mark.parametrize(
    ("wanted", "count", "error", "said"),
    [
        ("cuda:0,cuda:0", None, UnfitEnvironment, "--device cuda:0,cuda:0: there is one cuda:0 here"),
        ("cuda,cuda:0", None, UnfitEnvironment, "--device cuda,cuda:0: there is one cuda:0 here"),
        ("cuda:0,cuda:9", None, UnfitEnvironment, "--device cuda:9: this machine shows 3 GPUs"),
        ("all", None, UnfitEnvironment, "--device all: cuda:0 is NVIDIA H200, and cuda:1 is NVIDIA RTX A4000"),
        ("cuda:0,cpu", None, UnfitEnvironment, "--device cuda:0,cpu: cuda:0 is NVIDIA H200, and cpu is "),
        ("cuda:0,", None, UsageError, "--device : expected cpu, cuda, cuda:N"),
        ("tpu", None, UsageError, "--device tpu: expected cpu, cuda, cuda:N, or for a run cpu/N or all"),
        ("cpu/0", None, UsageError, "--device cpu/0: expected cpu/N with N from 1"),
        (None, 3, UnfitEnvironment, "--devices 3: this machine has 2 devices"),
        ("cuda:2", 2, UnfitEnvironment, "--devices 2: --device cuda:2 names 1 device"),
        (None, 0, UsageError, "--devices 0: expected 1 or more"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    three: FakeDriver, wanted: str | None, count: int | None, error: type[EcoshareError], said: str
) -> None:
    with three, pytest.raises(error) as raised:
        find_all(wanted, count)
    assert str(raised.value).startswith(said) and "\n" not in str(raised.value)


def test_without_a_gpu_the_processors_are_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})
    assert names() == names("cpu") == names("cpu/1") == ["cpu"]
    assert names("cpu/2") == names("cpu/2", 2) == ["cpu:0", "cpu:1"]
    with pytest.raises(UsageError, match="--devices 1: --device cpu/2 is 2 devices by itself"):
        find_all("cpu/2", 1)
    with pytest.raises(UnfitEnvironment, match="--devices 2: this machine has 1 device") as raised:
        find_all(None, 2)
    assert raised.value.hint == "`--device cpu/2` cuts the processors into so many"
    with pytest.raises(UnfitEnvironment, match="this machine shows no GPU"):
        find_all("all")
