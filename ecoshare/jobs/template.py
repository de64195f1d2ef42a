"""The job file that `ecoshare init` writes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Final

import yaml

from ecoshare.jobs.fields import MAX_NAME_LENGTH

_HEAD: Final = """\
# Jobs that share this machine's device. Try it:  ecoshare run FILE
# Any script that runs as `python script.py` will do; nothing in it has to change.
version: 1

# Options that all jobs share. A job's own keys win; `env` is added up.
defaults:
  retries: 0                # start a failed job again, this often

# Command for the end of the run, such as [notify-send, '{state}', '{run}']; jobs can have one each.
on_end: []

jobs:
"""

REFERENCE: Final = """\
# Every key that a job can have, with its default. Copy what you need, without the '# '.
#
#   - name: first             # unique: letters, digits, '.', '_' and '-'
#     script: train.py        # relative to this file; or  module: package.train
#     args: []                # such as [--epochs, 3]; passed on exactly as you write them
#     cwd: .                  # working folder; . is the folder of this file
#     env: {}                 # such as {OMP_NUM_THREADS: 2}; values stay out of logs and reports
#     python: null            # another interpreter, such as .venv/bin/python
#     class: null             # jobs of one class share what was measured; null: told by the script
#     arrival: 0 s            # when it arrives after the start: 250 ms, 2 min, 1.5 h
#     priority: 0             # the higher goes first
#     iterations: null        # how many in total, if you know: it helps to plan
#     gpus: 1                 # needed all at once
#     slowdown: null          # such as 1.5: the largest slowdown that the job accepts; docs/summary.md defines it
#     isolation: process      # fresh: an interpreter of its own, slower to start; lane: one process for many trials
#     retries: 0              # tried again after a failure; ECOSHARE_ATTEMPT tells the script
#     resume_args: []         # added from the second attempt on, such as [--resume]
#     timeout: null           # such as 10 min: stop it after this long without a step
#     startup_timeout: null   # the same for the time before its first step
#     on_end: []              # such as [notify-send, '{job} {state}', '{run}']: a command for its end, without a shell
#     sweep: null             # such as {grid: {lr: [0.1, 0.01]}}: a trial for each; docs/sweeps.md has all of it
"""


def template(scripts: Sequence[PurePath], file: str = "jobs.yaml") -> str:
    """Text of a job file with one job for each script, and an explanation of all keys at its end.

    Args:
        scripts: Paths relative to the folder of the job file; at least one.
        file: Name of the job file.
    """
    jobs = (
        f"  - name: {_word(name)}\n"
        f"    script: {_word(script.as_posix())}\n"
        "    args: []                # its arguments\n"
        for name, script in zip(job_names(scripts), scripts, strict=True)
    )
    return _HEAD.replace("FILE", file) + "\n".join(jobs) + "\n" + REFERENCE


def job_names(scripts: Iterable[PurePath]) -> list[str]:
    """A unique job name for each script: the name of its file, with a number if that name is taken."""
    names: dict[str, None] = {}
    for script in scripts:
        room = MAX_NAME_LENGTH - len("-99999")
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", script.stem).lstrip(".-")[:room] or "script"
        name, number = stem, 1
        while name in names:
            number += 1
            name = f"{stem}-{number}"
        names[name] = None
    return list(names)


def _word(text: str) -> str:
    """Text as YAML, in quotes if YAML would otherwise read it as another type."""
    return yaml.safe_dump(text, allow_unicode=True, width=10_000).splitlines()[0]
