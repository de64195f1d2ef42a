"""Reading of trials' output from growing files: bounded in each look, and complete at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoshare.jobs import sweep
from ecoshare.lane.trace import reports_path
from ecoshare.record.metric_reader import MetricReader, reported

LINE = b"loss=1 %s\n" % (b"x" * 90)


def test_a_look_reads_a_bounded_part_and_the_last_one_everything(tmp_path: Path) -> None:
    """Before, a burst of 300 MB of output took the controller to 965 MiB."""
    (tmp_path / "stdout.log").write_bytes(LINE * 50_000)
    reader = MetricReader(sweep.read_metric("loss={:f}"), tmp_path, 1)
    first = reader.read()
    assert 5_000 < len(first) < 15_000
    assert len(first) + len(reader.read(over=True)) == 50_000
    assert reader.read(over=True) == []


def test_a_line_counts_when_it_has_ended(tmp_path: Path) -> None:
    log = tmp_path / "stdout.log"
    reader = MetricReader(sweep.read_metric("loss={:f}"), tmp_path, 1)
    seen = []
    for added in (b"loss=1", b"2\nlo", b"ss=3\rloss=4", b" \xff\xfe", b"loss=5"):
        with log.open("ab") as file:
            file.write(added)
        seen.append(reader.read())
    assert seen == [[], [12.0], [3.0], [], []]
    assert reader.read(over=True) == [5.0]


def test_of_a_line_without_end_the_last_part_counts(tmp_path: Path) -> None:
    (tmp_path / "stdout.log").write_bytes(b"loss=1 " + b"." * (3 << 20) + b" loss=2")
    reader = MetricReader(sweep.read_metric("loss={:f}"), tmp_path, 1)
    assert reader.read() == []
    assert reader.read(over=True) == [2.0]


@pytest.mark.parametrize(
    "damaged",
    ["", "{", "[1]", "7", '"loss"', '{"loss": null}', '{"loss": "much"}', '{"loss": [1]}', f'{{"loss": 1{"0" * 400}}}'],
)
def test_a_damaged_report_is_none(tmp_path: Path, damaged: str) -> None:
    reports_path(tmp_path, 1).write_text(f'{{"loss": 1.5}}\n{damaged}\n{{"acc": 1, "loss": 2}}\n')
    assert MetricReader(sweep.read_metric("loss"), tmp_path, 1).read(over=True) == [1.5, 2.0]


def test_all_reports_of_an_attempt_by_name(tmp_path: Path) -> None:
    """A value that is not finite stays in its place: reports of two scripts are compared by their number."""
    lines = [
        '{"loss": 2, "acc": 0.5}',
        '{"loss": NaN, "acc": 0.75}',
        "[1]",
        '{"loss": null}',
        "{",
        '{"loss": 1}',
        '{"l',
    ]
    reports_path(tmp_path, 1).write_text("\n".join(lines))
    assert reported(tmp_path, 1) == {"loss": (2.0, None, 1.0), "acc": (0.5, 0.75)}
    assert reported(tmp_path, 2) == {}
    reports_path(tmp_path, 2).write_text('{"loss": 1}\n' * 3000)
    assert len(reported(tmp_path, 2)["loss"]) == 1000
