"""Reading traces: what each form means, what is wrong in one, and that nothing is lost when it is written again."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from math import ceil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.core.commands import ProfileJob, StartJob
from ecoshare.core.events import (
    Config,
    Device,
    Done,
    Event,
    JobArrived,
    JobExited,
    JobSpec,
    Outcome,
    Profiled,
    RunOpened,
    Usage,
)
from ecoshare.core.memory import MemoryDemand
from ecoshare.errors import InvalidJobFile, Mistake, UsageError
from ecoshare.lane.trace import Kind, Tracer, trace_path
from ecoshare.runtime.log import EventLog
from ecoshare.simulate.traces import own
from ecoshare.simulate.traces.networks import network, skew
from ecoshare.simulate.traces.reading import read
from ecoshare.simulate.traces.trace import Phase, Trace, TraceJob, in_order
from tests.runtime import running

TIRESIAS = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
SPEEDS = {
    "v100": {
        "('LM (batch size 10)', 1)": {"null": 50.0, "('LM (batch size 10)', 1)": [20.0, 20.0]},
        "('LM (batch size 20)', 1)": {"null": 40.0},
        "('LM (batch size 10)', 2)": {"null": 80.0},
        "('LM (batch size 80)', 1)": {"null": 0.0},
    },
    "k80": {"LM (batch size 10)": {"null": 5.0}},
}
STEPS = 95
SAMPLES = 95
SCHEDULE = {
    "job": 0,
    "job_type": "LM (batch size 10)",
    "gpus": 1,
    "mode": "gns",
    "epochs": 10,
    "samples_per_epoch": SAMPLES,
    "batch_size_runs": [[10, 6], [20, 4]],
}
"""10 steps an epoch at a batch size of 10: 95 steps are 10 epochs, of which the last is half."""

needs_data = pytest.mark.skipif(
    "ECOSHARE_DATA" not in os.environ, reason="ECOSHARE_DATA names no folder with the public traces"
)


def data(*parts: str) -> Path:
    return Path(os.environ["ECOSHARE_DATA"], *parts)


def written(folder: Path, text: str, name: str = "trace.txt") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def gavel_line(job_type: str = "LM (batch size 10)", steps: str = "100", gpus: str = "1", arrival: str = "0") -> str:
    return f'{job_type}\tpython3 main.py --data "%s/x\tlm\t--steps\t1\t{steps}\t{gpus}\t1\t-1.000000\t{arrival}\n'


def shockwave_line(steps: int = STEPS, mode: str = "gns") -> str:
    return f"LM (batch size 10)\tpython3 main.py\tlm\t--steps\t1\t{steps}\t1\t{mode}\t1\t-1.000000\t2\t5\n"


def speeds(folder: Path) -> Path:
    return written(folder, json.dumps(SPEEDS), "speeds.json")


def schedules(folder: Path, **changes: object) -> Path:
    return written(folder, json.dumps({"what": "...", "jobs": [SCHEDULE | changes]}), "schedules.json")


def mistakes(path: Path) -> tuple[Mistake, ...]:
    with pytest.raises(InvalidJobFile) as caught:
        read(path)
    return caught.value.mistakes


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
    assert "no duration, which are left out: 1" in trace.note


def test_gavel_counts_steps_and_speeds_make_times_of_them(tmp_path: Path) -> None:
    path = written(tmp_path, gavel_line(arrival="9.5") + gavel_line(gpus="2", steps="160"))
    two, one = read(path, speeds=speeds(tmp_path)).jobs
    assert (one.name, one.gpus, one.priority, one.arrival_s) == ("0", 1, 1, 9.5)
    assert one.service_s == pytest.approx(2.0) and two.service_s == pytest.approx(2.0)
    slow = read(written(tmp_path, gavel_line()), speeds=speeds(tmp_path), gpu_model="k80").jobs
    assert slow[0].service_s == pytest.approx(20.0), "the oracle's keys are bare types"
    with pytest.raises(InvalidJobFile, match=r"no speed of 'LM \(batch size 10\)' on 2 k80"):
        read(written(tmp_path, gavel_line(gpus="2")), speeds=speeds(tmp_path), gpu_model="k80")


def test_steps_without_speeds_name_the_option(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not how long one takes") as caught:
        read(written(tmp_path, gavel_line()))
    assert "--speeds FILE" in caught.value.hint


def test_a_type_that_was_not_measured_or_does_not_fit_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, gavel_line("LM (batch size 80)") + gavel_line("CycleGAN") + gavel_line(gpus="4"))
    with pytest.raises(InvalidJobFile) as caught:
        read(path, speeds=speeds(tmp_path))
    first, second, third = caught.value.mistakes
    assert "does not fit" in first.what and "no speed of 'CycleGAN'" in second.what and "on 4 v100" in third.what
    assert [mistake.line for mistake in caught.value.mistakes] == [1, 2, 3]


def test_speeds_of_another_gpu_or_form_are_told(tmp_path: Path) -> None:
    path = written(tmp_path, gavel_line())
    with pytest.raises(UsageError) as caught:
        read(path, speeds=speeds(tmp_path), gpu_model="V10")
    assert caught.value.hint == "did you mean 'v100'?"
    for text in ("[]", '{"v100": 3}', "{", "\x00"):
        with pytest.raises(UsageError):
            read(path, speeds=written(tmp_path, text, "wrong.json"))
    with pytest.raises(UsageError, match="cannot read"):
        read(path, speeds=tmp_path / "none.json")


def test_batch_sizes_that_change_are_phases_and_the_last_epoch_is_cut_where_the_steps_end(tmp_path: Path) -> None:
    path = written(tmp_path, shockwave_line())
    trace = read(path, speeds=speeds(tmp_path), schedules=schedules(tmp_path))
    (job,) = trace.jobs
    assert job.phases == (Phase(6 * 10, 1 / 50, 10), Phase(3 * 5 + 3, 1 / 40, 5)), (
        "half of the last epoch's 5 steps, rounded up"
    )
    same = schedules(tmp_path, batch_size_runs=[[10, 7], [10, 3]])
    (job,) = read(path, speeds=speeds(tmp_path), schedules=same).jobs
    assert job.iterations == STEPS, "who never changes does the steps of the trace"


def test_a_job_that_keeps_its_batch_size_needs_no_schedule_and_one_that_does_not_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, shockwave_line() + shockwave_line(mode="static"))
    trace = read(path, speeds=speeds(tmp_path))
    assert [job.iterations for job in trace.jobs] == [STEPS, STEPS]
    assert "keep the first without schedules: 1" in trace.note


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"epochs": 11, "batch_size_runs": [[10, 11]]}, "95 steps are 10 epochs of 10, and its schedule has 11"),
        ({"mode": "accordion"}, "another one in its place: job 0"),
        ({"job": 3}, "no such job"),
        ({"batch_size_runs": [[10, 6], [30, 4]]}, "no speed of 'LM .batch size 30.'"),
    ],
)
def test_schedules_of_another_trace_are_refused(tmp_path: Path, changes: dict[str, object], what: str) -> None:
    with pytest.raises(InvalidJobFile, match=what):
        read(written(tmp_path, shockwave_line()), speeds=speeds(tmp_path), schedules=schedules(tmp_path, **changes))


def test_each_job_without_its_schedule_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, shockwave_line() + shockwave_line() + shockwave_line(mode="static"))
    with pytest.raises(InvalidJobFile) as caught:
        read(path, speeds=speeds(tmp_path), schedules=schedules(tmp_path, mode="accordion"))
    assert [mistake.line for mistake in caught.value.mistakes] == [1, 2, 3]


def test_schedules_of_another_form_or_length_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, shockwave_line())
    with pytest.raises(UsageError, match="samples_per_epoch"):
        read(path, speeds=speeds(tmp_path), schedules=schedules(tmp_path, samples_per_epoch=0))
    two = written(tmp_path, json.dumps({"jobs": [SCHEDULE, SCHEDULE | {"job": 1}]}), "two.json")
    with pytest.raises(UsageError, match="2 schedules"):
        read(path, speeds=speeds(tmp_path), schedules=two)


@pytest.mark.parametrize("option", ["speeds", "schedules"])
def test_an_option_that_would_be_ignored_is_refused(tmp_path: Path, option: str) -> None:
    path = written(tmp_path, TIRESIAS + "0,1,0,1,vgg16,1,0\n")
    with pytest.raises(UsageError, match=f"--{option}"):
        read(path, **{option: speeds(tmp_path)})


@pytest.mark.parametrize("wrong", ["", "x", "nan", "inf", "-1", "1_0", "1e999", "0", "12 s", "2e15"])
@pytest.mark.parametrize(("cell", "name"), [(1, "num_gpu"), (3, "iterations"), (5, "duration")])
def test_a_cell_that_is_no_number_is_told_with_its_place(tmp_path: Path, cell: int, name: str, wrong: str) -> None:
    cells = ["5", "1", "0", "7", '"a, b"', "1.5", "0"]
    before = ",".join(cells[:cell])
    cells[cell] = wrong
    (mistake,) = mistakes(written(tmp_path, TIRESIAS + "4,1,0,7,vgg16,1.5,0\n" + ",".join(cells) + "\n"))
    assert (mistake.line, mistake.column, mistake.where) == (3, len(before) + 2, name)
    assert "expected a" in mistake.what


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


@pytest.mark.parametrize("text", ["hello\n", "a\tb\tc\n", "1,2,3\n", '{"jobs": []}\n', "duration,watts\n1,2\n"])
def test_a_file_that_is_no_trace_says_what_was_expected(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidJobFile, match="no trace begins with") as caught:
        read(written(tmp_path, text))
    assert "Tiresias" in caught.value.hint and "Gavel" in caught.value.hint and "\n" not in caught.value.hint


def test_files_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    for make, what in (
        (lambda: tmp_path / "none.csv", "cannot read"),
        (lambda: written(tmp_path, " \n\n"), "is empty"),
        (lambda: written(tmp_path, TIRESIAS), "has no jobs"),
        (lambda: tmp_path, "without events.jsonl"),
        (lambda: (tmp_path / "b.csv", (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00"))[0], "is no text"),
    ):
        with pytest.raises(UsageError, match=what):
            read(make())


@pytest.mark.parametrize("text", ["\ufeff" + TIRESIAS, TIRESIAS.replace("\n", "\r\n"), "\n" + TIRESIAS])
def test_the_form_is_found_by_what_is_in_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "philly.tsv"
    path.write_bytes((text + "4,1,0,7,vgg16,1.5,0").encode())
    assert [job.name for job in read(path).jobs] == ["4"]


names = st.text(st.sampled_from("abcXYZ019._-"), min_size=1, max_size=8)
times = st.floats(0.0, 1e12)
above = st.floats(1e-300, 1e12)
texts = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]) | st.sampled_from(',"; x'), min_size=1)
demands = st.builds(MemoryDemand, st.integers(0, 1 << 40), st.integers(0, 1 << 40))
phases = st.builds(Phase, st.integers(1, 10**9), above, st.none() | st.integers(1, 10**6))
trace_jobs = st.builds(
    TraceJob,
    name=names,
    job_class=texts.map(str.strip).filter(bool),
    arrival_s=times,
    phases=st.lists(phases, min_size=1, max_size=4).map(tuple),
    gpus=st.integers(1, 10_000),
    priority=st.integers(-(10**6), 10**6),
    memory=st.none() | demands,
    startup_s=times,
    launch_s=st.none() | times,
    skew=st.none() | st.floats(0.0, 1.0),
    announced=st.booleans(),
)


@given(st.lists(trace_jobs, min_size=1, max_size=8, unique_by=lambda job: job.name))
def test_what_is_written_is_read_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, jobs: list[TraceJob]
) -> None:
    path = tmp_path_factory.getbasetemp() / "own.csv"
    trace = Trace("here", "invented", in_order(jobs), "")
    own.write(trace, path)
    again = read(path)
    assert again.jobs == trace.jobs and again.kind == "ecoshare"
    assert [job.line for job in again.jobs] == list(range(2, 2 + len(jobs)))


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "5",
        "5 x",
        "5 x 1 / 0",
        "5 x 1 / 2.5",
        "x 2",
        "0 x 1",
        "2.5 x 1",
        "5 x 0",
        "5 x nan",
        "5 x 1; ",
        "5 x 1, 2 x 3",
    ],
)
def test_phases_that_are_none_are_told(tmp_path: Path, wrong: str) -> None:
    (mistake,) = mistakes(written(tmp_path, ",".join(own.COLUMNS) + f'\na,b,0,,0,1,0,,,,1,"{wrong}"\n'))
    assert mistake.where == "phases" and "such as '1000 x 0.25'" in mistake.what


@pytest.mark.parametrize(
    ("cells", "where"),
    [
        ("a,b,0,,0,1,0,5,,,1,1 x 1", "ephemeral_bytes"),
        ("a,b,0,,0,1,0,,5,,1,1 x 1", "persistent_bytes"),
        ("a,b,0,,0,1,0,,,1.5,1,1 x 1", "skew"),
        ("a,b,0,,-1,1,0,,,,1,1 x 1", "startup_s"),
        ("a,b,0,,0,1,0.5,,,,1,1 x 1", "priority"),
    ],
)
def test_own_cells_that_are_wrong_are_told(tmp_path: Path, cells: str, where: str) -> None:
    (mistake,) = mistakes(written(tmp_path, ",".join(own.COLUMNS) + "\n" + cells + "\n"))
    assert mistake.where == where


def test_a_trace_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        own.write(Trace("", "", (), ""), tmp_path / "none" / "t.csv")


def test_sizes_of_networks_follow_from_their_layers() -> None:
    """The total of VGG-16, layer by layer, and the names that traces use for one network."""
    widths = [3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512]
    convolutions = sum(9 * a * b + b for a, b in pairwise(widths))
    dense = [(512 * 49, 4096), (4096, 4096), (4096, 1000)]
    vgg16 = network("vgg16")
    assert vgg16 is not None and vgg16.parameters == convolutions + sum(a * b + b for a, b in dense)
    assert skew("VGG-16") == skew("vgg16") and skew("inception_v3") == skew("inception3") is not None
    assert skew("gpt5") is None
    large, small = ["vgg11", "vgg16", "vgg19", "alexnet"], ["resnet50", "resnet101", "resnet152", "inception4"]
    assert min(skew(name) or 0.0 for name in large) > 0.5 > 0.1 > max(skew(name) or 1.0 for name in small)


def recorded(folder: Path, device: str = "cpu") -> Path:
    """A run of three jobs in one lane: two share it, the third fails.

    ::

        a  launch 0-1, turn 1.0-4.0: start 1 s, 2 iterations of 1 s; turn 6-7: 1 iteration; exit 7.5
        b  launch 0-1, waits until 4.0, turn 4.0-6.0: start 0.5 s, 1 iteration of 1.5 s; turn 7-10: 2 of 1.5; exit 10.25
    """
    log = EventLog(folder / "events.jsonl")
    specs = {name: JobSpec(name, f"class-{name}", priority=2) for name in "abc"}
    exits: list[tuple[Event, list[StartJob | ProfileJob]]] = [
        (RunOpened(0.0, 1, Config("fair"), (Device(device, "local", 1 << 30),)), []),
        *(
            (JobArrived(0.0, spec), [StartJob(number, name, 1, (0,), 1)])
            for number, (name, spec) in enumerate(specs.items())
        ),
        *((Done(1.0, number), []) for number in range(3)),
        (Done(2.0, 99), [ProfileJob(7, "a", 1)]),
        (Profiled(3.0, 7, MemoryDemand(10, 20)), []),
        (JobExited(3.5, "c", 1, Outcome.FAILED, 1, "no", Usage()), []),
        (JobExited(7.5, "a", 1, Outcome.COMPLETED, 0, "", Usage(3, 0, 4.0, 2.0, 4.0)), []),
        (JobExited(10.25, "b", 1, Outcome.COMPLETED, 0, "", Usage(3, 0, 5.0, 1.0, 4.0)), []),
    ]
    for event, commands in exits:
        log.write(event, list(commands))
    log.close()
    begins, ends, train = Kind.TURN_BEGINS, Kind.TURN_ENDS, Kind.TRAIN
    for name, marks in {
        "a": [(begins, 1.0), (train, 3.0), (train, 4.0), (ends, 4.0), (begins, 6.0), (train, 7.0), (ends, 7.0)],
        "b": [(begins, 4.0), (train, 6.0), (ends, 6.0), (begins, 7.0), (train, 8.5), (train, 10.0), (ends, 10.0)],
    }.items():
        (folder / "jobs" / name).mkdir(parents=True)
        tracer = Tracer(trace_path(folder / "jobs" / name, 1), 0.0)
        for kind, at_s in marks:
            (tracer.turn if kind in (begins, ends) else tracer.iteration)(kind, at_s)
    return folder


def test_a_recorded_run_tells_what_its_jobs_take_alone(tmp_path: Path) -> None:
    trace = read(recorded(tmp_path))
    a, b = trace.jobs
    assert a.phases == (Phase(3, 1.0),) and b.phases == (Phase(3, 1.5),)
    assert a.startup_s == pytest.approx(1.0 + 0.5), "start of the script, end"
    assert a.launch_s == b.launch_s == pytest.approx(1.0)
    assert b.startup_s == pytest.approx(0.5 + 0.25), "that it waited for its first turn is no part of it"
    assert a.memory == MemoryDemand(10, 20) and b.memory is None and a.priority == 2
    assert "c did not complete" in trace.note and a.job_class == "class-a"


def test_on_a_gpu_a_script_starts_before_it_asks_for_the_turn(tmp_path: Path) -> None:
    """So that its first wait cannot be told from its start."""
    _, b = read(recorded(tmp_path, "cuda:0")).jobs
    assert b.startup_s == pytest.approx(3.0 + 0.5 + 0.25)


def test_a_turn_that_is_lost_before_the_first_boundary_is_no_start(tmp_path: Path) -> None:
    folder = recorded(tmp_path)
    trace_path(folder / "jobs" / "b", 1).unlink()
    tracer = Tracer(trace_path(folder / "jobs" / "b", 1), 0.0)
    for kind, at_s in ((Kind.TURN_BEGINS, 4.0), (Kind.TURN_ENDS, 4.5), (Kind.TURN_BEGINS, 5.25)):
        tracer.turn(kind, at_s)
    for at_s in (7.0, 8.5):
        tracer.iteration(Kind.TRAIN, at_s)
    tracer.turn(Kind.TURN_ENDS, 8.5)
    _, b = read(folder).jobs
    assert b.startup_s == pytest.approx((3.0 - 0.75 - 1.5) + (10.25 - 8.5))


def test_times_that_cannot_be_are_told_and_marks_that_cannot_be_count_as_none(tmp_path: Path) -> None:
    folder = recorded(tmp_path)
    tracer = Tracer(trace_path(folder / "jobs" / "a", 1), 0.0)
    tracer.turn(Kind.TURN_ENDS, float("nan"))
    assert "a left no trace of iterations" in read(folder).note
    text = (folder / "events.jsonl").read_text()
    (folder / "events.jsonl").write_text(text.replace('"held_s": 4.0', '"held_s": NaN'))
    with pytest.raises(UsageError, match="'a' has times that cannot be"):
        read(folder)


def test_a_run_without_traces_goes_by_what_was_counted(tmp_path: Path) -> None:
    folder = recorded(tmp_path)
    for path in folder.glob("jobs/*/trace.bin"):
        path.unlink()
    trace = read(folder)
    assert [job.phases for job in trace.jobs] == [(Phase(3, 4.0 / 3),), (Phase(3, 5.0 / 3),)]
    assert "a, b left no trace of iterations" in trace.note
    assert all(job.startup_s == 0.0 for job in trace.jobs)


def test_a_log_that_is_damaged_is_told(tmp_path: Path) -> None:
    folder = recorded(tmp_path)
    lines = (folder / "events.jsonl").read_text().splitlines(keepends=True)
    (folder / "events.jsonl").write_text("".join(line for line in lines if '"JobArrived"' not in line))
    with pytest.raises(UsageError, match="'a', which never arrived"):
        read(folder)
    (folder / "events.jsonl").write_text("{}\n")
    with pytest.raises(UsageError, match=r"events\.jsonl:1"):
        read(folder)


def test_a_real_run_is_read_back_as_long_as_it_was(tmp_path: Path) -> None:
    """A job that had a lane to itself took alone what it took."""
    alone = running.run(tmp_path, running.slow_steps("a", 30), options=("--policy", "fifo", "--lanes", "1"))
    (job,) = read(alone.folder).jobs
    jct_s = alone.job("a")["jct_s"]
    assert job.iterations == 30
    assert job.launch_s + job.service_s == pytest.approx(jct_s, rel=0.01)
    assert 0.0 < job.startup_s < jct_s - 20 * job.phases[0].iteration_s


def checked(trace: Trace, jobs: int, service_s: float) -> None:
    assert len(trace.jobs) == jobs
    assert sum(job.service_s for job in trace.jobs) == pytest.approx(service_s, rel=1e-6)
    assert [job.arrival_s for job in trace.jobs] == sorted(job.arrival_s for job in trace.jobs)


@needs_data
def test_public_traces_are_read_as_they_are(tmp_path: Path) -> None:
    """Sums that the peers' simulators have: what Gavel's takes on one GPU is the sum of all its jobs."""
    checked(read(data("tiresias", "philly480.csv")), 480, 1_389_197)
    checked(read(data("tiresias", "60_job.csv")), 60, 10_705)
    trace = read(data("gavel", "30_jobs_1gpu.trace"), speeds=data("gavel", "simulation_throughputs.json"))
    result = json.loads(data("gavel", "results_1gpu.json").read_text())["runs"]["finish_time_fairness"]
    checked(trace, 30, result["total_duration_s"])
    own.write(trace, tmp_path / "own.csv")
    assert read(tmp_path / "own.csv").jobs == trace.jobs


@needs_data
def test_shockwaves_jobs_do_the_epochs_of_their_trace() -> None:
    table, file = data("shockwave", "tacc_throughputs.json"), data("shockwave", "batch_size_schedules.json")
    path = data("shockwave", "120_jobs.trace")
    changing, kept = (read(path, speeds=table, schedules=each) for each in (file, None))
    plans = json.loads(file.read_text())["jobs"]
    lines = path.read_text().splitlines()
    for job, fixed, plan, line in zip(changing.jobs, kept.jobs, plans, lines, strict=True):
        cells = line.split("\t")
        assert fixed.iterations == int(cells[5])
        assert fixed.service_s == pytest.approx(float(cells[10]), abs=1.5), "the duration that the trace itself has"
        if len({batch_size for batch_size, _ in plan["batch_size_runs"]}) == 1:
            assert job.iterations == fixed.iterations
        whole = sum(count * ceil(plan["samples_per_epoch"] / size) for size, count in plan["batch_size_runs"])
        last = ceil(plan["samples_per_epoch"] / plan["batch_size_runs"][-1][0])
        assert whole - last < job.iterations <= whole


@needs_data
def test_philly_is_read_whole() -> None:
    trace = read(data("philly", "philly_jobs.csv"))
    checked(trace, 82_247, 1_080_390_950)
    assert sum(job.gpus * job.service_s for job in trace.jobs) == pytest.approx(978_078.4728 * 3600)
    assert (trace.jobs[0].line, max(job.gpus for job in trace.jobs)) == (31_568, 128)
