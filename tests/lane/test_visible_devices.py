"""A job has the device of its lane, whatever its script writes into the environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from types import SimpleNamespace

import pytest
import torch

from ecoshare.lane import confinement

GIVEN: Mapping[str, str | None] = {"CUDA_VISIBLE_DEVICES": "GPU-aa-1,GPU-bb-2", "CUDA_MPS_PIPE_DIRECTORY": "/x"}


BEGINS = [(torch._C, "_cuda_getDeviceCount"), (torch._C, "_cuda_init"), (torch.cuda, "_parse_visible_devices")]


@pytest.mark.parametrize(("module", "begin"), BEGINS)
def test_cuda_begins_with_what_the_run_has_given(module: object, begin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for place, name in BEGINS:
        monkeypatch.setattr(place, name, lambda: seen.append(os.environ["CUDA_VISIBLE_DEVICES"]), raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-aa-1,GPU-bb-2")
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/own")
    confinement.keep_visible_devices(GIVEN)
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"  # many scripts do so
    getattr(module, begin)()
    assert seen == ["GPU-aa-1,GPU-bb-2"]
    assert os.environ["CUDA_MPS_PIPE_DIRECTORY"] == "/own", "other variables are the script's own"


def test_another_device_ends_the_job_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library other than torch may have begun CUDA before."""
    uuids = {0: "AA-1", 1: "cc-3"}
    cuda = SimpleNamespace(get_device_properties=lambda device: SimpleNamespace(uuid=uuids[device]))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    confinement.check_device(GIVEN, [0])
    with pytest.raises(SystemExit, match="has begun CUDA on GPU-cc-3, and its lane is on GPU-bb-2"):
        confinement.check_device(GIVEN, [1])
    confinement.check_device({"CUDA_VISIBLE_DEVICES": "0,1"}, [1])  # a vendor that numbers devices
    confinement.check_device({}, [0])
