"""The job file that `ecoshare init` writes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Final

import yaml

from ecoshare.jobs.fields import MAX_NAME_LENGTH

_HEAD: Final = """\
# Jobs that share the device of this machine. To run them:  ecoshare run FILE
# A job is any script that runs as `python script.py`; it needs no change.
version: 1

# Options of all jobs. A key of a job replaces the default; `env` of a job is added to `env` here.
defaults:
  retries: 0                # how many times a failed job is started again

# Command to run at the end of the run, such as [notify-send, '{state}', '{run}']; each job can have one, too.
on_end: []

jobs:
"""

REFERENCE: Final = """\
# Every key that a job can have, with its default. Copy what you need, without the '# '.
#
#   - name: first             # unique: letters, digits, '.', '_' and '-'
#     script: train.py        # relative to this file; or  module: package.train
#     args: []                # such as [--epochs, 3]; passed on exactly as written
#     cwd: .                  # working folder; . is the folder of this file
#     env: {}                 # such as {OMP_NUM_THREADS: 2}; logs and reports do not show the values
#     python: null            # another interpreter, such as .venv/bin/python
#     class: null             # jobs of one class share a profile; null: the class follows from the script
#     arrival: 0 s            # time from the start of the run to its arrival: 250 ms, 2 min, 1.5 h
#     priority: 0             # jobs with a higher number go first
#     iterations: null        # how many it trains for, which helps to plan; null: learned from earlier runs
#     gpus: 1                 # number of devices that the job needs at once
#     most_gpus: null         # with --policy fluid: most devices that it can use, if it is preemptible
#     nodes: 1                # with launch: ranks: most machines that these devices may lie on
#     launch: null            # ranks: a process for each device, as torchrun starts them; torchrun: by torchrun itself
#     slowdown: null          # such as 1.5: the largest slowdown that the job accepts; docs/summary.md defines it
#     isolation: process      # fresh: an interpreter of its own, slower to start; lane: one process for many trials
#     retries: 0              # how many times a failed job is started again; see ECOSHARE_ATTEMPT
#     resume_args: []         # arguments that are added from the second attempt on, such as [--resume]
#     after: []               # names of jobs and sweeps that must complete before this job arrives
#     after_ok: []            # the same as after, by the name that Slurm gives it
#     after_any: []           # names of jobs and sweeps that must end, in whatever state
#     preemptible: false      # true: may be stopped for a more urgent job, if it saves its state on SIGTERM
#     timeout: null           # such as 10 min: longest time with the turn and without a step
#     startup_timeout: null   # such as 10 min: longest time from its start to its first step
#     on_end: []              # command to run at its end, without a shell: [notify-send, '{job} {state}', '{run}']
#     sweep: null             # such as {grid: {lr: [0.1, 0.01]}}: one trial for each value; see docs/sweeps.md
#     service: null           # such as {p99: 50 ms}: it answers requests within this time; see docs/services.md
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
