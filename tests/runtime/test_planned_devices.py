"""Scripts and job files that choose a GPU themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ecoshare.devices import registry
from ecoshare.errors import InvalidJobFile
from ecoshare.jobs.load import load
from tests.planning import planned
from tests.virtual.run import gpu

LINES = {
    'os.environ["CUDA_VISIBLE_DEVICES"] = "0"': True,
    "os.environ['CUDA_VISIBLE_DEVICES']='1'": True,
    'os.environ.setdefault("HIP_VISIBLE_DEVICES", "0")': True,
    'print(os.environ["CUDA_VISIBLE_DEVICES"])': False,
    'if os.environ["CUDA_VISIBLE_DEVICES"] == "0": pass': False,
}


@pytest.mark.parametrize("line", LINES)
def test_a_script_that_chooses_a_gpu_is_told(line: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"import os\n{line}\n")
    (path := tmp_path / "jobs.yaml").write_text("version: 1\njobs:\n- {name: a, script: train.py}\n")
    notes = planned(load(path), (gpu(),)).notes
    told = "a chooses a GPU by CUDA_VISIBLE_DEVICES: the one of the lane is used instead"
    assert (told in notes) is LINES[line]
    assert told not in planned(load(path), (registry.processors(),)).notes


@pytest.mark.parametrize(("value", "on_gpu", "on_processors"), [("0", False, False), ("", False, True)])
def test_a_job_file_that_chooses_one_is_refused(value: str, on_gpu: bool, on_processors: bool, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    job = {"name": "a", "script": "train.py", "env": {"CUDA_VISIBLE_DEVICES": value}}
    (path := tmp_path / "jobs.yaml").write_text(json.dumps({"version": 1, "jobs": [job]}))
    for device, may in ((gpu(), on_gpu), (registry.processors(), on_processors)):
        if may:
            planned(load(path), (device,))
            continue
        with pytest.raises(InvalidJobFile, match=r"jobs.yaml:1:\d+: jobs\[0\].env: CUDA_VISIBLE_DEVICES would take"):
            planned(load(path), (device,))
