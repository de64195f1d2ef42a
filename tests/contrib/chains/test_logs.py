"""Logs of batch queues: sacct, the Standard Workload Format, Philly, and the listing of squeue."""

from __future__ import annotations

from contextlib import suppress
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.contrib.chains.logs import squeue_listing
from ecoshare.contrib.chains.logs.batch_job import ROUND_S, BatchJob, with_limits
from ecoshare.contrib.chains.logs.batch_log import BatchLog, read
from ecoshare.contrib.chains.own_jobs import duration_s, moment_s, resource_count
from ecoshare.contrib.chains.queue_sight import RunningJob, StartedJob, WaitingJob
from ecoshare.errors import EcoshareError, InvalidJobFile, Mistake, UsageError
from tests.contrib.chains.made_jobs import job
from tests.simulation.trace_files import PHILLY, TIRESIAS, written

SACCT = """\
User|JobID|Partition|State|Submit|Eligible|Start|End|Timelimit|AllocTRES|ReqTRES|JobName|
ann|7|gpu|COMPLETED|2026-01-05T10:00:00|2026-01-05T10:00:00|2026-01-05T10:05:00|2026-01-05T11:05:00|\
1-00:00:00|cpu=8,mem=32G,node=1,billing=8,gres/gpu=4,gres/gpu:a100=4|cpu=8|a "name|
|7.batch||COMPLETED|2026-01-05T10:05:00|Unknown|2026-01-05T10:05:00|2026-01-05T11:05:00||cpu=8||batch|
bob|6_1|gpu|TIMEOUT|2026-01-05T09:00:00|2026-01-05T09:30:00|2026-01-05T09:40:00|2026-01-05T10:41:00|\
01:00:00|gres/gpu:h100=2||x|
bob|8|gpu|RUNNING|2026-01-05T11:00:00|2026-01-05T11:00:00|2026-01-05T11:00:30|Unknown|UNLIMITED|gres/gpu=1||x|
bob|9|gpu|PENDING|2026-01-05T12:00:00|Unknown|Unknown|Unknown|30:00||cpu=1,gres/gpu=8|x|
bob|10|gpu|CANCELLED by 1000|2026-01-05T12:00:00|2026-01-05T12:00:00|None|2026-01-05T12:01:00|30:00||gres/gpu=8|x|
bob|11|gpu|CANCELLED by 1000|2026-01-05T12:00:00|2026-01-05T12:00:00|2026-01-05T12:01:00|2026-01-05T12:01:00|30:00||\
gres/gpu=8|x|
bob|12|cpu|COMPLETED|2026-01-05T12:00:00|2026-01-05T12:00:00|2026-01-05T12:01:00|2026-01-05T12:02:00|30:00|cpu=4||x|
"""
DAY_S = moment_s("2026-01-05T00:00:00") or 0.0
HOUR_S = 3600.0


def test_the_output_of_sacct(tmp_path: Path) -> None:
    """Waits count from the moment from which a job could start; the limit may come a minute late."""
    log = read(written(tmp_path, SACCT))
    assert log.jobs == (
        BatchJob("6_1", DAY_S + 9.5 * HOUR_S, 2, 3660.0, 3600.0, "bob", "gpu", 600.0),
        BatchJob("7", DAY_S + 10 * HOUR_S, 4, 3600.0, 86400.0, "ann", "gpu", 300.0),
        BatchJob("8", DAY_S + 11 * HOUR_S, 1, inf, inf, "bob", "gpu", 30.0),
        BatchJob("9", DAY_S + 12 * HOUR_S, 8, inf, 1800.0, "bob", "gpu", None),
    )
    assert (log.gpus, log.left_out, log.most_held) == (None, 3, 6)


def test_columns_in_another_order_and_without_a_bar_at_the_end(tmp_path: Path) -> None:
    rows = [line.rstrip("|").split("|") for line in SACCT.splitlines()]
    width = len(rows[0])
    rows = [[*row, *[""] * (width - len(row))][::-1] for row in rows]
    other = "\n".join("|".join(row) for row in rows) + "\n"
    assert read(written(tmp_path, other)) == read(written(tmp_path, SACCT, "first.txt"))


def test_processors_count_where_they_are_asked_for(tmp_path: Path) -> None:
    log = read(written(tmp_path, SACCT), resource="cpu")
    assert {each.name: each.gpus for each in log.jobs} == {"7": 8, "9": 1, "12": 4}


def mistakes(path: Path) -> tuple[Mistake, ...]:
    with pytest.raises(InvalidJobFile) as caught:
        read(path)
    return caught.value.mistakes


HEADER = "JobID|Submit|Start|End|Timelimit|State|AllocTRES\n"
GOOD = "1|2026-01-05T10:00:00|2026-01-05T10:00:00|2026-01-05T10:01:00|10:00|COMPLETED|gres/gpu=1\n"


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        (HEADER + GOOD.replace("05T10:00:00", "05T25:00", 1), (2, 3, "Submit"), "moment such as"),
        (HEADER + GOOD.replace("2026-01-05T10:00:00", "Unknown", 1), (2, 3, "Submit"), "got none"),
        (HEADER + GOOD.replace("|10:00|", "|soon|"), (2, 63, "Timelimit"), "got 'soon'"),
        (HEADER + GOOD.replace("|10:00|", "|0:00|"), (2, 63, "Timelimit"), "time limit"),
        (HEADER + GOOD + GOOD, (3, 1, "JobID"), "also in line 2"),
        (HEADER + GOOD.replace("T10:01:00", "T09:01:00"), (2, 43, "End"), "before the start"),
        (HEADER + GOOD.replace("T10:00:00|2026", "T10:00:05|2026", 1), (2, 23, "Start"), "before the submission"),
        (HEADER + "1|2\n", (2, 1, ""), "expected 7 cells, got 2"),
        (HEADER.replace("|State", ""), (1, 1, ""), "column 'State'"),
        (HEADER.replace("|AllocTRES", ""), (1, 1, ""), "column 'AllocTRES'"),
    ],
)
def test_a_wrong_cell_is_named_by_line_and_column(
    tmp_path: Path, text: str, place: tuple[int, int, str], words: str
) -> None:
    (found,) = mistakes(written(tmp_path, text))
    assert (found.line, found.column, found.where) == place
    assert words in found.what


SWF = """\
; Version: 2.2
; UnixStartTime: 1000000
; MaxProcs: 128

  2  50  30 3600  8 -1 -1  16 7200 -1 1  3 1 -1  1  2 -1 -1
  1   0  -1   10  4 -1 -1  -1   -1 -1 0 -1 1 -1  1 -1 -1 -1
  3  60  -1   -1 -1 -1 -1   4  100 -1 5  3 1 -1  1 -1 -1 -1
  4  60   5   20  4 -1 -1   4  100 -1 3  3 1 -1  1 -1 -1 -1
"""


def test_the_standard_workload_format(tmp_path: Path) -> None:
    """Requested processors count before allocated ones; parts of jobs are left out without being counted."""
    log = read(written(tmp_path, SWF))
    assert log.jobs == (
        BatchJob("1", 1000000.0, 4, 10.0, inf),
        BatchJob("2", 1000050.0, 16, 3600.0, 7200.0, "3", "2", 30.0),
    )
    assert (log.gpus, log.left_out) == (128, 1)


@pytest.mark.parametrize(
    ("old", "new", "place", "words"),
    [
        ("50  30", "50  x0", (5, 10, "wait time"), "got 'x0'"),
        ("50  30", "50", (5, 1, ""), "expected 18 numbers, got 17"),
        ("  1   0", "  2   0", (6, 1, "job number"), "2 is also the number of the job in line 5"),
        ("3600", "-7", (5, 13, "run time"), "-1 or more"),
    ],
)
def test_a_wrong_number_is_named_by_line_and_column(
    tmp_path: Path, old: str, new: str, place: tuple[int, int, str], words: str
) -> None:
    (found,) = mistakes(written(tmp_path, SWF.replace(old, new, 1)))
    assert (found.line, found.column, found.where) == place
    assert words in found.what


def test_many_mistakes_are_not_all_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidJobFile) as caught:
        read(written(tmp_path, ";\n" + "1 2\n" * 50))
    assert (len(caught.value.mistakes), caught.value.hint) == (20, "and 30 more")


def test_philly_has_a_partition_for_each_cluster(tmp_path: Path) -> None:
    text = PHILLY + "2017-10-09 07:00:10,66.0,2,132.0,b\n2017-10-09 07:00:00,0.0,1,0.0,a\n2017-10-09 07:00:00,5,1,5,a\n"
    first, second = read(written(tmp_path, text)).jobs
    assert (first.partition, first.run_s, first.limit_s, first.wait_s) == ("a", 5.0, inf, None)
    assert (second.partition, second.gpus, second.submit_s - first.submit_s) == ("b", 2, 10.0)


def test_other_traces_are_read_as_the_simulator_reads_them(tmp_path: Path) -> None:
    (found,) = read(written(tmp_path, TIRESIAS + "7,2,5,100,vgg,50,1\n")).jobs
    assert (found.name, found.gpus, found.submit_s, found.run_s) == ("7", 2, 5.0, 50.0)


def test_a_file_that_is_no_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidJobFile):
        read(written(tmp_path, "hello\n"))
    with pytest.raises(UsageError, match="is empty"):
        read(written(tmp_path, "\n"))


LISTING = """\
7   |RUNNING |2026-01-05T09:00:00|2026-01-05T11:00:00|1-00:00:00|23:00:00|100|cpu=8,gres/gpu=2
8   |PENDING |2026-01-05T10:00:00|N/A                |12:00:00  |12:00:00|100|cpu=8,gres/gpu=1
9_2 |PENDING |2026-01-05T11:00:00|N/A                |UNLIMITED |INVALID |900|cpu=8,gres/gpu=4
10  |RUNNING |2026-01-05T09:00:00|2026-01-05T09:00:00|10:00     |5:00    |100|cpu=8
11  |PENDING |2026-01-05T11:30:00|N/A                |30:00     |30:00   |100|cpu=8,gres/gpu=1
12  |COMPLETING|2026-01-05T11:30:00|2026-01-05T11:30:00|30:00   |30:00   |100|cpu=8,gres/gpu=1
"""


def test_a_listing_of_squeue_is_a_sight_of_the_queue() -> None:
    past = read_jobs()
    sight = squeue_listing.sight(LISTING, gpus=8, at_s=DAY_S + 12 * HOUR_S, past=past, leave_out={"11"})
    assert sight.running == (RunningJob(2, 23 * HOUR_S),)
    assert sight.waiting == (WaitingJob(4, inf, HOUR_S), WaitingJob(1, 12 * HOUR_S, 2 * HOUR_S))
    assert sight.started == (StartedJob(2, 5.0), StartedJob(1, 20.0))
    assert (sight.free_gpus, sight.used_share) == (6, 0.75)
    bare = squeue_listing.sight(LISTING, gpus=8, at_s=DAY_S + 12 * HOUR_S)
    assert bare.started == (StartedJob(2, 2 * HOUR_S),), "without a log, running jobs are the last starts"


def read_jobs() -> list[BatchJob]:
    return [
        BatchJob("a", DAY_S + 100.0, 1, 50.0, 50.0, wait_s=20.0),
        BatchJob("b", DAY_S, 2, 50.0, 100.0, wait_s=5.0),
        BatchJob("later", DAY_S + 12 * HOUR_S, 2, inf, 100.0, wait_s=1.0),
        BatchJob("waits", DAY_S, 2, inf, 100.0),
    ]


def test_a_wrong_listing_is_named_by_line_and_column() -> None:
    with pytest.raises(InvalidJobFile) as caught:
        squeue_listing.sight(LISTING.replace("23:00:00", "x"), gpus=8, at_s=DAY_S)
    (found,) = caught.value.mistakes
    assert (found.line, found.column, found.where) == (1, 66, "TimeLeft")


def test_the_fields_of_squeue_are_wide_enough() -> None:
    """If it failed, squeue would cut resources at 20 characters, and jobs would have no GPUs."""
    fields = squeue_listing.FORMAT.split(",")
    assert fields[0] == "JobArrayID:40|" and fields[-1] == "tres-alloc:255"
    assert len(fields) == len(squeue_listing.COLUMNS)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1-02:03:04", 93784.0),
        ("12:00:00", 43200.0),
        ("30:00", 1800.0),
        ("5", 5.0),
        ("UNLIMITED", inf),
        ("Partition_Limit", inf),
        ("soon", None),
        ("1:2:3:4", None),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert duration_s(text) == seconds


CELLS = st.sampled_from(["", "|", "nan", "inf", "-1", "1e400", "9" * 40, "Unknown", "0-0", "\x00", '"', "²", ";", "\n"])


@given(st.sampled_from([SACCT, SWF, LISTING]), st.lists(st.tuples(st.floats(0.0, 1.0), CELLS), max_size=4))
def test_damaged_logs_are_read_or_refused_with_a_message(text: str, damage: list[tuple[float, str]]) -> None:
    """If it failed, a user would see a traceback."""
    is_listing = text == LISTING
    for part, cell in damage:
        place = int(part * len(text))
        text = text[:place] + cell + text[place + len(cell) :]
    with TemporaryDirectory() as folder, suppress(EcoshareError):
        if is_listing:
            squeue_listing.sight(text, gpus=8, at_s=DAY_S)
        else:
            read(written(Path(folder), text))


def test_moments_and_resources() -> None:
    assert moment_s("1970-01-02T00:00:00") == 86400.0 == moment_s("86400")
    assert moment_s("never") is None
    assert resource_count("cpu=8,gres/gpu:a=1,gres/gpu:b=2") == 3
    assert resource_count("cpu=8,gres/gpu=4,gres/gpu:a=4") == 4
    assert resource_count("gres/gpu=many,node=2", "node") == 2
    assert resource_count("") == 0


def test_drawn_limits_are_round_and_never_below_the_time_of_a_job() -> None:
    jobs = [job(f"j{number}", 0.0, 1, 37.0 * (number + 1), inf) for number in range(2000)]
    limited = with_limits(jobs, 86400.0, 0)
    assert limited == with_limits(jobs, 86400.0, 0) != with_limits(jobs, 86400.0, 1)
    assert all(each.limit_s in ROUND_S and each.limit_s <= 86400.0 for each in limited)
    assert all(each.run_s <= each.limit_s for each in limited)
    (cut,) = with_limits([job("long", 0.0, 1, 1e6, inf)], 86400.0, 0)
    assert (cut.lasts_s, BatchLog((cut,)).most_held) == (86400.0, 0)
