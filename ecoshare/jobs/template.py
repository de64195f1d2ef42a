"""The job file that `ecoshare init` writes."""

from __future__ import annotations

from typing import Final

TEMPLATE: Final = """\
# Jobs that share this machine's GPU. Try it:  ecoshare run jobs.yaml
# Any script that runs as `python script.py` will do; nothing in it has to change.
version: 1

# What all jobs share. A job's own keys win; `env` is added up.
defaults:
  retries: 0                # start a failed job again, this often

jobs:
  - name: first             # unique: letters, digits, '.', '_' and '-'
    script: train.py        # relative to this file; or  module: package.train
    args: [--epochs, 3]     # passed on exactly as you write them

  - name: second            # every key there is, with its default
    script: train.py
    args: []
    cwd: .                  # working folder; . is the folder of this file
    env: {}                 # such as {OMP_NUM_THREADS: 2}; values stay out of logs and reports
    python: null            # another interpreter, such as .venv/bin/python
    class: null             # jobs of one class share what was measured; null: told by the script
    arrival: 0 s            # when it arrives after the start: 250 ms, 2 min, 1.5 h
    priority: 0             # the higher goes first
    iterations: null        # how many in total, if you know: it helps to plan
    gpus: 1                 # needed all at once
    slowdown: null          # such as 1.5: at most this much slower than alone
    isolation: process      # fresh: an interpreter of its own, slower to start; lane: one process for many trials
    retries: 0              # tried again after a failure; ECOSHARE_ATTEMPT tells the script
    resume_args: []         # added from the second attempt on, such as [--resume]
    timeout: null           # such as 10 min: stop it after this long without a step
    startup_timeout: null   # the same for the time before its first step
    sweep: null             # such as {grid: {lr: [0.1, 0.01]}}: a trial for each; docs/sweeps.md has all of it
"""
