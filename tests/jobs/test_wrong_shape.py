"""Files of the wrong shape: missing, unknown and repeated keys and names."""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoshare.errors import InvalidJobFile
from ecoshare.jobs.load import load
from tests.jobs.conftest import WrongFile


def test_wrong_shape(wrong_file: WrongFile, folder: Path) -> None:
    """If it failed, a mistyped key would be ignored, or only the first of several mistakes shown."""
    Path("jobs.yaml").write_text(wrong_file.text)
    with pytest.raises(InvalidJobFile) as raised:
        load(Path("jobs.yaml"))
    wanted = [f"jobs.yaml:{line}".replace("{HERE}", repr(str(folder))) for line in wrong_file.mistakes]
    assert str(raised.value).splitlines() == wanted


CASES = r"""
=== only comments
# nothing
--- mistakes
1:1: the file is empty; `ecoshare init` writes one
=== only a marker
---
--- mistakes
2:1: expected the keys 'version' and 'jobs', got nothing
=== text
hello
--- mistakes
1:1: expected the keys 'version' and 'jobs', got 'hello'
=== list
- name: a
--- mistakes
1:1: expected the keys 'version' and 'jobs', got a list
=== no version, no jobs
defaults: {}
--- mistakes
1:1: the key 'jobs' is missing
1:1: the key 'version' is missing
=== version 2
version: 2
jobs:
- name: a
  script: train.py
--- mistakes
1:10: version: expected 1, the only version there is, got '2'
=== jobs is null
version: 1
jobs:
--- mistakes
2:6: jobs: expected a list of jobs, each beginning with '- name:', got nothing
=== jobs is empty
version: 1
jobs: []
--- mistakes
2:7: jobs: at least one job is needed
=== jobs is a mapping
version: 1
jobs:
  a: {script: train.py}
--- mistakes
3:3: jobs: expected a list of jobs, each beginning with '- name:', got a mapping
=== job is text
version: 1
jobs:
- train.py
--- mistakes
3:3: jobs[0]: expected a mapping of keys and values, got 'train.py'
=== job is nothing
version: 1
jobs:
-
- name: a
  script: train.py
--- mistakes
3:2: jobs[0]: expected a mapping of keys and values, got nothing
=== no name, no script
version: 1
jobs:
- args: [1]
--- mistakes
3:3: jobs[0]: the key 'name' is missing
3:3: jobs[0]: the key 'script' (or 'module') is missing
=== script and module
version: 1
jobs:
- name: a
  script: train.py
  module: pkg.train
--- mistakes
3:3: jobs[0]: a job has a script or a module, not both
=== two programs missing in the same line
version: 1
jobs:
- {}
- {}
--- mistakes
3:3: jobs[0]: the key 'name' is missing
3:3: jobs[0]: the key 'script' (or 'module') is missing
4:3: jobs[1]: the key 'name' is missing
4:3: jobs[1]: the key 'script' (or 'module') is missing
=== unknown keys
version: 1
verison: 1
jobs:
- name: a
  script: train.py
  tmeout: 5 s
  start-up-timeout: 5 s
  GPUS: 1
  xyzzy: 1
  my key: 1
--- mistakes
2:1: verison: unknown key 'verison'; did you mean 'version'?
6:3: jobs[0].tmeout: unknown key 'tmeout'; did you mean 'timeout'?
7:3: jobs[0].start-up-timeout: unknown key 'start-up-timeout'; did you mean 'startup_timeout'?
8:3: jobs[0].GPUS: unknown key 'GPUS'; did you mean 'gpus'?
9:3: jobs[0].xyzzy: unknown key 'xyzzy'; {KNOWN}
10:3: jobs[0]: unknown key 'my key'; {KNOWN}
=== default of a job's own key
version: 1
defaults: {name: a, script: train.py, retires: 1}
jobs:
- name: a
  script: train.py
--- mistakes
2:12: defaults.name: each job has its own 'name'; it cannot be a default
2:21: defaults.script: each job has its own 'script'; it cannot be a default
2:39: defaults.retires: unknown key 'retires'; did you mean 'retries'?
=== defaults is a list
version: 1
defaults: [a]
jobs:
- name: a
  script: train.py
--- mistakes
2:11: defaults: expected a mapping of keys and values, got a list
=== duplicate names
version: 1
jobs:
- name: a
  script: train.py
- name: b
  module: m
- name: a
  module: m
- {name: a, module: m}
--- mistakes
7:9: jobs[2].name: the name 'a' is already taken by jobs[0] on line 3
9:10: jobs[3].name: the name 'a' is already taken by jobs[0] on line 3
=== through an alias
version: 1
jobs:
- &a
  name: a
  script: train.py
  retries: many
- <<: *a
  name: b
--- mistakes
6:12: jobs[0].retries: expected a whole number, got 'many'
6:12: jobs[1].retries: expected a whole number, got 'many'
=== everything at once
version: one
jobs:
- name: a b
  script: gone.py
  tiemout: 5 s
  retries: many
  retries: 3
--- mistakes
1:10: version: expected 1, the only version there is, got 'one'
3:9: jobs[0].name: {NAME} 'a b'
4:11: jobs[0].script: no file 'gone.py' in {HERE}
5:3: jobs[0].tiemout: unknown key 'tiemout'; did you mean 'timeout'?
6:12: jobs[0].retries: expected a whole number, got 'many'
7:3: jobs[0].retries: this key is already on line 6
"""
