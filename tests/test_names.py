"""One word for one thing: the meaning of a name does not depend on the module."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = sorted(path for folder in ("ecoshare", "tuner") for path in (ROOT / folder).rglob("*.py"))

SAME_FILE_NAMES = {
    "profile.py": "`cli/profile.py` is the command `ecoshare profile`; `knowledge/profile.py` is a profile",
    "restore.py": "`cli/restore.py` is the command `ecoshare restore`; `devices/control/restore.py` restores settings",
    "run.py": "`cli/run.py` is the command `ecoshare run`; `runtime/run.py` is a run in progress",
    "schema.py": "`cli/schema.py` is the command `ecoshare schema`; `jobs/schema.py` is the schema that it prints",
}
"""Names of files that two folders share, and the reason: in `cli/` a file is named after its command."""

SAME_CLASS_NAMES = {
    "EnergyCallback": "one for each library that trains; a script imports one of them, by the name of its library",
}
"""Names of public classes that two modules define, and the reason."""


def test_no_two_modules_define_a_public_class_of_one_name() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in FILES:
        for name in re.findall(r"^class ([^_\W]\w*)", path.read_text(), re.M):
            found[name].append(str(path.relative_to(ROOT)))
    assert len(found) > 300
    assert {name: where for name, where in found.items() if len(where) > 1}.keys() == SAME_CLASS_NAMES.keys()


def test_no_two_files_have_one_name_without_a_reason() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path in FILES:
        if path.name != "__init__.py":
            found[path.name].append(str(path.relative_to(ROOT)))
    assert {name: where for name, where in found.items() if len(where) > 1}.keys() == SAME_FILE_NAMES.keys()
