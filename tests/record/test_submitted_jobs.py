"""The file of submitted jobs after a crash, and on a full disk."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ecoshare.errors import UnfitEnvironment
from ecoshare.record import run_documents
from ecoshare.record.plan_document import JobDocument


def jobs(*names: str) -> list[JobDocument]:
    return [JobDocument.model_construct(name=name) for name in names]


def names(path: Path) -> list[str]:
    return [job["name"] for job in run_documents.read(path)]


def test_a_cut_line_does_not_spoil_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "submitted.jsonl"
    path.write_bytes(b'{"name": "cut')
    run_documents.append(path, jobs("a"))
    with path.open("ab") as file:
        file.write(b'{"name": "cut')
    assert names(path) == ["a"]
    run_documents.append(path, jobs("b", "c"))
    assert names(path) == ["a", "b", "c"]


@pytest.fixture
def small_files() -> Iterator[int]:
    """Largest size (bytes) of files, in place of a full disk: a write takes what there is room for."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    yield 1000
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_disk_that_is_nearly_full_takes_no_half_of_a_job(tmp_path: Path, small_files: int) -> None:
    path = tmp_path / "submitted.jsonl"
    run_documents.append(path, jobs("a"))
    with pytest.raises(UnfitEnvironment, match="No space left"):
        run_documents.append(path, jobs("x" * small_files))
    run_documents.append(path, jobs("b"))
    assert names(path) == ["a", "b"]
