"""Traces of Gavel and Shockwave: steps, and the speeds and batch sizes that turn steps into times."""

from __future__ import annotations

import json
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from ecoshare.errors import InvalidJobFile, UsageError
from ecoshare.simulation.traces.any_trace import read
from ecoshare.simulation.traces.job_trace import Phase
from tests.simulation.trace_files import TIRESIAS, data, needs_data, written

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
"""Schedule: at 10 steps an epoch for a batch size of 10, 95 steps are 10 epochs, the last of which is half."""


def gavel_line(job_type: str = "LM (batch size 10)", steps: str = "100", gpus: str = "1", arrival: str = "0") -> str:
    return f'{job_type}\tpython3 main.py --data "%s/x\tlm\t--steps\t1\t{steps}\t{gpus}\t1\t-1.000000\t{arrival}\n'


def shockwave_line(steps: int = STEPS, mode: str = "gns") -> str:
    return f"LM (batch size 10)\tpython3 main.py\tlm\t--steps\t1\t{steps}\t1\t{mode}\t1\t-1.000000\t2\t5\n"


def speeds(folder: Path) -> Path:
    return written(folder, json.dumps(SPEEDS), "speeds.json")


def schedules(folder: Path, **changes: object) -> Path:
    return written(folder, json.dumps({"what": "...", "jobs": [SCHEDULE | changes]}), "schedules.json")


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
    assert job.iterations == STEPS, "a job without changes does the steps of the trace"


def test_a_job_that_keeps_its_batch_size_needs_no_schedule_and_one_that_does_not_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, shockwave_line() + shockwave_line(mode="static"))
    trace = read(path, speeds=speeds(tmp_path))
    assert [job.iterations for job in trace.jobs] == [STEPS, STEPS]
    assert "keep their first batch size for lack of schedules: 1" in trace.note


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"epochs": 11, "batch_size_runs": [[10, 11]]}, "95 steps make 10 epochs of 10, and its schedule has 11"),
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
    table: dict[str, Any] = {option: speeds(tmp_path)}
    with pytest.raises(UsageError, match=f"--{option}"):
        read(path, **table)


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
