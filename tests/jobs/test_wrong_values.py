"""Job files with right keys and wrong values."""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoshare.errors import InvalidJobFile
from ecoshare.jobs.load import load
from tests.jobs.conftest import WrongFile


def test_wrong_value(wrong_file: WrongFile, folder: Path) -> None:
    """If it failed, a run would start with a value that its owner did not mean."""
    Path("jobs.yaml").write_text(wrong_file.text)
    with pytest.raises(InvalidJobFile) as raised:
        load(Path("jobs.yaml"))
    wanted = [f"jobs.yaml:{line}".replace("{HERE}", repr(str(folder))) for line in wrong_file.mistakes]
    assert str(raised.value).splitlines() == wanted


def test_a_script_that_the_working_folder_has(folder: Path) -> None:
    """The error says that `script:` is relative to the job file, and names the file that exists.

    Many projects are begun in the folder of one of their parts, such as each of the examples of PyTorch.
    """
    (folder / "folder" / "main.py").touch()
    Path("jobs.yaml").write_text("version: 1\ndefaults: {cwd: folder}\njobs:\n- {name: a, script: main.py}\n")
    with pytest.raises(InvalidJobFile) as raised:
        load(Path("jobs.yaml"))
    assert str(raised.value) == (
        f"jobs.yaml:4:21: jobs[0].script: no file 'main.py' in {str(folder)!r}"
        " (scripts are relative to the job file, not to 'cwd'); did you mean 'folder/main.py'?"
    )
    Path("jobs.yaml").write_text("version: 1\njobs:\n- {name: a, script: folder/main.py, cwd: folder}\n")
    (job,) = load(Path("jobs.yaml")).jobs
    assert (job.script, job.cwd) == (folder / "folder/main.py", folder / "folder")


CASES = r"""
=== names
version: 1
jobs:
- {name: '', script: train.py}
- {name: -x, script: train.py}
- {name: ., script: train.py}
- {name: .., script: train.py}
- {name: .x, script: train.py}
- {name: a b, script: train.py}
- {name: a/b, script: train.py}
- {name: é, script: train.py}
- {name: {LONG}, script: train.py}
- {name: [a], script: train.py}
- {name: ~, script: train.py}
- {name: , script: train.py}
--- mistakes
3:10: jobs[0].name: {NAME} ''
4:10: jobs[1].name: {NAME} '-x'
5:10: jobs[2].name: {NAME} '.'
6:10: jobs[3].name: {NAME} '..'
7:10: jobs[4].name: {NAME} '.x'
8:10: jobs[5].name: {NAME} 'a b'
9:10: jobs[6].name: {NAME} 'a/b'
10:10: jobs[7].name: {NAME} 'é'
11:10: jobs[8].name: {NAME} 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...'
12:10: jobs[9].name: {NAME} a list
13:10: jobs[10].name: {NAME} nothing
14:10: jobs[11].name: {NAME} nothing
=== module
version: 1
jobs:
- {name: a, module: train.py/x}
- {name: b, module: 'a..b'}
- {name: c, module: [m]}
--- mistakes
3:21: jobs[0].module: expected the name of a module such as 'pkg.train', got 'train.py/x'
4:21: jobs[1].module: expected the name of a module such as 'pkg.train', got 'a..b'
5:21: jobs[2].module: expected the name of a module such as 'pkg.train', got a list
=== missing files
version: 1
jobs:
- name: a
  script: gone.py
  cwd: nowhere
  python: bin/python
- {name: b, script: folder, cwd: train.py, python: no-such-python}
- {name: c, script: ~/train.py, python: train.py}
- {name: d, script: /gone.py}
- {name: e, script: train.py/x}
--- mistakes
4:11: jobs[0].script: no file 'gone.py' in {HERE}
5:8: jobs[0].cwd: no folder 'nowhere' in {HERE}
6:11: jobs[0].python: no file 'bin/python' in {HERE}
7:21: jobs[1].script: 'folder' is a folder, not a file
7:34: jobs[1].cwd: 'train.py' is not a folder
7:52: jobs[1].python: no program 'no-such-python' on the PATH
8:21: jobs[2].script: '~' is not expanded here; write the whole path instead of '~/train.py'
8:41: jobs[2].python: no program 'train.py' on the PATH
9:21: jobs[3].script: no file '/gone.py'
10:21: jobs[4].script: no file 'train.py/x' in {HERE}
=== paths of the wrong kind
version: 1
jobs:
- {name: a, script: [train.py], cwd: '', python: {}}
--- mistakes
3:21: jobs[0].script: expected a path, got a list
3:38: jobs[0].cwd: expected a path, got ''
3:50: jobs[0].python: expected a path or the name of a program, got an empty mapping
=== missing folder in the defaults
version: 1
defaults: {cwd: nowhere}
jobs:
- name: a
  script: train.py
--- mistakes
2:17: defaults.cwd: no folder 'nowhere' in {HERE}
=== whole numbers
version: 1
jobs:
- name: a
  script: train.py
  priority: high
  iterations: 1e6
  gpus: 0
  retries: 101
- {name: b, script: train.py, priority: null, iterations: -5, gpus: 1.0, retries: true}
- {name: c, script: train.py, priority: 99999999999999999999, iterations: [1], gpus: '', retries: -1}
--- mistakes
5:13: jobs[0].priority: expected a whole number, got 'high'
6:15: jobs[0].iterations: expected a whole number, got '1e6'
7:9: jobs[0].gpus: expected at least 1, got '0'
8:12: jobs[0].retries: expected at most 100, got '101'
9:41: jobs[1].priority: expected a whole number, got nothing
9:59: jobs[1].iterations: expected at least 1, got '-5'
9:69: jobs[1].gpus: expected a whole number, got '1.0'
9:83: jobs[1].retries: expected a whole number, got 'true'
10:41: jobs[2].priority: expected a whole number, got '99999999999999999999'
10:75: jobs[2].iterations: expected a whole number, got a list
10:86: jobs[2].gpus: expected a whole number, got ''
10:99: jobs[2].retries: expected at least 0, got '-1'
=== slowdown
version: 1
jobs:
- name: a
  script: train.py
  slowdown: 0.9
- {name: b, script: train.py, slowdown: .nan}
- {name: c, script: train.py, slowdown: 2x}
- {name: d, script: train.py, slowdown: 1e999}
--- mistakes
5:13: jobs[0].slowdown: expected at least 1, got '0.9'
6:41: jobs[1].slowdown: expected a number, got '.nan'
7:41: jobs[2].slowdown: expected a number, got '2x'
8:41: jobs[3].slowdown: expected a number, got '1e999'
=== durations
version: 1
jobs:
- name: a
  script: train.py
  arrival: 5 parsecs
  timeout: 0 s
  startup_timeout: -1 s
- {name: b, script: train.py, arrival: null, timeout: [], startup_timeout: 1e9 d}
--- mistakes
5:12: jobs[0].arrival: {DURATION} '5 parsecs'
6:12: jobs[0].timeout: expected more than 0, got '0 s'
7:20: jobs[0].startup_timeout: {DURATION} '-1 s'
8:40: jobs[1].arrival: expected a duration such as '2 min', got nothing
8:55: jobs[1].timeout: expected a duration such as '2 min', got an empty list
8:76: jobs[1].startup_timeout: expected a duration of at most 100 years, got '1e9 d'
=== isolation
version: 1
jobs:
- name: a
  script: train.py
  isolation: thread
- {name: b, script: train.py, isolation: Process}
- {name: c, script: train.py, isolation: null}
--- mistakes
5:14: jobs[0].isolation: expected 'process', 'fresh' or 'lane', got 'thread'
6:42: jobs[1].isolation: expected 'process', 'fresh' or 'lane', got 'Process'
7:42: jobs[2].isolation: expected 'process', 'fresh' or 'lane', got nothing
=== arguments
version: 1
jobs:
- name: a
  script: train.py
  args: --epochs 3
  resume_args: {a: b}
- name: b
  script: train.py
  args: [a, [b], {c: d}, ]
  resume_args:
    -
    - x
--- mistakes
5:9: jobs[0].args: expected a list such as [--epochs, 3], got '--epochs 3'
6:16: jobs[0].resume_args: expected a list such as [--epochs, 3], got a mapping
9:13: jobs[1].args[1]: expected text; put text that begins with '[' or '{' in quotes
9:18: jobs[1].args[2]: expected text; put text that begins with '[' or '{' in quotes
11:6: jobs[1].resume_args[0]: expected text; write '' for an empty one
=== environment
version: 1
jobs:
- name: a
  script: train.py
  env: SECRET=hunter2
- {name: b, script: train.py, env: [SECRET=hunter2]}
- {name: c, script: train.py, env: {SECRET=hunter2: x}}
- {name: d, script: train.py, env: {A: [hunter2], B: {C: hunter2}, D: }}
- {name: e, script: train.py, env: {A: hunter2, A: hunter2}}
- {name: f, script: train.py, env: {A=hunter2: 1, A=hunter2: 2}}
--- mistakes
5:8: jobs[0].env: expected a mapping such as {KEY: value}
6:36: jobs[1].env: expected a mapping such as {KEY: value}
7:36: jobs[2].env: the name of a variable must not be empty nor hold '=' or blanks
8:40: jobs[3].env.A: expected text; put text that begins with '[' or '{' in quotes
8:54: jobs[3].env.B: expected text; put text that begins with '[' or '{' in quotes
8:71: jobs[3].env.D: expected text; write '' for an empty one
9:49: jobs[4].env.A: this key is already on line 9
10:36: jobs[5].env: the name of a variable must not be empty nor hold '=' or blanks
10:51: jobs[5].env: this key is already on line 10
=== commands for an end
version: 1
on_end: [no-program0, '{job}']
defaults:
  on_end: echo done
  onend: []
jobs:
- name: a
  script: train.py
  on_end: [echo, '{jb} {stat}', '{name} {} {"json": 1}', [x], null]
- {name: b, script: train.py, on_end: ['', x]}
- {name: c, script: train.py, on_end: [./train.py, '{run']}
- {name: d, script: train.py, on_end: ['{run}/tell', '{state}']}
--- mistakes
2:10: on_end[0]: no program 'no-program0' on the PATH
2:23: on_end[1]: '{job}' stands for nothing here: the run is more than one job; known are '{state}', '{run}'
4:11: defaults.on_end: expected a list of words such as [notify-send, '{job} {state}'], got 'echo done'
5:3: defaults.onend: unknown key 'onend'; did you mean 'on_end'?
9:18: jobs[0].on_end[1]: '{jb}' stands for nothing; did you mean '{job}'?
9:18: jobs[0].on_end[1]: '{stat}' stands for nothing; did you mean '{state}'?
9:33: jobs[0].on_end[2]: '{name}' stands for nothing; known are '{job}', '{state}', '{run}'
9:58: jobs[0].on_end[3]: expected text; put text that begins with '[' or '{' in quotes
10:39: jobs[1].on_end: expected a path or the name of a program as the first word, got ''
11:40: jobs[2].on_end[0]: './train.py' is not executable for you
=== class
version: 1
jobs:
- name: a
  script: train.py
  class: a b
--- mistakes
5:10: jobs[0].class: {NAME} 'a b'
"""
