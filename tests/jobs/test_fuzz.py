"""Any text gives jobs, or mistakes with a place in the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.errors import InvalidJobFile
from ecoshare.jobs import document
from ecoshare.jobs.load import load, masked
from ecoshare.jobs.schema import JobConfig
from scripts.fuzz.job_files import WRITTEN, check_places

RICH = """\
version: 1
defaults: &defaults {retries: 1, env: {A: 1, B: &b "x y"}}
jobs:
- &first
  name: a
  script: train.py
  args: [--lr, 1e-3, 'it''s', *b, "\\u00e9\\n"]
  timeout: 2 min
- <<: *first
  name: b
  resume_args:
    - |
      two
      lines
    - >-
      folded
      text
- {name: c, module: pkg.train, <<: [*defaults, {gpus: 2}], "isolation": fresh}  # comment
- ? name
  : d
  script: train.py
"""
TOKENS = (
    *("\t", " ", "  ", "\n", "\r", "\r\n", "- ", ": ", "? ", ", ", "{", "}", "[", "]", "'", '"', "#", "|", ">", "\\"),
    *("&a ", "*a", "*b", "<<: *first", "!", "!!int ", "%", "%YAML 1.1\n", "---\n", "...\n", "@", "`", "~", "null"),
    *("\0", "\x1b", "\x85", "\u2028", "\ufeff", "é", "😀", "env:", "env: {A: [x]}", "jobs:", "version: 1\n", "1e999"),
    *("\\x", "\\ud800", "\\UFFFFFFFF", "=", "-1", ".nan", "lane", "[[[[[[[[[[[[[[[[[["),
)

Edit = Callable[[bytes], bytes]


def _insert(token: bytes, place: float) -> Edit:
    return lambda data: data[: int(place * len(data))] + token + data[int(place * len(data)) :]


def _delete(place: float, size: int) -> Edit:
    return lambda data: data[: int(place * len(data))] + data[int(place * len(data)) + size :]


def _move_line(source: float, target: float) -> Edit:
    def edit(data: bytes) -> bytes:
        lines = data.splitlines(keepends=True) or [b""]
        lines.insert(int(target * len(lines)), lines[int(source * len(lines))])
        return b"".join(lines)

    return edit


PLACES = st.floats(0, 1, exclude_max=True)
EDITS = st.one_of(
    st.builds(_insert, st.sampled_from(TOKENS).map(str.encode), PLACES),
    st.builds(_insert, st.binary(min_size=1, max_size=2), PLACES),
    st.builds(_delete, PLACES, st.integers(1, 12)),
    st.builds(_move_line, PLACES, PLACES),
)
KEYS = st.sampled_from([field.alias or name for name, field in JobConfig.model_fields.items()])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["train.py", "folder", "2 min", "a", "fresh", "lane", "1", "-1", "0"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=4),
    max_leaves=8,
)
JOBS = st.fixed_dictionaries({"name": st.sampled_from("abcdef") | VALUES}, optional={"script": st.just("train.py")})
FILES = st.fixed_dictionaries(
    {"version": st.sampled_from([1, 1, 2, "1", None])},
    optional={
        "defaults": st.dictionaries(KEYS, VALUES, max_size=3) | VALUES,
        "jobs": st.lists(st.builds(lambda job, more: job | more, JOBS, st.dictionaries(KEYS, VALUES, max_size=3)))
        | VALUES,
    },
)


@pytest.fixture(scope="module", params=[yaml.CSafeLoader, yaml.SafeLoader])
def job_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Path for a job file beside `train.py` and `folder`, with either parser."""
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "train.py").touch()
    (folder / "folder").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document, "_LOADER", request.param)
        yield folder / "jobs.yaml"


def _assert_jobs_or_mistakes(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    try:
        loaded = load(path)
    except InvalidJobFile as error:
        check_places(path, error)
        return
    assert all(job.cwd.is_absolute() and (job.script is None) != (job.module is None) for job in loaded.jobs)
    path.write_text(masked(loaded.text), newline="")
    for job, copy in zip(loaded.jobs, load(path).jobs, strict=True):
        assert copy.name == job.name
        assert copy.env == dict.fromkeys(job.env, "***")


@pytest.mark.slow
@given(text=st.sampled_from([RICH, WRITTEN]), edits=st.lists(EDITS, max_size=4))
def test_edited_files(job_file: Path, text: str, edits: list[Edit]) -> None:
    """If it failed, some typing error would end in a traceback, or in a place outside the file."""
    data = text.encode()
    for edit in edits:
        data = edit(data)
    _assert_jobs_or_mistakes(job_file, data)


@pytest.mark.nightly
@given(FILES, st.booleans())
def test_any_structure(job_file: Path, file: dict[str, Any], flow: bool) -> None:
    """If it failed, some value in some place would end in a traceback."""
    dumped = yaml.dump(file, Dumper=yaml.CSafeDumper, default_flow_style=flow, allow_unicode=True)
    _assert_jobs_or_mistakes(job_file, dumped.encode(errors="surrogatepass"))


@given(st.binary(max_size=40) | st.lists(st.sampled_from(TOKENS), max_size=12).map(lambda some: "".join(some).encode()))
def test_any_bytes(job_file: Path, data: bytes) -> None:
    """If it failed, a file that is no job file at all would end in a traceback."""
    _assert_jobs_or_mistakes(job_file, data)
