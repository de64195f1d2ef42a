"""The copy of a job file for the run folder: the same, without the values of `env:`."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.jobs import document
from ecoshare.jobs.load import load, masked

BEFORE = r"""# jobs of the spring
version: 1
defaults:
  env: {A: hunter2, "B": 'hunter2', C: "hun\x74er2" }   # flow
jobs:
  - name: first   # a comment
    script: train.py
    args: [--name, &shared hunter2, plain]
    env:
      PLAIN: hunter2 hunter2   # after a value
      NUMBER: 4242
      ANCHOR: &token hunter2
      ALIAS: *token
      SHARED: *shared
      EMPTY: ''
      LITERAL: |
        hunter2

        # hunter2
      # between
      FOLDED: &folded >-
        hunter2
        hunter2
      QUOTED: "hunter2
        hunter2"   # after lines
      LINES: hunter2
        hunter2
  - {"name": second, "script": train.py, "env": {"K":"hunter2","L":hunter2, M: é😀hunter2}}
  - <<: {env: {OVERRIDDEN: hunter2}, script: train.py}
    name: third
    env: &env {X: &x hunter2, <<: {X: hunter2}}
  - name: fourth
    script: train.py
    env:
      <<: *env
      Y: *x
"""
AFTER = r"""# jobs of the spring
version: 1
defaults:
  env: {A: "***", "B": "***", C: "***" }   # flow
jobs:
  - name: first   # a comment
    script: train.py
    args: [--name, &shared "***", plain]
    env:
      PLAIN: "***"   # after a value
      NUMBER: "***"
      ANCHOR: &token "***"
      ALIAS: *token
      SHARED: *shared
      EMPTY: "***"
      LITERAL: "***"



      # between
      FOLDED: &folded "***"


      QUOTED: "***"
   # after lines
      LINES: "***"

  - {"name": second, "script": train.py, "env": {"K":"***","L":"***", M: "***"}}
  - <<: {env: {OVERRIDDEN: "***"}, script: train.py}
    name: third
    env: &env {X: &x "***", <<: {X: "***"}}
  - name: fourth
    script: train.py
    env:
      <<: *env
      Y: *x
"""


@pytest.mark.parametrize("loader", [yaml.CSafeLoader, yaml.SafeLoader])
@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
def test_masking(line_break: str, loader: type[yaml.SafeLoader], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it failed, a password would be kept in a run folder, or the copy would not be the file its owner knows."""
    monkeypatch.setattr(document, "_LOADER", loader)
    text = masked(BEFORE.replace("\n", line_break))
    assert text == AFTER.replace("\n", line_break)
    Path("before.yaml").write_bytes(BEFORE.replace("\n", line_break).encode())
    Path("after.yaml").write_bytes(text.encode())
    before, after = load(Path("before.yaml")).jobs, load(Path("after.yaml")).jobs
    assert [dict.fromkeys(job.env, "***") for job in before] == [job.env for job in after]
    assert [(job.name, job.script) for job in before] == [(job.name, job.script) for job in after]


def test_nothing_to_mask() -> None:
    """If it failed, a file without secrets would be changed on its way to the run folder."""
    text = (
        "version: 1 # env: {A: b}\n"
        "jobs:\n"
        "- {name: env, script: 'env: x', args: [env, {a: b}]}\n"
        "- {env: }\n- {env: {}}\n- {env: null}"
    )
    assert masked(text) == text
    assert masked("\ufeff" + text) == text


@pytest.mark.parametrize("text", ["", "env: {A: hunter2", "a: 1\na: 2", "env: {A: 1, A: hunter2}", "--- a\n--- b"])
def test_only_valid_files_are_masked(text: str) -> None:
    """If it failed, a value that no node stands for, such as that of a repeated key, would be kept."""
    with pytest.raises(ValueError, match="only the text of a valid job file"):
        masked(text)


SECRET = "hunter2"
# A secret between what could end a scalar early or look like YAML.
TEXT = st.text(st.sampled_from("aé😀 :#,'\"{}[]&*!|>%@`\\-?~\t\n"), max_size=8)
VALUES = st.builds(lambda before, after: f"{before}{SECRET}{after}", TEXT, TEXT)


@st.composite
def job_files(draw: st.DrawFn) -> str:
    """Job files with all secrets under `env:`, in any style of YAML."""
    environments = st.dictionaries(st.sampled_from("ABCDE"), VALUES | st.just(SECRET), min_size=1)
    shared = draw(environments)
    jobs = [
        {"name": f"j{n}", "script": "train.py", "env": draw(environments | st.just(shared))}
        for n in range(draw(st.integers(1, 3)))
    ]
    # Text, since with a style of its own the dumper would mark a number by a tag, which no job file takes.
    file = {"version": "1", "defaults": {"env": shared}, "jobs": jobs}
    return yaml.dump(
        file,
        Dumper=draw(st.sampled_from([yaml.CSafeDumper, yaml.SafeDumper])),
        allow_unicode=True,
        default_flow_style=draw(st.sampled_from([True, False, None])),
        default_style=draw(st.sampled_from([None, '"', "'", "|", ">"])),
        width=draw(st.sampled_from([20, 80, 10_000])),
        indent=draw(st.sampled_from([2, 4])),
        explicit_start=draw(st.booleans()),
    )


@pytest.mark.slow
@given(job_files())
def test_no_secret_survives_in_any_style(text: str) -> None:
    """If it failed, some way to write a value would leave it, or a part of it, in the copy."""
    copy = masked(text)
    assert SECRET not in copy
    for was, now in zip(yaml.safe_load(text)["jobs"], yaml.safe_load(copy)["jobs"], strict=True):
        assert now == {**was, "env": dict.fromkeys(was["env"], "***")}
