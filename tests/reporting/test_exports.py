"""Exports of a real run: one job that completes, and one that fails with a hostile message."""

from __future__ import annotations

import csv
import dataclasses
import fcntl
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet
import pytest

from ecoshare.errors import UnfitEnvironment
from ecoshare.record.run_data import RunData, read
from ecoshare.record.run_folder import RunFolder
from ecoshare.reporting import exports
from tests.reporting.test_html import Page
from tests.reporting.test_perfetto import read as read_trace
from tests.runtime.running import job_file, slow_steps
from tests.warm import Started, ecoshare

HOSTILE = "=1+1 <script>alert('stderr')</script>"


class Done(NamedTuple):
    """Finished run."""

    folder: RunFolder
    process: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    where = tmp_path_factory.mktemp("run")
    (where / "bad.py").write_text(f"raise SystemExit({HOSTILE!r})\n")
    job_file(where, slow_steps("good", 20, 10), {"name": "bad.one", "script": str(where / "bad.py")})
    process = ecoshare("run", "jobs.yaml", "--device", "cpu", "--no-profiles", cwd=where)
    return Done(RunFolder.open(where / "ecoshare-runs" / "latest"), process)


def exported(run: Path, form: str, stdout: int | None = None) -> Started:
    """Output of the command line."""
    process = Started("export", run, "--format", form, stdout=stdout)
    process.wait()
    return process


def content(done: Done, form: str) -> bytes:
    """Bytes that the command line writes into a pipe."""
    process = exported(done.folder.path, form)
    assert (process.returncode, process.stderr) == (0, "")
    return process.written


@pytest.fixture
def copy(done: Done, tmp_path: Path) -> RunFolder:
    """Copy of the same run that a test may damage."""
    shutil.copytree(done.folder.path, tmp_path / "run")
    return RunFolder.open(tmp_path / "run")


@pytest.mark.slow
def test_a_run_ends_with_its_report_and_its_trace(done: Done) -> None:
    assert done.process.returncode == 1, done.process.stderr
    assert "not drawn" not in done.process.stderr
    words, _, report = done.process.stdout.splitlines()[-1].partition(": ")
    assert words == "report" and (done.folder.path.parents[1] / report) == done.folder.report
    assert b"<h1>" in done.folder.report.read_bytes()
    assert read_trace(done.folder.trace.read_bytes()).slices


@pytest.mark.slow
def test_parquet_has_the_rows_of_csv_with_their_types(done: Done) -> None:
    table = pyarrow.parquet.read_table(io.BytesIO(content(done, "parquet")))
    rows = table.to_pylist()
    texts = list(csv.DictReader(io.StringIO(content(done, "csv").decode())))
    assert [row["name"] for row in rows] == [row["name"] for row in texts] == ["good", "bad.one"]
    assert table.column_names == list(texts[0])
    for row, text in zip(rows, texts, strict=True):
        for name, kind in exports.COLUMNS.items():
            assert row[name] is None or type(row[name]) is kind, name
            assert text[name].removeprefix("'") == ("" if row[name] is None else str(row[name])), name
    assert (rows[0]["iterations"], rows[0]["error"], rows[1]["exit_code"]) == (20, None, 1)
    assert rows[1]["slowdown"] is None and rows[1]["error"] == HOSTILE, "not known is null, and text is as it was"


@pytest.mark.nightly
def test_a_column_of_which_nothing_is_known_keeps_its_type(done: Done) -> None:
    summary = read(done.folder).summary
    jobs = tuple(dataclasses.replace(job, energy=None, jct_s=None) for job in summary.jobs)
    schema = pyarrow.parquet.read_schema(io.BytesIO(exports.parquet(dataclasses.replace(summary, jobs=jobs))))
    assert [str(schema.field(name).type) for name in ("jct_s", "energy_j", "energy_source", "exit_code")] == [
        "double",
        "double",
        "string",
        "int64",
    ]


@pytest.mark.slow
def test_json_is_the_summary(done: Done) -> None:
    assert json.loads(content(done, "json"))["jobs"] == json.loads(done.folder.summary.read_text())["jobs"]


@pytest.mark.slow
def test_html_names_every_job_and_shows_what_it_said_as_text(done: Done) -> None:
    page = Page(content(done, "html").decode())
    assert not page.named("script") and HOSTILE in page.text
    for name in ("good", "bad.one"):
        assert page.text.count(name) >= 3, f"{name} is missing in the table or the charts"
    assert len(page.named("svg")) >= 4, "turns, power, energy or memory of a real run are not drawn"


def test_perfetto_has_the_iterations_of_a_real_run(done: Done) -> None:
    slices = read_trace(content(done, "perfetto")).slices
    lane = next(found for path, found in slices.items() if path.endswith("/lane 0"))
    assert sum(each.name == "train" for each in lane) == 20
    outcomes = [each.args.get("outcome") for path, found in slices.items() if "/jobs/" in path for each in found]
    assert {"completed", "failed"} <= set(outcomes)


@pytest.mark.parametrize("form", exports.BINARY)
def test_what_is_no_text_is_kept_from_terminals(done: Done, form: str) -> None:
    master, slave = os.openpty()
    try:
        process = exported(done.folder.path, form, stdout=slave)
    finally:
        os.close(slave)
        os.close(master)
    assert process.returncode == 2 and "--output" in process.stderr


def test_another_format_is_told_all_there_are(done: Done) -> None:
    process = exported(done.folder.path, "xlsx")
    assert (process.returncode, process.stdout) == (2, "")
    assert all(form in process.stderr for form in exports.FORMS)


def test_without_pyarrow_the_remedy_is_named(done: Done, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UnfitEnvironment) as caught:
        exports.export(done.folder, "parquet")
    assert caught.value.hint == "pip install 'ecoshare[parquet]'"


def test_a_run_that_was_cut_off_can_be_exported_in_every_form(copy: RunFolder) -> None:
    for path in (copy.events, copy.samples):
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) * 2 // 3])
    for path in [*copy.jobs.glob("*/exit-*.json"), copy.environment]:
        path.unlink()
    trace = copy.job("good") / "trace.bin"
    trace.write_bytes(trace.read_bytes()[:-20])
    before = copy.events.read_bytes()
    for form in exports.FORMS:
        assert exports.export(copy, form), form
    assert {job.state for job in read(copy).summary.jobs} & {"cancelled", "failed"}
    assert copy.events.read_bytes() == before, "looking at a run changed it"


@pytest.mark.slow
def test_a_run_that_goes_on_is_shown_as_such(copy: RunFolder) -> None:
    with copy.events.open("ab") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        assert read(copy).summary.state == "running"
        assert b'<span class="state running">running</span>' in exports.export(copy, "html")
    assert read(copy).summary.state == "failed"


def test_a_report_that_cannot_be_drawn_costs_a_line(copy: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_data: RunData) -> bytes:
        raise ValueError("no font")

    copy.trace.unlink()
    monkeypatch.setattr(exports, "html", broken)
    told: list[str] = []
    assert not exports.draw_end_of_run(copy, read(copy), told.append)
    assert len(told) == 1 and "report.html" in told[0] and "no font" in told[0]
    assert not copy.report.exists(), "the report of an earlier session passes for that of this one"
    assert copy.trace.exists(), "one that fails took the other with it"


@pytest.mark.slow
def test_an_interrupt_ends_the_drawing_alone(copy: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_data: RunData) -> bytes:
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the signal did nothing")

    monkeypatch.setattr(exports, "perfetto", interrupted)
    told: list[str] = []
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # like a run
    try:
        assert exports.draw_end_of_run(copy, read(copy), told.append), "the report was there already"
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(told) == 1 and "interrupted" in told[0]
    assert copy.report.exists() and not copy.trace.exists() and not list(copy.path.glob("*.new"))


@pytest.mark.slow
def test_a_huge_trace_is_written_only_where_asked_for(copy: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "_MOST_MARKS", 10)
    told: list[str] = []
    assert exports.draw_end_of_run(copy, read(copy), told.append)
    assert not copy.trace.exists() and "--format perfetto --output" in told[0]
    assert exports.export(copy, "perfetto")


@pytest.mark.slow
def test_what_draws_is_loaded_only_to_draw() -> None:
    program = (
        "import sys, ecoshare.cli, ecoshare.runtime.run_lifecycle, ecoshare.reporting.exports; print(*sys.modules)"
    )
    seen = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"matplotlib", "jinja2", "perfetto", "google.protobuf", "pyarrow"} & set(seen)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["events.jsonl", "plan.json", "jobs/bad.one/stderr.log", "../run/samples.jsonl"])
def test_an_export_does_not_replace_what_the_run_is_known_by(done: Done, tmp_path: Path, name: str) -> None:
    shutil.copytree(done.folder.path, tmp_path / "run")
    own = (tmp_path / "run" / name).resolve()
    before = own.read_bytes()
    refused = ecoshare("export", "run", "--output", f"run/{name}", cwd=tmp_path)
    assert refused.returncode == 2 and "belongs to the run itself" in refused.stderr
    assert own.read_bytes() == before
    for _ in range(2):
        assert ecoshare("export", "run", "-o", "run/mine.json", cwd=tmp_path).returncode == 0
