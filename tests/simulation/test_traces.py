"""Reading of traces: the meaning of each format, and mistakes with their places."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from ecoshare.errors import InvalidJobFile, UsageError
from ecoshare.simulation.traces import own
from ecoshare.simulation.traces.any_trace import read
from ecoshare.simulation.traces.generate import network, skew
from ecoshare.simulation.traces.job_trace import Phase, Trace
from tests.simulation.trace_files import HELIOS, PAI, PAI_TASKS, PHILLY, TIRESIAS, data, mistakes, needs_data, written


def test_a_trace_of_tiresias(tmp_path: Path) -> None:
    trace = read(written(tmp_path, TIRESIAS + "7,4,30,100,vgg16,50.5,30\n3,1,0,7,my_net,0.1,0\n"))
    first, second = trace.jobs
    assert trace.kind == "Tiresias" and "alike" in trace.note
    assert (first.name, first.arrival_s, first.line, first.skew) == ("3", 0.0, 3, None), "jobs are in order of arrival"
    assert (second.gpus, second.job_class, second.iterations) == (4, "vgg16", 100)
    assert second.service_s == pytest.approx(50.5, rel=1e-12)
    assert second.skew == pytest.approx(512 * 49 * 4096 / 138_357_544)


def test_a_philly_trace_begins_with_its_first_job(tmp_path: Path) -> None:
    rows = ["2017-10-09 07:00:10,60.0,8,480.0,a", "2017-10-09 07:00:00,0.0,1,0.0,a", "2017-10-09 06:59:00,1.5,1,1.5,b"]
    trace = read(written(tmp_path, PHILLY + "\n".join(rows) + "\n\n"))
    assert [(job.name, job.arrival_s, job.job_class) for job in trace.jobs] == [
        ("2", 0.0, "philly-1gpu"),
        ("0", 70.0, "philly-8gpu"),
    ]
    assert [job.service_s for job in trace.jobs] == [1.5, 60.0]
    assert trace.jobs[1].phases == (Phase(60, 1.0),)
    assert "left out: 1 job that never ran" in trace.note


def philly_job(number: int, *attempts: tuple[str | None, str | None, int], at: str = "00:13:19") -> dict[str, object]:
    """Job of a `cluster_job_log`. An attempt has a start, an end, and a number of GPUs on two servers."""
    made = [
        {
            "start_time": start and f"2017-10-03 {start}",
            "end_time": end if end in (None, "None") else f"2017-10-03 {end}",
            "detail": [{"ip": "m1", "gpus": ["gpu0"] * (gpus - 1)}, {"ip": "m2", "gpus": ["gpu0"] * min(gpus, 1)}],
        }
        for start, end, gpus in attempts
    ]
    submitted = {"jobid": f"application_{number}", "submitted_time": f"2017-10-03 {at}", "status": "Pass", "vc": "a"}
    return {**submitted, "attempts": made, "user": "b"}


def test_a_job_of_phillys_log_lasts_as_long_as_its_attempts(tmp_path: Path) -> None:
    jobs = [
        philly_job(1, ("00:15:05", "00:35:30", 2), ("00:35:37", "01:12:43", 2)),
        philly_job(2, ("00:20:00", "00:20:10", 16), at="00:13:09"),
        philly_job(3),
        philly_job(4, ("00:15:05", "None", 1)),
        philly_job(5, (None, "00:35:30", 1)),
        philly_job(6, ("00:15:05", "00:35:30", 0)),
        philly_job(7, (None, "00:35:30", 4), ("00:35:37", "00:35:38", 4)),
        philly_job(2, ("01:55:00", "01:05:00", 1), ("01:05:00", "01:05:09", 1)),
    ]
    trace = read(written(tmp_path, json.dumps(jobs, indent=1)))
    assert [(job.name, job.arrival_s, job.gpus, job.service_s) for job in trace.jobs] == [
        ("application_2", 0.0, 16, 10.0),
        ("application_1", 10.0, 2, 20 * 60 + 25 + 37 * 60 + 6),
        ("application_7", 10.0, 4, 1.0),
        ("application_2.7", 10.0, 1, 9.0),
    ], "the sum of the attempts, without the wait between them, and without the hour by which the clock went back"
    assert trace.kind == "Philly" and trace.jobs[1].line == 2
    assert trace.note.endswith("left out: 1 job that never ran, 1 job without a GPU, 2 jobs without a start or an end")
    assert read(written(tmp_path, json.dumps(jobs))).jobs == trace.jobs, "the same on one line"


@pytest.mark.parametrize(
    ("text", "place", "where", "what"),
    [
        ("[\n 1]", (2, 2), "[0]", "expected an object in braces"),
        ('[{"a": 1}, x]', (1, 12), "[1]", "no JSON: Expecting value"),
        ("[", (1, 2), "[0]", "no JSON: Expecting value"),
        ('[{"jobid": "a", "submitted_time": "2017-10-03 00:13:19", "attempts": []} {}]', (1, 74), "[0]", "',' or ']'"),
        ('[{"jobid": "a", "submitted_time": "now", "attempts": []}]', (1, 2), "[0].submitted_time", "got 'now'"),
        ('[{"jobid": "a", "submitted_time": null, "attempts": []}]', (1, 2), "[0].submitted_time", "got 'null'"),
        ('[{"jobid": "a", "submitted_time": "2017-10-03", "attempts": 3}]', (1, 2), "[0].attempts", "valid list"),
        (
            '[\n\n  {"jobid": "a", "submitted_time": "2017-10-03", "attempts": [{"start_time": "x", "end_time": "",'
            ' "detail": []}]}]',
            (3, 3),
            "[0].attempts[0].start_time",
            "such as 2017-10-09 07:01:55, got 'x'",
        ),
    ],
)
def test_a_fault_of_a_log_in_json_is_told_with_its_job(
    tmp_path: Path, text: str, place: tuple[int, int], where: str, what: str
) -> None:
    found = mistakes(written(tmp_path, text))
    assert any(((each.line, each.column), each.where) == (place, where) and what in each.what for each in found), found


def test_a_trace_of_helios_without_its_cpu_jobs(tmp_path: Path) -> None:
    times = "2020-06-09 18:41:27,2020-06-10 04:55:09"
    rows = [
        f"7,uX,vcJ,8,1,1,FAILED,2020-06-09 18:41:01,{times},36848,0",
        f"8,uX,vcJ,0,16,1,COMPLETED,2020-06-09 18:41:01,{times},249,0",
        f"9,uX,vcJ,1,1,1,CANCELLED,2020-06-09 18:40:01,{times},5,26",
        "10,uX,vcJ,1,1,1,CANCELLED,2020-06-09 18:40:01,None,2020-06-09 18:41:27,0,26",
        "11,uX,vcJ,1,1,1,RUNNING,2020-06-09 18:40:01,2020-06-09 18:41:27,None,,26",
    ]
    trace = read(written(tmp_path, HELIOS + "\n".join(rows) + "\n"))
    assert [(job.name, job.arrival_s, job.gpus, job.service_s, job.job_class, job.line) for job in trace.jobs] == [
        ("9", 0.0, 1, 5.0, "helios-1gpu", 4),
        ("7", 60.0, 8, 36848.0, "helios-8gpu", 2),
    ]
    assert trace.note.endswith("left out: 1 job that never ran, 1 job without a GPU, 1 job without a start or an end")


def test_jobs_of_pai_ask_for_parts_of_gpus(tmp_path: Path) -> None:
    rows = ["5,1,90,6,0.25,T4,60,u,1,,,", "6,10,30,6,0.5,P100,60,u,1,1,1,1", "7,2,30,6,8,V100,60,u,,,,"]
    rows += [
        "8,1,30,6,0,CPU,60,u,,,,",
        "9,1,30,6,,CPU,60,u,,,,",
        "10,,30,6,2.5,MISC,60,u,,,,",
        "11,1,30,6,1,T4,0,u,,,,",
    ]
    trace = read(written(tmp_path, PAI + "\n".join(rows) + "\n"))
    assert [(job.name, job.arrival_s, job.gpus, job.share, job.job_class) for job in trace.jobs] == [
        ("6", 0.0, 10, 0.5, "pai-10x0.5gpu"),
        ("7", 0.0, 16, 1.0, "pai-16gpu"),
        ("10", 0.0, 3, pytest.approx(2.5 / 3), "pai-3x0.833333gpu"),
        ("5", 60.0, 1, 0.25, "pai-1x0.25gpu"),
    ]
    assert trace.note.endswith("left out: 1 job that never ran, 2 jobs without a GPU") and "--lanes 4" in trace.note


@pytest.mark.parametrize("header", ["", PAI_TASKS])
def test_the_tasks_of_a_job_of_pai_are_one_gang(tmp_path: Path, header: str) -> None:
    rows = [
        "a1,ps,2.0,Terminated,900.0,2000.0,600.0,29.3,,",
        "a1,worker,4.0,Terminated,1000.0,1900.0,600.0,29.3,100.0,P100",
        "a1,evaluator,1.0,Terminated,1100.0,1950.0,600.0,29.3,50.0,P100",
        "b2,tensorflow,1.0,Failed,940.0,950.0,600.0,29.3,25.0,T4",
        "c3,ps,1.0,Terminated,940.0,950.0,600.0,29.3,0.0,",
        "d4,worker,1.0,Running,940.0,,600.0,29.3,100.0,MISC",
        "d4,chief,1.0,Terminated,940.0,950.0,600.0,29.3,100.0,MISC",
        "e5,worker,1.0,Waiting,0.0,,600.0,29.3,100.0,MISC",
    ]
    trace = read(written(tmp_path, header + "\n".join(rows) + "\n"))
    assert [(job.name, job.arrival_s, job.gpus, job.share, job.service_s) for job in trace.jobs] == [
        ("b2", 0.0, 1, 0.25, 10.0),
        ("a1", 60.0, 5, 0.9, 950.0),
    ]
    assert "left out: 1 job without a GPU, 2 jobs without a start or an end" in trace.note


@pytest.mark.parametrize(
    ("text", "line", "where", "what"),
    [
        (HELIOS + "7,u,v,half,1,1,FAILED,2020-06-09 18:41:01,,,36,0\n", 2, "gpu_num", "whole number of 0 or more"),
        (HELIOS + "7,u,v,1,1,1,FAILED,None,,,36,0\n", 2, "submit_time", "such as 2017-10-09 07:01:55, got 'None'"),
        (PAI + "5,0.5,90,6,0.25,T4,60,u,1,,,\n", 2, "num_inst", "whole number of 1 or more"),
        (PAI + "5,1,90,6,quarter,T4,60,u,1,,,\n", 2, "num_gpu", "got 'quarter'"),
        (PAI + "5,1,,6,1,T4,60,u,1,,,\n", 2, "submit_time", "got nothing"),
        (PAI.replace("num_gpu", "gpus") + "5,1,90,6,1,T4,60,u,1,,,\n", 1, "", "Alibaba PAI has a column 'num_gpu'"),
        ("a,w,1.0,Failed,1.0,2.0,6,2,25%,T4\n", 1, "plan_gpu", "got '25%'"),
        ("a,w,1.0,Failed,1.0,2.0,6,2,25,T4\n,w,1,Failed,1,2,6,2,25,T4\n", 2, "job_name", "expected a name"),
        ("a,w,1.0,Failed,1.0,2.0,6,2,25,T4\na,w,1\n", 2, "", "expected 10 cells, got 3"),
    ],
)
def test_a_fault_in_the_log_of_a_cluster_is_told_with_its_place(
    tmp_path: Path, text: str, line: int, where: str, what: str
) -> None:
    (mistake,) = mistakes(written(tmp_path, text))
    assert (mistake.line, mistake.where) == (line, where) and what in mistake.what


@pytest.mark.parametrize("wrong", ["", "x", "nan", "inf", "-1", "1_0", "1e999", "0", "12 s", "2e15"])
@pytest.mark.parametrize(("cell", "name"), [(1, "num_gpu"), (3, "iterations"), (5, "duration")])
def test_a_cell_that_is_no_number_is_told_with_its_place(tmp_path: Path, cell: int, name: str, wrong: str) -> None:
    cells = ["5", "1", "0", "7", '"a, b"', "1.5", "0"]
    before = ",".join(cells[:cell])
    cells[cell] = wrong
    (mistake,) = mistakes(written(tmp_path, TIRESIAS + "4,1,0,7,vgg16,1.5,0\n" + ",".join(cells) + "\n"))
    assert (mistake.line, mistake.column, mistake.where) == (3, len(before) + 2, name)
    assert "expected a" in mistake.what


def test_an_empty_cell_at_the_very_end_is_told_with_its_place(tmp_path: Path) -> None:
    """The file ends before the cell, so the place is the end of the line, not its begin with another cell."""
    (mistake,) = mistakes(written(tmp_path, "timestamp,num_gpus,duration\n2017-10-09 07:00:10,1,"))
    assert (mistake.line, mistake.column, mistake.where) == (2, 23, "duration")


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ("5,1.5,0,7,vgg16,1,0", "whole number"),
        ("5,1,-3,7,vgg16,1,0", "number of 0 or more"),
        ("5,1,0,7,,1,0", "expected a name, got nothing"),
        ("a b,1,0,7,vgg16,1,0", "letters, digits"),
        ("4,1,0,7,vgg16,1,0", "'4' is also the name of the job in line 2"),
        ("5,1,0,7,vgg16,1", "expected 7 cells, got 6"),
        ('5,1,0,7,"vgg16,1,0', "end of data"),
        ('5,1,0,7,"vgg16,1,0\n6,1,0,7,vgg16",1,0', "quotation mark"),
    ],
)
def test_what_is_wrong_in_a_row_is_told_in_words(tmp_path: Path, row: str, what: str) -> None:
    (mistake,) = mistakes(written(tmp_path, TIRESIAS + "4,1,0,7,vgg16,1,0\n" + row + "\n"))
    assert mistake.line == 3 and what in mistake.what


def test_all_mistakes_come_at_once_but_twenty_at_most(tmp_path: Path) -> None:
    path = written(tmp_path, TIRESIAS + "".join(f"{number},0,0,1,vgg16,1,0\n" for number in range(50)))
    with pytest.raises(InvalidJobFile) as caught:
        read(path)
    assert len(caught.value.mistakes) == 20 and caught.value.hint == "and 30 more"
    assert str(caught.value).startswith(f"{path}:2:3: num_gpu: expected a whole number of 1 or more, got '0'")


def test_a_time_that_is_none_is_told(tmp_path: Path) -> None:
    (mistake,) = mistakes(written(tmp_path, PHILLY + "yesterday,60,1,60,a\n"))
    assert mistake.where == "timestamp" and "2017-10-09 07:01:55" in mistake.what


@pytest.mark.parametrize(
    ("header", "what"),
    [
        (
            "job_id,num_gpus,submit_time,iterations,model_name,duration,interval",
            "has a column 'num_gpu', this has none",
        ),
        ("timestamp,timestamp,duration,num_gpus", "two columns are named 'timestamp'"),
        ("name,class,arrival_s,phases", "'startup_s', this has none"),
    ],
)
def test_a_column_that_lacks_or_is_there_twice_is_named(tmp_path: Path, header: str, what: str) -> None:
    found = mistakes(written(tmp_path, header + "\n1,2,3,4,5,6,7\n"))
    assert any(what in mistake.what for mistake in found)


@pytest.mark.parametrize(
    "text",
    [
        "hello\n",
        "a\tb\tc\n",
        "1,2,3\n",
        '{"jobs": []}\n',
        "duration,watts\n1,2\n",
        "job_id,gpus,submit_time,duration\n1,1,0,5\n",
        "a,b,1,Done,1,2,3,4,5,T4\n",
    ],
)
def test_a_file_that_is_no_trace_says_what_was_expected(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidJobFile, match="no trace begins with") as caught:
        read(written(tmp_path, text))
    assert "Tiresias" in caught.value.hint and "Gavel" in caught.value.hint and "\n" not in caught.value.hint


@pytest.mark.parametrize(("submit_s", "duration_s"), [("0", "1e15"), ("1e15", "100")])
def test_a_job_without_end_is_told_with_its_line(tmp_path: Path, submit_s: str, duration_s: str) -> None:
    """If such a job were simulated, a policy that looks at each job once a quantum would never end."""
    header = "job_id,num_gpu,submit_time,iterations,model_name,duration\n"
    path = written(tmp_path, f"{header}1,1,0,10,resnet50,100\n2,1,{submit_s},10,resnet50,{duration_s}\n")
    with pytest.raises(UsageError, match=r":3: the job '2' takes .* s and comes after") as told:
        read(path)
    assert "three years" in told.value.hint


def test_files_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    cases: list[tuple[Callable[[], Path], str]] = [
        (lambda: tmp_path / "none.csv", "cannot read"),
        (lambda: written(tmp_path, " \n\n"), "is empty"),
        (lambda: written(tmp_path, TIRESIAS), "has no jobs"),
        (lambda: tmp_path, "without events.jsonl"),
        (lambda: (tmp_path / "b.csv", (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00"))[0], "is no text"),
    ]
    for make, what in cases:
        with pytest.raises(UsageError, match=what):
            read(make())


@pytest.mark.parametrize("text", ["\ufeff" + TIRESIAS, TIRESIAS.replace("\n", "\r\n"), "\n" + TIRESIAS])
def test_the_form_is_found_by_what_is_in_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "philly.tsv"
    path.write_bytes((text + "4,1,0,7,vgg16,1.5,0").encode())
    assert [job.name for job in read(path).jobs] == ["4"]


def test_sizes_of_networks_follow_from_their_layers() -> None:
    """The model has the total of VGG-16 layer by layer, and all names that traces use for one network."""
    widths = [3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512]
    convolutions = sum(9 * a * b + b for a, b in pairwise(widths))
    dense = [(512 * 49, 4096), (4096, 4096), (4096, 1000)]
    vgg16 = network("vgg16")
    assert vgg16 is not None and vgg16.parameters == convolutions + sum(a * b + b for a, b in dense)
    assert skew("VGG-16") == skew("vgg16") and skew("inception_v3") == skew("inception3") is not None
    assert skew("gpt5") is None
    large, small = ["vgg11", "vgg16", "vgg19", "alexnet"], ["resnet50", "resnet101", "resnet152", "inception4"]
    assert min(skew(name) or 0.0 for name in large) > 0.5 > 0.1 > max(skew(name) or 1.0 for name in small)


def checked(trace: Trace, jobs: int, service_s: float) -> None:
    assert len(trace.jobs) == jobs
    assert sum(job.service_s for job in trace.jobs) == pytest.approx(service_s, rel=1e-6)
    assert [job.arrival_s for job in trace.jobs] == sorted(job.arrival_s for job in trace.jobs)


@needs_data
def test_public_traces_are_read_as_they_are(tmp_path: Path) -> None:
    """Sums agree with the peers' simulators: Gavel's time on one GPU is the sum of all its jobs."""
    checked(read(data("tiresias", "philly480.csv")), 480, 1_389_197)
    checked(read(data("tiresias", "60_job.csv")), 60, 10_705)
    trace = read(data("gavel", "30_jobs_1gpu.trace"), speeds=data("gavel", "simulation_throughputs.json"))
    result = json.loads(data("gavel", "results_1gpu.json").read_text())["runs"]["finish_time_fairness"]
    checked(trace, 30, result["total_duration_s"])
    own.write(trace, tmp_path / "own.csv")
    assert read(tmp_path / "own.csv").jobs == trace.jobs


@pytest.mark.nightly
@needs_data
def test_philly_is_read_whole() -> None:
    trace = read(data("philly", "philly_jobs.csv"))
    checked(trace, 82_247, 1_080_390_950)
    assert sum(job.gpus * job.service_s for job in trace.jobs) == pytest.approx(978_078.4728 * 3600)
    assert (trace.jobs[0].line, max(job.gpus for job in trace.jobs)) == (31_568, 128)
