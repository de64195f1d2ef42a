"""Files that are not valid YAML: the place where reading stops, and the message."""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoshare.errors import InvalidJobFile
from ecoshare.jobs.load import load
from tests.jobs.conftest import WrongFile


def test_wrong_yaml(wrong_file: WrongFile, folder: Path) -> None:
    """If it failed, the user would be sent to the wrong line, or see the words of a parser."""
    Path("jobs.yaml").write_text(wrong_file.text)
    with pytest.raises(InvalidJobFile) as raised:
        load(Path("jobs.yaml"))
    wanted = [f"jobs.yaml:{line}".replace("{HERE}", repr(str(folder))) for line in wrong_file.mistakes]
    assert str(raised.value).splitlines() == wanted


CASES = r"""
=== tab in indentation
version: 1
jobs:
→- name: a
--- mistakes
3:1: a tab; YAML indents with spaces only
=== tab before a key
version: 1
jobs:
- name: a
→script: train.py
--- mistakes
4:1: a tab; YAML indents with spaces only
=== unclosed list
version: 1
jobs:
- name: a
  args: [1, 2
  script: train.py
--- mistakes
5:9: expected ',' or ']' in the list that begins on line 4
=== unclosed bracket at the end
version: 1
jobs:
- name: a
  script: train.py
  args: [1, 2
--- mistakes
5:9: this bracket is never closed
=== unclosed mapping
version: 1
jobs:
- name: a
  script: train.py
  env: {A: 1
--- mistakes
5:8: this bracket is never closed
=== wrong bracket
version: 1
jobs:
- name: a
  script: train.py
  args: [1}
--- mistakes
5:11: expected ',' or ']' in the list that begins on line 5
=== unclosed quote
version: 1
jobs:
- name: 'a
  script: train.py
--- mistakes
3:9: this quote is never closed
=== apostrophe in single quotes
version: 1
jobs:
- name: a
  script: train.py
  args: ['it's']
--- mistakes
5:14: expected ',' or ']' in the list that begins on line 5
=== colon in a value
version: 1
jobs:
- name: a: b
--- mistakes
3:10: no ':' can stand here: check the indentation, and put a value that holds ': ' in quotes
=== key indented too far
version: 1
jobs:
- name: a
    script: train.py
--- mistakes
4:11: no ':' can stand here: check the indentation, and put a value that holds ': ' in quotes
=== key indented too little
version: 1
jobs:
- name: a
 script: train.py
--- mistakes
4:2: expected a key of the mapping that begins on line 1: check the indentation and the quotes
=== line without a colon
version: 1
jobs:
- name: a
  script
  args: []
--- mistakes
4:3: expected ':' and a value after this key
=== item on the line of the key
version: 1
jobs: - name: a
--- mistakes
2:7: a list item '- ' must begin a line of its own
=== unknown escape
version: 1
jobs:
- name: a
  script: train.py
  args: ["\d"]
--- mistakes
5:11: an unknown escape after '\': double the backslash, or use single quotes
=== short escape
version: 1
jobs:
- name: a
  script: train.py
  args: ["\xg"]
--- mistakes
5:13: an unknown escape after '\': double the backslash, or use single quotes
=== at sign
version: 1
jobs:
- name: a
  script: train.py
  args: [@x]
--- mistakes
5:10: a value cannot begin with '@', '`' or '%'; put it in quotes
=== percent
version: 1
jobs:
- name: a
  script: train.py
  args: [%x]
--- mistakes
5:10: a value cannot begin with '@', '`' or '%'; put it in quotes
=== star without name
version: 1
jobs:
- name: a
  script: train.py
  args: [*]
--- mistakes
5:10: '*' begins an alias in YAML; put a value that begins so in quotes
=== undefined alias
version: 1
jobs:
- name: a
  script: train.py
  args: [*x]
--- mistakes
5:10: jobs[0].args[0]: no anchor for this alias; put a value that begins with '*' in quotes
=== tag
version: 1
jobs:
- name: a
  script: train.py
  priority: !!int 3
--- mistakes
5:13: jobs[0].priority: '!' begins a YAML tag, which has no meaning here; remove it
=== tag of a list and of a mapping
version: 1
jobs:
- !job
  name: a
  script: train.py
  args: !!seq [x]
--- mistakes
3:3: jobs[0]: '!' begins a YAML tag, which has no meaning here; remove it
6:9: jobs[0].args: '!' begins a YAML tag, which has no meaning here; remove it
=== undefined tag
version: 1
jobs:
- name: a
  script: train.py
  args: [!a!b c]
--- mistakes
5:10: '!' begins a tag in YAML; put a value that begins so in quotes
=== directive
%YAML 2.0
---
version: 1
--- mistakes
1:1: a line that begins with '%' is a YAML directive; remove it
=== unknown directive
%WHAT x
---
version: 1
--- mistakes
1:1: a line that begins with '%' is a YAML directive; remove it
=== two documents
version: 1
jobs:
- name: a
  script: train.py
---
version: 1
--- mistakes
5:1: a second document begins here; a job file holds one
=== text after the document
{version: 1}
jobs: []
--- mistakes
2:1: this does not belong to what stands before it; check the indentation
=== block scalar header
version: 1
jobs:
- name: a
  script: train.py
  args: []
  cwd: |x
--- mistakes
6:9: '|' or '>' begins text of several lines in YAML; put a value that begins so in quotes
=== stray bracket
version: 1
jobs:
- name: a
  script: train.py
  args: ]
--- mistakes
5:9: expected a value here
=== recursive alias
version: 1
jobs:
- &a
  name: a
  script: train.py
  env: *a
--- mistakes
6:8: jobs[0].env: this alias names a value that contains it
=== recursive merge
version: 1
jobs:
- &a
  name: a
  <<: *a
--- mistakes
5:7: jobs[0]: this alias names a value that contains it
=== too deep
version: 1
jobs:
- name: a
  script: train.py
  args: [[[[[[[[[[[[[[1]]]]]]]]]]]]]]
--- mistakes
5:22: jobs[0].args[0][0][0][0][0][0][0][0][0][0][0][0][0]: nested deeper than 16 levels
=== duplicate keys
version: 1
jobs:
- name: a
  script: train.py
  priority: 1
  priority: 2
--- mistakes
6:3: jobs[0].priority: this key is already on line 5
=== list as key
version: 1
jobs:
- name: a
  script: train.py
  [x]: 1
--- mistakes
5:3: jobs[0]: a key must be text, not a list or a mapping
=== merge of text
version: 1
jobs:
- name: a
  script: train.py
  <<: x
--- mistakes
5:7: jobs[0]: '<<' can merge mappings only
=== two merges
version: 1
jobs:
- &a {name: a, script: train.py}
- <<: *a
  <<: *a
  name: b
--- mistakes
5:3: jobs[1]: only one '<<' in a mapping; '<<: [*a, *b]' merges several
=== escaped NUL
version: 1
jobs:
- name: a
  script: train.py
  args: ["a\0b"]
--- mistakes
5:10: jobs[0].args[0]: no program can be given a NUL character or half a surrogate pair
"""
