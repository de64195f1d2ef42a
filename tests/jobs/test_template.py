"""The file that `ecoshare init` writes."""

from __future__ import annotations

import re
from pathlib import Path, PurePath

import yaml

from ecoshare.jobs.from_values import REFERENCE, job_names, template
from ecoshare.jobs.load import load
from ecoshare.jobs.schema import JobConfig

BLOCK = "\n".join(line[2:] for line in REFERENCE.splitlines()[2:])
"""The keys that the file explains, as a user copies them."""


def test_the_file_loads_and_has_a_job_for_each_script(folder: Path) -> None:
    """If it failed, the first thing a new user sees would be an error in our own file."""
    Path("sub").mkdir()
    names = ("train.py", "sub/train.py", "1e3.py", "a b: 'c' #d.py", "ü.py")
    for name in names:
        Path(name).write_text("")
    Path("jobs.yaml").write_text(template([PurePath(name) for name in names]))
    jobs = load(Path("jobs.yaml")).jobs
    assert [job.script for job in jobs] == [folder / name for name in names]
    assert [job.name for job in jobs] == ["train", "train-2", "1e3", "a-b-c-d", "script"]


def test_names_of_jobs_are_unique_and_not_too_long() -> None:
    names = job_names([PurePath("a/x.py"), PurePath("b/x.py"), PurePath("x-2.py"), *[PurePath("y" * 300)] * 2])
    assert names[:3] == ["x", "x-2", "x-2-2"]
    assert len(set(names)) == 5 and max(map(len, names)) <= 100


def test_it_shows_every_key_with_its_default(folder: Path) -> None:
    """If it failed, a key would be missing, or a reader would learn a default that is not the default."""
    (shown,) = yaml.safe_load(f"jobs:\n{BLOCK}")["jobs"]
    assert set(shown) == {field.alias or name for name, field in JobConfig.model_fields.items()} - {"module"}
    assert "module: " in BLOCK
    Path("jobs.yaml").write_text(f"version: 1\njobs:\n{BLOCK}\n")
    (explained,) = load(Path("jobs.yaml")).jobs
    Path("jobs.yaml").write_text("version: 1\njobs:\n- {name: first, script: train.py}\n")
    assert explained == load(Path("jobs.yaml")).jobs[0]


def test_each_key_is_explained() -> None:
    """If it failed, a user would have to look a key up in the manual."""
    for line in BLOCK.splitlines():
        assert re.match(r" +(- )?\w+: .*# \w+", line), line
