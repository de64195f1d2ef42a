"""Damaged job files: jobs and a plan, or mistakes that have a place in the file."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import yaml

from ecoshare.base.device import DeviceInfo
from ecoshare.devices.registry import find
from ecoshare.errors import EcoshareError, InvalidJobFile, UsageError
from ecoshare.jobs.from_values import REFERENCE, template
from ecoshare.jobs.load import load, masked
from scripts.fuzz.damage import CELLS, damage_bytes, damage_json, damage_place, dumped
from scripts.fuzz.rounds import Lost, Play, Round, main, within
from tests.planning import planned

LIMIT_S = 5.0

WRITTEN = template([Path("train.py")]) + REFERENCE.replace("\n# ", "\n").split("\n", 1)[1].replace("\n#\n", "\n")
"""File of `ecoshare init`, with every key in use."""

RICH = """\
version: 1
on_end: [/bin/true, "{state}"]
defaults: &defaults {retries: 1, env: {A: 1, B: &b "x y"}, timeout: 1.5 h}
jobs:
- &first
  name: a
  script: train.py
  args: [--lr, 1e-3, 'it''s', *b, "\\u00e9\\n"]
  timeout: 2 min
  arrival: 250 ms
  slowdown: 1.5
- <<: *first
  name: b
  class: mine
  iterations: 100
  priority: -3
  resume_args:
    - |
      two
      lines
- {name: c, module: pkg.train, <<: [*defaults, {slowdown: 2}], "isolation": fresh}  # comment
- name: s
  script: train.py
  args: ["--lr={lr}", "{size}"]
  sweep: {grid: {lr: [0.1, 0.01], size: [1, 2, 3]}, metric: 'loss={:f}', goal: minimize, parallel: 2}
- name: r
  script: train.py
  args: ["{lr}"]
  isolation: lane
  sweep: {random: {lr: {log: [1e-4, 0.1]}}, trials: 9, metric: loss}
"""

TOKENS = (
    *("\t", " ", "  ", "\n", "- ", ": ", "? ", ", ", "{", "}", "[", "]", "'", '"', "#", "|", ">", "\\", "&a ", "*a"),
    *("<<: *first", "!!int ", "!!python/object:os.system ", "%YAML 1.1\n", "---\n", "...\n", "~", "\0", "\x85"),
    *("\u2028", "\ufeff", "1e999", "\\ud800", ".nan", "[" * 50, "{a: " * 50, "&x [*x]", "0x7fffffffffffffff", "1:2:3"),
)


def prepare(folder: Path) -> Play:
    """Find the device for plans, and check that the files are valid before they are damaged."""
    device = find("cpu")
    _make_scripts(folder)
    for text in (RICH, WRITTEN):
        (path := folder / "jobs.yaml").write_text(text)
        planned(load(path), (device,))

    def play(one: Round) -> None:
        _make_scripts(one.folder)
        path = one.folder / "jobs.yaml"
        _write(one, path)
        with within(LIMIT_S):
            _check(path, device)

    return play


def _make_scripts(folder: Path) -> None:
    (folder / "train.py").touch()
    (folder / "folder").mkdir()


def _write(one: Round, path: Path) -> None:
    """Write a damaged file."""
    dice = one.dice
    text = dice.choice([RICH, WRITTEN])
    one.kind = dice.choices(["values", "bytes", "tokens", "place"], [5, 4, 3, 1])[0]
    match one.kind:
        case "values":
            data = json.loads(json.dumps(yaml.safe_load(text)))  # values with anchors are there several times
            for _ in range(dice.choice([1, 1, 2, 4])):
                data, what = _damage(dice, data)
                one.story.append(what)
            path.write_bytes(dumped(data, dice.choice([None, 1])).encode(errors="surrogatepass"))
        case "bytes":
            content = text.encode()
            for _ in range(dice.choice([1, 1, 2, 4])):
                content, what = damage_bytes(dice, content)
                one.story.append(what)
            path.write_bytes(content)
        case "tokens":
            for _ in range(dice.choice([1, 2, 4])):
                place, token = dice.randrange(len(text) + 1), dice.choice(TOKENS)
                text = text[:place] + token + text[place:]
                one.story.append(f"{token[:20]!r} put at character {place}")
            path.write_bytes(text.encode(errors="surrogatepass"))
        case _:
            path.write_text(text)
            one.story.append(damage_place(dice, path, is_named=True))


def _damage(dice: random.Random, data: Any) -> tuple[Any, str]:
    """Change a value, in a third of cases to text like in job files."""
    if dice.random() < 0.35 and isinstance(data, dict) and isinstance(jobs := data.get("jobs"), list) and jobs:
        job = dice.choice(jobs)
        if isinstance(job, dict) and job:
            key = dice.choice(sorted(map(str, job)))
            text = dice.choice(
                [*CELLS, "2 min", "-1 s", "1e400 d", "train.py", "folder", "fresh", "a", "s.0001", "{lr}"]
            )
            return {
                **data,
                "jobs": [{**job, key: text} if each is job else each for each in jobs],
            }, f"{key} := {text!r:.60}"
    return damage_json(dice, data)


def _check(path: Path, device: DeviceInfo) -> None:
    try:
        loaded = load(path)
    except InvalidJobFile as error:
        check_places(path, error)
        return
    except UsageError as error:
        if str(path) not in str(error):
            raise Lost("the error does not name the file", str(error)) from error
        return
    try:
        plan = planned(loaded, (device,))
        json.dumps(plan.as_dict())
    except EcoshareError as error:
        if not str(error).isprintable():
            raise Lost("control characters in the error of a plan", repr(str(error))) from error
    copied = path.with_name("copy.yaml")
    copied.write_text(masked(loaded.text), newline="")
    copies = load(copied).jobs
    if [job.name for job in copies] != [job.name for job in loaded.jobs]:
        raise Lost("the masked copy has other jobs")
    if any(set(copy.env.values()) - {"***"} for copy in copies):
        raise Lost("the masked copy has values of env:")


def check_places(path: Path, error: InvalidJobFile) -> None:
    """Check that every mistake has a place in the file, and words for users.

    Raises:
        Lost: A mistake has none.
    """
    # Bytes that are no UTF-8 count one by one; no place is named behind the first of them.
    with path.open("rb") as file:
        text = file.read(1 << 24).decode("utf-8-sig", errors="surrogateescape")
    lines = re.split(r"\r\n|\r|\n", text)
    for mistake in error.mistakes:
        if not 1 <= mistake.line <= len(lines) or not 1 <= mistake.column <= len(lines[mistake.line - 1]) + 1:
            raise Lost("a place outside the file", mistake.describe(path.name))
        if not mistake.what.isprintable() or not mistake.where.isprintable():
            raise Lost("control characters in a mistake", repr(mistake.describe(path.name)))
        if re.search(r"[Ii]nput|valid (string|integer|number)|pydantic|type=", mistake.what.split("'")[0]):
            raise Lost("words of a library in a mistake", mistake.describe(path.name))


if __name__ == "__main__":
    main("job_files", __doc__, prepare)
