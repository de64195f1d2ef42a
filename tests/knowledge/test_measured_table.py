"""Reading of measured tables: each kind of mistake is reported with its own words and place."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.errors import InvalidJobFile, UsageError
from ecoshare.knowledge.advisers.measured_table import Table, read
from ecoshare.knowledge.advisers.table_columns import ColumnContent, parse_columns
from tests.knowledge.invented import COLUMNS, write_table
from tests.simulation.trace_files import data, needs_data

SMALL = "limit,watts,epoch_s\n100,99,2.0\n200,150,1.5\n"
SMALL_COLUMNS = "power_limit=limit,time=epoch_s,power=watts"


def small(folder: Path, text: str, columns: str = SMALL_COLUMNS, *where: str) -> Table:
    (folder / "t.csv").write_text(text)
    return read(folder / "t.csv", [columns], where)


def test_rows_are_settings_with_what_was_measured(tmp_path: Path) -> None:
    table = read(write_table(tmp_path / "t.csv"), [COLUMNS])
    assert [knob.name for knob in table.knobs] == ["limit", "batch"] and [knob.unit for knob in table.knobs] == [
        "W",
        "",
    ]
    assert len(table.rows) == 27
    row = table.at({"batch": 64.0, "limit": 250.0})
    assert row.power_w == pytest.approx(165.0) and row.times_s == {"epoch_s": pytest.approx(112.5)}


def test_a_hole_is_an_error_and_never_a_guess(tmp_path: Path) -> None:
    table = read(write_table(tmp_path / "t.csv"), [COLUMNS])
    with pytest.raises(LookupError, match="no row for limit=250,batch=32"):
        table.at({"limit": 250.0, "batch": 32.0})


def test_units_are_converted_and_unknown_ones_refused(tmp_path: Path) -> None:
    text = "core,mw,ms\n1.2,99000,2.0\n1.5,150000,1.5\n"
    table = small(tmp_path, text, "core_clock=core:GHz,time=ms:ms,power=mw:mW")
    assert table.at({"core": 1500.0}).power_w == 150.0 and table.at({"core": 1500.0}).times_s == {"ms": 0.0015}
    with pytest.raises(UsageError, match="unit 'kHz'") as caught:
        small(tmp_path, text, "core_clock=core:kHz,time=ms:ms,power=mw:mW")
    assert "MHz, GHz" in caught.value.hint


def test_several_jobs_and_other_knobs(tmp_path: Path) -> None:
    text = "threads,workers,a,b,w\n1,2,1,2,50\n2,2,1,3,60\n"
    table = small(tmp_path, text, "other=threads,other=workers,time=a,time=b,power=w")
    assert table.at({"threads": 2.0, "workers": 2.0}).times_s == {"a": 1.0, "b": 3.0}


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + SMALL,
        SMALL.replace(",", ";"),
        SMALL.replace(",", "\t"),
        SMALL.replace("\n", "\r\n"),
        "\n\n" + SMALL + "\n , ,\n",
        SMALL.replace("limit", ' "limit"').replace("99", '"99"').replace("200", " 2e2 "),
    ],
)
def test_tables_of_many_makers_are_read(tmp_path: Path, text: str) -> None:
    assert list(small(tmp_path, text).rows) == [(100.0,), (200.0,)]


@pytest.mark.parametrize("column", [0, 1, 2])
@pytest.mark.parametrize("wrong", ["", "x", "nan", "inf", "-1", "0", "1_0", "1e999", "12 W"])
def test_a_cell_that_is_no_number_is_told_with_its_place(tmp_path: Path, column: int, wrong: str) -> None:
    cells = ["200", "150", "1.5"]
    cells[column] = wrong
    with pytest.raises(InvalidJobFile) as caught:
        small(tmp_path, "limit,watts,epoch_s\n100,99,2\n" + ",".join(cells) + "\n")
    (mistake,) = caught.value.mistakes
    assert (mistake.line, mistake.column) == (3, 1 + len(",".join(["200", "150", "1.5"][:column]) + "," * (column > 0)))
    assert mistake.where == ["limit", "watts", "epoch_s"][column] and "positive number" in mistake.what


@given(
    st.lists(st.lists(st.text(st.sampled_from('a1,"\n ;'), max_size=6), min_size=3, max_size=3), min_size=1, max_size=4)
)
def test_the_place_of_a_cell_is_where_it_begins(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "places.csv"
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow(["limit", "watts", "epoch_s"])
    for number, row in enumerate(rows):
        writer.writerow([f"{number + 1}", f"no {row[0]}", row[1] + row[2]])
    path.write_text(text.getvalue())
    with pytest.raises(InvalidJobFile) as caught:
        read(path, [SMALL_COLUMNS])
    lines = text.getvalue().split("\n")
    watts = [mistake for mistake in caught.value.mistakes if mistake.where == "watts"]
    assert len(watts) == len(rows)
    for mistake in watts:
        assert lines[mistake.line - 1][mistake.column - 1 :].startswith('"no '), "an editor jumps elsewhere"


def test_a_quotation_mark_inside_a_cell_is_no_defect_of_ours(tmp_path: Path) -> None:
    """The mark separates nothing for the reader, but hides the later cells from a search for their places."""
    with pytest.raises(InvalidJobFile) as caught:
        small(tmp_path, 'net,limit,watts,epoch_s\na,100,99,2\n5" disk,200,x,2\n')
    (mistake,) = caught.value.mistakes
    assert (mistake.line, mistake.where) == (3, "watts")


def test_all_mistakes_come_at_once_and_only_of_the_rows_asked_for(tmp_path: Path) -> None:
    text = "net,limit,watts,epoch_s\na,1,x,2\na,2,5,y\nb,1,5,5\nb,2,5,5\n"
    with pytest.raises(InvalidJobFile) as caught:
        small(tmp_path, text)
    assert len(caught.value.mistakes) == 2
    table = small(tmp_path, text, SMALL_COLUMNS, "net=b")
    assert len(table.rows) == 2 and table.others == (), "a workload that cannot be read is not there"


def test_two_rows_of_one_setting_are_told_with_what_parts_them(tmp_path: Path) -> None:
    text = "net,run,limit,watts,epoch_s\na,1,100,9,2\nb,1,100,9,2\na,1,200,9,2\nb,1,200,9,2\n"
    with pytest.raises(InvalidJobFile, match="3:1: the same setting as in line 2, and 1 more") as caught:
        small(tmp_path, text)
    assert caught.value.hint == "choose with --where net=VALUE, one of a, b"
    with pytest.raises(InvalidJobFile) as same:
        small(tmp_path, SMALL + "100,99,2.0\n")
    assert "keep one row a setting" in same.value.hint


def test_other_workloads_of_the_table_are_kept_for_comparison(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", {"a": 0.3, "b": 0.6, "c": 0.9})
    table = read(path, [COLUMNS], ["network=b"])
    assert len(table.rows) == 27 and [len(each) for each in table.others] == [27, 27]
    assert read(path, [COLUMNS], ["network=b,batch=64.0"]).others, "numbers are equal however they are written"


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "empty"), ("limit,watts,epoch_s\n", "one setting"), ("limit,watts,epoch_s\n1,2,3\n", "one setting")],
)
def test_nothing_to_search_is_said(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        small(tmp_path, text)


def test_ragged_rows_and_names_that_are_there_twice(tmp_path: Path) -> None:
    with pytest.raises(InvalidJobFile, match="3:1: 2 cells, where the first line has 3"):
        small(tmp_path, "limit,watts,epoch_s\n1,2,3\n1,2\n")
    with pytest.raises(InvalidJobFile, match="two columns are named 'watts'"):
        small(tmp_path, "limit,watts,watts\n1,2,3\n")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.csv"):
        with pytest.raises(UsageError, match="cannot read"):
            read(path, [SMALL_COLUMNS])
    (tmp_path / "binary.csv").write_bytes(b"\x80\x81\x00")
    with pytest.raises(UsageError, match="no text"):
        read(tmp_path / "binary.csv", [SMALL_COLUMNS])
    (tmp_path / "huge.csv").write_text('limit\n"' + "x" * 200_000 + '"\n')
    with pytest.raises(InvalidJobFile, match="field larger"):
        read(tmp_path / "huge.csv", [SMALL_COLUMNS])


RATE_NAMES = ["it/s", "Throughput", "samples_per_s", "img per sec", "tokens/second", "GFLOPS", "fps", "rate_ms"]
TIME_NAMES = ["epoch_s", "s/it", "time_per_step", "s_per_sample", "ms/sample", "iteration time", "Mean latency (ms)"]


@pytest.mark.parametrize("name", [*RATE_NAMES, *TIME_NAMES])
def test_a_rate_is_no_time_by_its_name(tmp_path: Path, name: str) -> None:
    """A search would take the slowest setting for the fastest."""
    text, columns = f"batch,W,{name}\n1,99,2.0\n2,99,1.5\n", f"work_size=batch,time={name},power=W"
    if name in TIME_NAMES:
        assert len(small(tmp_path, text, columns).rows) == 2
        return
    with pytest.raises(UsageError, match=f"time={name}: by its name this is a rate") as caught:
        small(tmp_path, text, columns)
    assert caught.value.hint == f"give a column of seconds, such as 1 / {name}"
    with pytest.raises(UsageError) as caught:
        small(tmp_path, f"batch,W,epoch_s,{name}\n1,99,1,2.0\n2,99,1,1.5\n", columns)
    assert caught.value.hint == "give time=epoch_s"


@pytest.mark.parametrize("knob", ["power_limit", "core_clock", "memory_clock"])
def test_a_column_that_rises_with_the_clock_is_no_time(tmp_path: Path, knob: str) -> None:
    columns = f"{knob}=limit,other=threads,time=x,power=w"
    rows = "limit,threads,x,w\n100,1,{},9\n200,1,{},9\n300,1,{},9\n100,2,{},9\n300,2,{},9\n300,3,1,9\n"
    small(tmp_path, rows.format(10.0, 12.0, 11.9, 10.0, 11.0), columns)  # noise, or heat
    small(tmp_path, rows.format(10.0, 9.0, 8.0, 10.0, 15.0), columns)  # one strange row
    with pytest.raises(UsageError, match=r"time=x: at the largest limit it is 1\.8 times what it is at the smallest"):
        small(tmp_path, rows.format(10.0, 11.0, 13.0, 10.0, 23.0), columns)
    small(tmp_path, rows.format(10.0, 11.0, 13.0, 10.0, 23.0), columns.replace(knob, "other"))


@needs_data
@pytest.mark.parametrize("gpu", ["v100", "rtx6000"])
def test_measured_times_are_times_and_their_inverses_are_not(tmp_path: Path, gpu: str) -> None:
    table = data("zeus_nsdi23", f"summary_power_{gpu}.csv")
    cells = list(csv.DictReader(table.read_text().splitlines()))
    columns = ["power_limit=power_limit,batch_size=batch_size,time=time_per_epoch,power=average_power"]
    refused = []
    for workload in sorted({(row["dataset"], row["network"], row["optimizer"]) for row in cells}):
        where = [f"dataset={workload[0]},network={workload[1]},optimizer={workload[2]}"]
        read(table, columns, where)
        with (tmp_path / "t.csv").open("w") as file:
            writer = csv.DictWriter(file, cells[0])
            writer.writeheader()
            writer.writerows({**row, "time_per_epoch": 1.0 / float(row["time_per_epoch"])} for row in cells)
        try:
            read(tmp_path / "t.csv", columns, where)
        except UsageError:
            refused.append(workload[1])
    assert {"resnet50", "deepspeech2", "bert_base_uncased"} <= set(refused)


HEADER = ["power limit", "watts", "epoch_s", "a,b", "x:W"]


@pytest.mark.parametrize(
    ("columns", "said", "hint"),
    [
        ("power_limit=power limt,time=epoch_s,power=watts", "column 'power limt'", "did you mean 'power limit'?"),
        ("power_limt=power limit,time=epoch_s,power=watts", "part 'power_limt'", "did you mean 'power_limit'?"),
        ("power_limit=zzz,time=epoch_s,power=watts", "column 'zzz'", "there is: power limit, watts"),
        ("watts=power,time=epoch_s", "wrong way round", "write power=watts"),
        ("power_limit=power limit,power=watts", "names no time", "add time=COLUMN"),
        ("power_limit=power limit,time=epoch_s", "names no power", "add power=COLUMN"),
        ("time=epoch_s,power=watts", "names no knob", "power_limit"),
        ("power_limit=power limit,time=watts,power=watts", "used twice", ""),
        ("power_limit=x:W,power_limit=power limit,time=epoch_s,power=watts", "there twice", "time and other"),
        ("power_limit", "expected PART=COLUMN", "such as --columns"),
        ("=x:W", "expected PART=COLUMN", "such as --columns"),
    ],
)
def test_columns_that_cannot_be(columns: str, said: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_columns([columns], HEADER)
    assert said in str(caught.value) and hint in caught.value.hint


def test_columns_with_commas_and_colons_in_their_names() -> None:
    found = parse_columns(['"time=a,b", power=watts', "power_limit=x:W"], HEADER)
    assert [(each.part, each.name) for each in found] == [
        (ColumnContent.TIME, "a,b"),
        (ColumnContent.POWER, "watts"),
        (ColumnContent.POWER_LIMIT, "x:W"),
    ]
    aliases = parse_columns(["gpu_clock=watts,batch_size=x:W,time=epoch_s,power=power limit:mW"], HEADER)
    assert [each.part for each in aliases] == [
        ColumnContent.CORE_CLOCK,
        ColumnContent.WORK_SIZE,
        ColumnContent.TIME,
        ColumnContent.POWER,
    ]


@pytest.mark.parametrize(
    ("where", "said", "hint"),
    [
        ("network=resnt", "value 'resnt'", "did you mean 'resnet'?"),
        ("netwrk=resnet", "column 'netwrk'", "did you mean 'network'?"),
        ("network", "expected COLUMN=VALUE", ""),
        ("network=resnet,batch=31", "value '31'", ""),
    ],
)
def test_rows_that_are_not_there(tmp_path: Path, where: str, said: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(write_table(tmp_path / "t.csv"), [COLUMNS], [where])
    assert said in str(caught.value) and hint in caught.value.hint


def test_the_default_setting(tmp_path: Path) -> None:
    table = read(write_table(tmp_path / "t.csv"), [COLUMNS])
    assert table.default(["batch=64"]) == {"limit": 250.0, "batch": 64.0}
    assert table.default(["batch=64", "limit=150 W"]) == {"limit": 150.0, "batch": 64.0}
    for text, said, hint in (
        ("batch=60", "no row for limit=250,batch=60", "nearest is --default limit=250,batch=64"),
        ("batch=32", "no row for limit=250,batch=32", "nearest is --default limit=225,batch=32"),
        ("bach=64", "knob 'bach'", "did you mean 'batch'?"),
        ("batch=many", "positive number", ""),
        ("limit=150", "the default of batch? It is one of 32, 64, 128, 256", "--default batch=NUMBER"),
    ):
        with pytest.raises(UsageError) as caught:
            table.default([text])
        assert said in str(caught.value) and hint in caught.value.hint
