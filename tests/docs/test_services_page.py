"""The job file of docs/services.md can be loaded, and its program answers."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ecoshare.jobs.load import load
from tests.docs.examples import Block, blocks
from tests.warm import ROOT, Started

PAGE = ROOT / "docs" / "services.md"


def written_in(language: str) -> list[Block]:
    return [block for block in blocks(PAGE) if block.language == language]


def test_the_job_file_of_the_page_has_two_services(tmp_path: Path) -> None:
    block, *_ = written_in("yaml")
    for script in ("serve.py", "ranker.py", "train.py"):
        (tmp_path / script).touch()
    (tmp_path / "day.csv").write_text("arrival_s\n0.5\n1.5\n")
    (tmp_path / "jobs.yaml").write_text(block.text)
    jobs = {job.name: job.service for job in load(tmp_path / "jobs.yaml").jobs}
    assert list(jobs) == ["detector", "ranker", "training"] and jobs["training"] is None
    detector, ranker = jobs["detector"], jobs["ranker"]
    assert detector is not None and ranker is not None and ranker.requests is not None
    assert (detector.p99_s, ranker.p99_s, ranker.queue, ranker.requests.speed) == (0.05, 0.02, 256, 10.0)


def test_the_job_file_of_the_page_has_a_server_that_sleeps(tmp_path: Path) -> None:
    *_, block = written_in("yaml")
    (tmp_path / "train.py").touch()
    (tmp_path / "jobs.yaml").write_text(block.text)
    llm = load(tmp_path / "jobs.yaml").jobs[0].service
    assert llm is not None and llm.port == 8700 and llm.sleep == "http://127.0.0.1:8000/sleep?level=1"


def test_the_job_file_of_the_page_has_services_in_one_process(tmp_path: Path) -> None:
    _, block, _ = written_in("yaml")
    (tmp_path / "serve.py").touch()
    (tmp_path / "cats.csv").write_text("arrival_s\n0.5\n")
    (tmp_path / "jobs.yaml").write_text(block.text)
    jobs = load(tmp_path / "jobs.yaml").jobs
    assert [(job.isolation, job.service is not None) for job in jobs] == [
        ("lane", True),
        ("lane", True),
        ("lane", False),
    ]


@pytest.mark.slow
def test_the_program_of_the_page_answers_and_has_an_application(tmp_path: Path) -> None:
    serves = [
        block for block in written_in("python") if "ecoshare.serve(" in block.text or "= server.app()" in block.text
    ]
    assert len(serves) == 2
    (tmp_path / "program.py").write_text(
        "".join(block.text for block in serves) + "print(callable(app))\nserver.close()\n"
    )
    done = Started(cwd=tmp_path, script=tmp_path / "program.py").done()
    assert done.returncode == 0, done.stderr
    answer, has_application = done.stdout.splitlines()
    assert len(ast.literal_eval(answer)) == 4 and has_application == "True"
