"""Generated traces are the same for the same seed, and agree with their sources."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from ecoshare.base.class_profile import MemoryDemand
from ecoshare.errors import InvalidJobFile, UsageError
from ecoshare.simulation.traces import generate as generated
from ecoshare.simulation.traces import own
from ecoshare.simulation.traces.generate import KINDS, generate, network
from ecoshare.simulation.traces.job_trace import Trace

CATALOGUE = """vgg16_25_1min,70.0,4000,300,python train.py
vgg16_25_5min,310.5,4000,1500,python train.py
vgg16_25_1min,610.0,4000,3000,python train.py
wavenet_8_1min,60.0,500,100,python train.py
"""
"""Catalogue with iterations of 0.2 s after 10 s of start; the third name has a wrong length, as in the real one."""

PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n" + "".join(
    f"2017-10-09 07:00:0{place},{duration},{gpus},0,a\n"
    for place, (duration, gpus) in enumerate([(100, 1), (50, 4), (9, 64)])
)

needs_data = pytest.mark.skipif(
    "ECOSHARE_DATA" not in os.environ, reason="ECOSHARE_DATA names no folder with the public traces"
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Folder of data with a few lines in each file."""
    for file, text in ((generated.SALUS_FILE, CATALOGUE), (generated.PHILLY_FILE, PHILLY)):
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).write_text(text)
    return tmp_path


def public() -> Path:
    return Path(os.environ["ECOSHARE_DATA"])


def load_of(trace: Trace, gpus: int) -> float:
    work_gpu_s = sum(job.gpus * job.service_s for job in trace.jobs)
    return work_gpu_s / (gpus * trace.jobs[-1].arrival_s)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", [False, True])
def test_the_same_seed_gives_the_same_trace_and_another_one_another(kind: str, given: bool, data: Path) -> None:
    folder = data if given else None
    once, again, other = (generate(kind, 200, seed, folder) for seed in (7, 7, 8))
    assert once == again and once.jobs != other.jobs
    assert len(once.jobs) == 200 == len({job.name for job in once.jobs})
    arrivals_s = [job.arrival_s for job in once.jobs]
    assert arrivals_s[0] == 0.0 and arrivals_s == sorted(arrivals_s)
    assert all(job.service_s > 0.0 for job in once.jobs) and once.note


@pytest.mark.slow
def test_the_same_seed_gives_the_same_trace_in_another_process(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from ecoshare.simulation.traces import generate, own\n"
        "[own.write(generate.generate(kind, 50, 3), Path(sys.argv[1]) / kind) for kind in generate.KINDS]"
    )
    for hash_seed in ("0", "1"):
        (folder := tmp_path / hash_seed).mkdir()
        subprocess.run(
            [sys.executable, "-c", script, str(folder)], check=True, env={**os.environ, "PYTHONHASHSEED": hash_seed}
        )
    for kind in KINDS:
        own.write(generate(kind, 50, 3), tmp_path / "here")
        texts = {(path / kind).read_text() for path in (tmp_path / "0", tmp_path / "1")}
        assert texts == {(tmp_path / "here").read_text()}


def test_a_row_of_the_catalogue_takes_what_was_measured(data: Path) -> None:
    jobs = generate("salus", 400, 0, data).jobs
    vgg16 = {job.iterations: job for job in jobs if job.job_class == "vgg16_25"}
    assert {count: round(job.service_s, 6) for count, job in vgg16.items()} == {300: 70.0, 1500: 310.5, 3000: 610.0}
    assert {round(job.phases[0].iteration_s, 9) for job in vgg16.values()} == {0.2}
    assert vgg16[1500].startup_s == pytest.approx(10.5)
    (wavenet,) = {(job.service_s, job.skew, job.memory) for job in jobs if job.job_class == "wavenet_8"}
    assert wavenet == (60.0, None, MemoryDemand(500 << 20, 0)), "what is not known of a network is not promised"


def test_what_a_catalogues_job_keeps_is_its_parameters(data: Path) -> None:
    known = network("vgg16")
    assert known is not None
    job = next(job for job in generate("salus", 50, 0, data).jobs if job.job_class == "vgg16_25")
    assert job.memory is not None and job.skew == known.skew
    assert job.memory.persistent_bytes == 4 * known.parameters and job.memory.peak_bytes == 4000 << 20


def test_without_a_catalogue_no_memory_and_no_speed_is_invented() -> None:
    trace = generate("salus", 3000, 0)
    assert {job.memory for job in trace.jobs} == {None} and {job.service_s for job in trace.jobs} == {
        60.0,
        300.0,
        600.0,
    }
    classes = Counter(job.job_class.rpartition("_")[0] for job in trace.jobs)
    assert len(classes) == 15 and len({job.job_class for job in trace.jobs}) == 45
    assert max(classes.values()) < 1.5 * min(classes.values())
    assert "memory is not known" in trace.note


@pytest.mark.nightly
@pytest.mark.parametrize("load", [0.5, 3.0])
def test_jobs_come_as_fast_as_the_load_says(load: float) -> None:
    """The standard error over 20,000 jobs is about 1 %; a load changes only arrivals."""
    trace = generate("salus", 20_000, 1, gpus=4, load=load)
    assert load_of(trace, 4) == pytest.approx(load, rel=0.05)
    gaps_s = np.diff([job.arrival_s for job in trace.jobs])
    assert np.std(gaps_s) == pytest.approx(np.mean(gaps_s), rel=0.05), "of a Poisson process"
    twice = generate("salus", 20_000, 1, gpus=4, load=2 * load)
    assert [job.phases for job in twice.jobs] == [job.phases for job in trace.jobs]
    assert twice.jobs[-1].arrival_s == pytest.approx(trace.jobs[-1].arrival_s / 2)


def test_rows_of_a_given_trace_are_drawn_where_they_fit(data: Path) -> None:
    drawn = {(job.gpus, job.service_s) for job in generate("philly", 500, 0, data).jobs}
    assert drawn == {(1, 100.0), (4, 50.0), (64, 9.0)}
    assert {job.gpus for job in generate("philly", 500, 0, data, gpus=4).jobs} == {1, 4}
    (data / generated.PHILLY_FILE).write_text(PHILLY.splitlines(keepends=True)[0] + "2017-10-09 07:00:00,1,64,0,a\n")
    with pytest.raises(UsageError, match="no jobs of 4 GPUs or fewer"):
        generate("philly", 5, 0, data, gpus=4)


@pytest.mark.slow
def test_quantiles_are_those_that_the_table_states() -> None:
    trace = generate("philly", 60_000, 0)
    durations_s = np.array([job.service_s for job in trace.jobs if job.gpus == 1])
    for level, stated_s in zip((0.1, 0.25, 0.5, 0.75, 0.9), generated.GROUPS[1].durations_s[2:7], strict=True):
        assert np.mean(durations_s <= stated_s * 1.0001) == pytest.approx(level, abs=0.01)
    shares = Counter(job.gpus for job in trace.jobs)
    whole = sum(group.jobs for group in generated.GROUPS.values())
    for gpus, group in generated.GROUPS.items():
        assert shares[gpus] / 60_000 == pytest.approx(group.jobs / whole, abs=0.003)
    assert {job.gpus for job in generate("philly", 2000, 0, gpus=7).jobs} == {1, 2, 4}


def test_a_third_of_each_rung_goes_on_three_times_as_long() -> None:
    jobs = generate("sweep", 30, 0).jobs
    assert Counter(job.iterations for job in jobs) == {600: 20, 1800: 7, 5400: 2, 16200: 1}
    assert {(job.job_class, job.arrival_s, job.memory) for job in jobs} == {
        ("sweep", 0.0, MemoryDemand(1 << 30, 2 << 30))
    }
    assert [job.iterations for job in jobs] != sorted(job.iterations for job in jobs), "the best trial is drawn"


@pytest.mark.parametrize(
    ("kind", "jobs", "seed", "options", "what"),
    [
        ("phily", 1, 0, {}, "--generate phily: expected one of salus"),
        ("salus", 0, 0, {}, "0 jobs"),
        ("salus", 1, -1, {}, "seed -1"),
        ("philly", 1, 0, {"gpus": 0}, "0 GPUs"),
        ("philly", 1, 0, {"load": 0.0}, "load 0"),
        ("philly", 1, 0, {"load": float("nan")}, "load nan"),
        ("salus", 1, 0, {"data": Path("nowhere")}, "cannot read nowhere"),
        ("philly", 1, 0, {"data": Path("nowhere")}, "cannot read nowhere"),
    ],
)
def test_what_cannot_be_generated_is_told(
    kind: str, jobs: int, seed: int, options: dict[str, int | float | Path], what: str
) -> None:
    with pytest.raises(UsageError, match=what):
        generate(kind, jobs, seed, **options)  # type: ignore[arg-type]


def test_a_catalogue_that_is_wrong_is_told_with_its_place(data: Path) -> None:
    (data / generated.SALUS_FILE).write_text(CATALOGUE + "vgg16,70,1,1,x\nvgg16_25_5min,0,1,1,x\n")
    with pytest.raises(InvalidJobFile) as caught:
        generate("salus", 1, 0, data)
    assert [(each.line, each.where) for each in caught.value.mistakes] == [(5, "name"), (6, "JCT")]


@needs_data
def test_the_catalogues_jobs_take_as_long_as_it_says() -> None:
    rows = [line.split(",") for line in (public() / generated.SALUS_FILE).read_text().splitlines()]
    jobs = generate("salus", 5000, 0, public()).jobs
    measured = {(name.rpartition("_")[0], int(count)): float(jct_s) for name, jct_s, _, count, _ in rows}
    drawn = {(job.job_class, job.iterations): job for job in jobs}
    assert len(rows) == 99 == len(measured) and drawn.keys() == measured.keys()
    for key, job in drawn.items():
        assert job.service_s == pytest.approx(measured[key], rel=1e-9)
        assert job.memory is not None and 0 < job.memory.persistent_bytes < job.memory.peak_bytes
        assert 0.0 <= job.startup_s < 75.0 and job.skew is not None


@pytest.mark.nightly
@needs_data
def test_the_tables_quantiles_are_those_of_the_trace() -> None:
    cells = [line.split(",") for line in (public() / generated.PHILLY_FILE).read_text().splitlines()[1:] if line]
    sizes, durations_s = np.array([int(each[2]) for each in cells]), np.array([float(each[1]) for each in cells])
    jobs = generate("philly", 100_000, 0).jobs
    for gpus, group in generated.GROUPS.items():
        own_s = durations_s[sizes == gpus]
        assert len(own_s) == group.jobs
        assert tuple(np.quantile(own_s, generated.LEVELS, method="nearest").astype(int)) == group.durations_s
        drawn = [job.service_s for job in jobs if job.gpus == gpus]
        # The tail of a group holds its mean: of few jobs more than an order cannot be asked.
        assert np.mean(drawn) == pytest.approx(np.mean(own_s), rel=0.3)
