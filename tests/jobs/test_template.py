"""The file that `ecoshare init` writes."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from ecoshare.jobs.load import load
from ecoshare.jobs.schema import Job
from ecoshare.jobs.template import TEMPLATE


def test_the_template_loads(folder: Path) -> None:
    """If it failed, the first thing a new user sees would be an error in our own file."""
    Path("jobs.yaml").write_text(TEMPLATE)
    first, second = load(Path("jobs.yaml")).jobs
    assert (first.name, first.script, first.args) == ("first", folder / "train.py", ("--epochs", "3"))
    assert second.name == "second"


def test_it_shows_every_key_with_its_default(folder: Path) -> None:
    """If it failed, a key would be missing, or a reader would learn a default that is not the default."""
    second = yaml.safe_load(TEMPLATE)["jobs"][1]
    assert set(second) == {field.alias or name for name, field in Job.model_fields.items()} - {"module"}
    assert "module: " in TEMPLATE
    Path("jobs.yaml").write_text(TEMPLATE)
    shown = load(Path("jobs.yaml")).jobs[1]
    Path("jobs.yaml").write_text("version: 1\njobs:\n- {name: second, script: train.py}\n")
    assert shown == load(Path("jobs.yaml")).jobs[0]


def test_each_key_is_explained() -> None:
    """If it failed, a user would have to look a key up in the manual."""
    bare = [line for line in TEMPLATE.splitlines() if re.match(r" +(- )?\w+: ", line) and "#" not in line]
    # Said once, in the first job.
    assert [line.split(":")[0].strip(" -") for line in bare] == ["script", "args"]
