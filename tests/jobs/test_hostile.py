"""Files that would cost too much, or that are hardly text, are refused at once, with a place.

Were a bound lost, these tests would run into the time limit or out of memory rather than fail.
"""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
import yaml

from ecoshare.errors import InvalidJobFile
from ecoshare.jobs import document
from ecoshare.jobs.document import MAX_FILE_BYTES, Source
from ecoshare.jobs.load import load
from ecoshare.jobs.validate import validate

JOBS = "version: 1\njobs:\n"
JOB = JOBS + "- name: a\n  script: train.py\n"
ALIASES = ["- &0 [x, x, x, x, x, x, x, x, x]\n", *(f"- &{n + 1} [{', '.join([f'*{n}'] * 9)}]\n" for n in range(9))]
ENVIRONMENT = ", ".join(f"K{n}: v" for n in range(9_000))

HOSTILE = {
    "alias bomb": (JOBS + "".join(ALIASES), 9, "jobs[6][0]: more than 1,000,000 values"),
    "the same mapping again and again": (
        f"{JOB}  env: &e {{{ENVIRONMENT}}}\n" + "- {name: b, script: train.py, env: *e}\n" * 200,
        60,
        "jobs[55].env: more than 1,000,000 values",
    ),
    "merge bomb": (
        f"{JOBS}- &m0 {{{ENVIRONMENT}}}\n" + "".join(f"- &m{n + 1} {{<<: [*m{n}, *m{n}]}}\n" for n in range(12)),
        8,
        "jobs[5]: more than 1,000,000 values",
    ),
    "deep through aliases": (
        JOBS + "- &0 [x]\n" + "".join(f"- &{n + 1} [*{n}]\n" for n in range(99)),
        17,
        "jobs[14][0]: with this alias, nested deeper than 16 levels",
    ),
    "deep through one alias": (
        f"version: 1\njobs: [&a {'[' * 9}x{']' * 9}, {'[' * 5}*a{']' * 5}, {'[' * 6}*a{']' * 6}]",
        2,
        "jobs[2][0][0][0][0][0][0]: with this alias, nested deeper than 16 levels",
    ),
    "deep list": ("version: 1\njobs: " + "[" * 1_000_000, 2, "nested deeper than 16 levels"),
    "deep mapping": ("version: 1\njobs: " + "{a: " * 250_000, 2, "nested deeper than 16 levels"),
    "deep block": (JOBS + "- " * 500_000, 3, "nested deeper than 16 levels"),
    "deep keys": (JOBS + "? " * 500_000, 3, "nested deeper than 16 levels"),
    "many arguments": (
        JOB + "  args: [" + "[], " * 400_000 + "]",
        5,
        "jobs[0].args[10000]: a list holds at most 10,000",
    ),
    "many unknown keys": (JOB + "".join(f"  k{n}: 1\n" for n in range(200_000)), 10_003, "at most 10,000 keys"),
    "many repeated keys": (JOB + "  retries: 1\n" * 200_000, 1_006, "more mistakes follow"),
    "many wrong jobs": (JOBS + "- {a: 1, b: 2, c: 3, retries: x}\n" * 10_000, 3, "unknown key 'a'"),
    "many unknown keys through an alias": (
        JOBS + f"- &j {{{ENVIRONMENT}}}\n" + "- *j\n" * 50,
        3,
        "jobs[0].K0: unknown key 'K0'",
    ),
    "long values": (
        JOB + "".join(f"  {key}: {'9' * 10**6}\n" for key in ("gpus", "timeout", "slowdown")),
        5,
        "got '999",
    ),
    "long key": (JOB + f"  ? {'k' * 10**6}\n  : 1\n", 5, "unknown key 'kkk"),
    "only line breaks": ("\n" * 5_000_000, 1, "the file is empty"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("text", "line", "what"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_text(text: str, line: int, what: str, folder: Path) -> None:
    """If it failed, a file of a few lines could hang the command or take all memory."""
    Path("jobs.yaml").write_text(text)
    with pytest.raises(InvalidJobFile) as raised:
        load(Path("jobs.yaml"))
    assert len(raised.value.mistakes) <= document.MAX_MISTAKES + 1
    said = [mistake.describe("jobs.yaml") for mistake in raised.value.mistakes if mistake.line == line]
    assert any(what in each for each in said), said


@pytest.mark.slow
def test_mistakes_are_few(folder: Path) -> None:
    """If it failed, a short file would make half a million mistakes, a kilobyte each, to show some."""
    text, _, _ = HOSTILE["many unknown keys through an alias"]
    assert len(validate(document.read_document(Source(text)))[2]) <= 2 * document.MAX_MISTAKES


def test_a_bomb_takes_no_memory(folder: Path) -> None:
    """If it failed, unfolding would have begun before it was refused: a billion values take 50 GB."""
    Path("jobs.yaml").write_text(JOBS + "".join(ALIASES))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidJobFile):
            load(Path("jobs.yaml"))
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


BYTES = {
    "empty": (b"", "1:1: the file is empty; `ecoshare init` writes one"),
    "empty but for a mark": (b"\xef\xbb\xbf", "1:1: the file is empty; `ecoshare init` writes one"),
    "byte order mark": (b"\xef\xbb\xbfversion: 2\njobs: []\n", "1:10: version: expected 1, the only version there is"),
    "carriage returns": (JOB.replace("train", "gone").replace("\n", "\r\n").encode(), "4:11: jobs[0].script: no file"),
    "old line breaks": (JOB.replace("train", "gone").replace("\n", "\r").encode(), "4:11: jobs[0].script: no file"),
    "Latin-1": ("version: 1\n# caf\xe9\n".encode("latin-1"), "2:6: the file is not UTF-8 text from here on; save"),
    "cut in a character": ("version: 1\n# é".encode()[:-1], "2:3: the file is not UTF-8 text from here on; save"),
    "UTF-16": ("version: 1\n".encode("utf-16"), "1:1: the file is not UTF-8 text from here on; it looks like UTF-16"),
    "surrogate": (b"# \xed\xa0\x80\n", "1:3: the file is not UTF-8 text"),
    "NUL": (b"version: 1\0\n", "1:11: the character U+0000 has no place in a job file"),
    "bell": ("version: 1\n# é\x07\n".encode(), "2:4: the character U+0007 has no place in a job file"),
    "escape": (b"# \x1b[2J", "1:3: the character U+001B has no place in a job file"),
    "C1": ("# \x9b2J".encode(), "1:3: the character U+009B has no place in a job file"),
    "next line": ("# \x85".encode(), "1:3: the character U+0085 has no place in a job file"),
    "line separator": ("version: 1\n# 😀\u2028".encode(), "2:4: the character U+2028 has no place in a job file"),
    "mark in the middle": (
        "version: 1\n\ufeffjobs: []".encode(),
        "2:1: the character U+FEFF has no place in a job file",
    ),
    "binary": (bytes(range(256)), "3:115: the file is not UTF-8 text from here on"),
}


@pytest.mark.parametrize(("data", "wanted"), BYTES.values(), ids=BYTES)
def test_bytes(data: bytes, wanted: str, folder: Path) -> None:
    """If it failed, editor and message would count lines differently, or a terminal obey the message."""
    Path("jobs.yaml").write_bytes(data)
    with pytest.raises(InvalidJobFile) as raised:
        load(Path("jobs.yaml"))
    assert str(raised.value).startswith(f"jobs.yaml:{wanted}")
    assert str(raised.value).replace("\n", "").isprintable()


def test_a_file_without_end() -> None:
    """If it failed, a device or a growing log would be read for ever."""
    with pytest.raises(InvalidJobFile, match=rf"1:1: the file is larger than {MAX_FILE_BYTES // 2**20} MiB"):
        load(Path("/dev/zero"))


@pytest.mark.parametrize(
    "escape", ["\\ud800", "\\U00110000", "\\UFFFFFFFF", "\\0", "\\x", "\\u12"], ids=lambda text: text[1:]
)
@pytest.mark.parametrize("loader", [yaml.CSafeLoader, yaml.SafeLoader])
def test_escapes_that_name_no_character(
    escape: str, loader: type[yaml.SafeLoader], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it failed, the start of a job would fail long after the file was accepted."""
    monkeypatch.setattr(document, "_LOADER", loader)
    Path("jobs.yaml").write_text(f'{JOB}  args: ["{escape}"]\n')
    with pytest.raises(InvalidJobFile, match=r":5:1[0-9]: .*(escape|no program)"):
        load(Path("jobs.yaml"))


@pytest.mark.slow
def test_ten_thousand_jobs(folder: Path) -> None:
    """If it failed, a large sweep would be refused, or a larger one accepted and then be too much for a run."""
    text = JOBS + "".join(f"- {{name: job-{n}, script: train.py, args: [--seed, {n}]}}\n" for n in range(10_000))
    Path("jobs.yaml").write_text(text)
    jobs = load(Path("jobs.yaml")).jobs
    assert [job.args[1] for job in jobs] == [str(n) for n in range(10_000)]
    Path("jobs.yaml").write_text(text + "- {name: one-more, script: train.py}\n")
    with pytest.raises(InvalidJobFile, match=r"jobs.yaml:10003:3: jobs\[10000\]: a list holds at most 10,000 items"):
        load(Path("jobs.yaml"))
