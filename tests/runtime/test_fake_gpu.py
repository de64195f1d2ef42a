"""Whole runs on a fake GPU, through all steps of a run on a GPU except CUDA.

The driver (tests/driver) is ours, and so is the stand-in for `torch.cuda` in the jobs' processes. Command line,
controller, warm server, hooks, NVML bindings and zeus are the real ones.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ecoshare.core.commands import ProfileJob
from ecoshare.knowledge.profile import Profile
from ecoshare.record import event_log
from ecoshare.record.samples import Idle, Session
from tests.driver import COMPILER, FakeDriver, Fault, faults, presets
from tests.driver.runs import OnGpu, at_work, drawn_w, profile_on_gpu, run_on_gpu, samples, two_gpus
from tests.driver.training import COMPUTES, CONTEXT_BYTES, SCRIPT, STREAMS, WAITS, Training
from tests.runtime.running import Finished
from tests.warm import wait_for

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="the fake driver is compiled, and there is no C compiler"),
    pytest.mark.slow,
]

H200 = presets.H200
TOP_CLOCK_MHZ = H200.clocks_mhz[3201][0]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> OnGpu:
    """Two jobs of unknown classes take turns in one lane, after a time in which the GPU has no job."""
    folder = tmp_path_factory.mktemp("shared")
    options = ("--profiles", str(folder / "profiles"))
    jobs = [job | {"arrival": "6 s"} for job in (COMPUTES.job(230), STREAMS.job(175))]
    return run_on_gpu(folder, two_gpus(folder), *jobs, options=options)


@pytest.fixture(scope="module")
def known(shared: OnGpu, tmp_path_factory: pytest.TempPathFactory) -> OnGpu:
    """Two jobs of the same classes on the same GPU, in a later run."""
    folder = tmp_path_factory.mktemp("known")
    (folder / "trains.py").write_text(SCRIPT)
    options = ("--profiles", str(shared.done.folder.parents[1] / "profiles"))
    return run_on_gpu(folder, shared.driver, COMPUTES.job(100), STREAMS.job(70), options=options)


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> tuple[FakeDriver, str, Profile]:
    """Output of `ecoshare profile` if the driver does not tell which processes are on the GPU."""
    folder = tmp_path_factory.mktemp("hidden")
    driver = two_gpus(folder)
    driver.fault(Fault.NO_PERMISSION, functions="nvmlDeviceGetComputeRunningProcesses*")
    return driver, *profile_on_gpu(folder, driver, WAITS, "--iterations", "80")


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> OnGpu:
    """Run in which the energy counter fails, later stands still, and later the driver answers no more."""
    folder = tmp_path_factory.mktemp("faulty")
    driver, over = two_gpus(folder), folder / "over"

    def meanwhile(run: Path) -> None:
        wait_for(lambda: at_work(run))
        driver.gpu(1).fault(Fault.UNKNOWN, functions=faults.ENERGY)
        wait_for(lambda: bool(samples(run)[-1].fault))
        driver.mend()
        wait_for(lambda: at_work(run))
        driver.gpu(1).fault(Fault.COUNTER_STALE)
        wait_for(lambda: samples(run)[-1].energy_j == samples(run)[-2].energy_j)
        driver.mend()
        wait_for(lambda: at_work(run))
        driver.gpu(1).fault(Fault.TIMEOUT)
        wait_for(lambda: bool(samples(run)[-1].fault))
        over.touch()

    return run_on_gpu(folder, driver, COMPUTES.job(100_000, "--until", str(over)), meanwhile=meanwhile)


@pytest.fixture(scope="module")
def watts(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., float]:
    """Power (W) of the fake GPU with one process of this load; for None, without a process."""
    return lambda compute, memory=0.0: drawn_w(tmp_path_factory.mktemp("watts"), compute, memory)


def active_j(training: Training, done: Finished, watts: Callable[..., float]) -> float:
    """True energy (J) of a job beyond the idle GPU."""
    busy_s = done.job(training.name)["iterations"] * training.ms / 1000
    return float(busy_s * (watts(training.compute, training.memory) - watts(0.0)))


def test_the_gpu_is_found_by_its_uuid(shared: OnGpu) -> None:
    (device,) = shared.done.summary["devices"]
    assert (device["name"], device["uuid"]) == ("cuda:0", shared.driver.gpu(1).uuid)
    assert device["model"] == H200.name
    assert [job["state"] for job in shared.done.summary["jobs"]] == ["completed", "completed"]


def test_the_joules_of_a_run_are_those_of_its_gpu(shared: OnGpu, watts: Callable[..., float]) -> None:
    """Else a reading of another GPU, a lost sample, or joules that count twice would pass."""
    summary = shared.done.summary
    energy = summary["energy"]
    assert (energy["source"], energy["scope"], energy["meter"]) == ("measured", "gpu", "nvml")
    assert energy["covered"] == 1.0 and not energy["faults"]
    jobs_j = [job["energy"]["value_j"] for job in summary["jobs"]]
    assert summary["idle_energy_j"] + sum(jobs_j) == pytest.approx(energy["value_j"], rel=1e-9)
    # Before the first sample and after the last there is no process on the GPU.
    outside_s = shared.wall_s - (shared.samples[-1].at_s - shared.samples[0].at_s)
    truth_j = shared.counted_j - outside_s * watts(None)
    assert energy["value_j"] == pytest.approx(truth_j, abs=3 * energy["standard_error_j"])


def test_the_idle_gpu_is_watched_with_the_contexts_on_it(shared: OnGpu, watts: Callable[..., float]) -> None:
    """The idle power would be far off if it were measured before the jobs stop, or without their contexts."""
    (idle,) = (line for line in shared.lines if isinstance(line, Idle))
    assert watts(0.0) > watts(None) + 30.0
    assert idle.power_w == pytest.approx(watts(0.0), abs=3 * idle.standard_error_w)
    summary = shared.done.summary
    assert summary["idle_power_w"] == idle.power_w, "what contexts draw is of no iteration"
    assert summary["empty_power_w"] == pytest.approx(watts(None), rel=0.1), "it is told apart"
    for training in (COMPUTES, STREAMS):
        energy = shared.profile(training).energy
        assert energy is not None and energy.idle_w == idle.power_w


def test_samples_have_what_the_driver_tells(shared: OnGpu, watts: Callable[..., float]) -> None:
    session, *_ = shared.lines
    assert isinstance(session, Session) and 0.08 < session.period_s < 0.12, "that of the fake is 0.1 s"
    for sample in shared.samples:
        told = (sample.power_w, sample.temperature_c, sample.busy, sample.memory_busy, sample.memory_bytes)
        assert None not in (sample.energy_j, *told)
        assert sample.memory_clock_mhz == 3201
    running = [sample for sample in shared.samples if any(each.memory_bytes for each in sample.jobs.values())]
    assert {sample.gpu_clock_mhz for sample in running} == {TOP_CLOCK_MHZ}
    assert max(sample.power_w or 0.0 for sample in running) <= watts(STREAMS.compute, STREAMS.memory) + 1.0, (
        "two jobs were on the GPU at once"
    )


@pytest.mark.parametrize(("training", "bound_by"), [(COMPUTES, "compute"), (STREAMS, "memory")])
def test_a_profile_is_that_of_the_job_alone(
    shared: OnGpu, watts: Callable[..., float], training: Training, bound_by: str
) -> None:
    """If the other job were not held and drained, its work would be in these figures."""
    made = shared.profile(training)
    memory, energy = made.memory, made.energy
    assert made.window.paused_jobs == 1
    assert memory.context_bytes == CONTEXT_BYTES and not memory.note
    assert memory.persistent_bytes == training.kept_bytes + CONTEXT_BYTES
    assert memory.ephemeral_bytes == training.work_bytes == max(level for _, level in memory.timeline)
    # A machine that stands still for a moment makes one iteration long: it is in the mean, and in its error. On a busy
    # one, marks come early and late: the median is off by no more than they vary.
    assert made.train is not None
    varies_s = made.train.p95_s - made.train.median_s
    assert made.train.median_s == pytest.approx(training.ms / 1000, abs=0.02 * training.ms / 1000 + varies_s)
    beyond_s = abs(made.train.mean_s - training.ms / 1000) - 0.02 * training.ms / 1000
    assert made.train.standard_error_s is not None and beyond_s <= 3 * made.train.standard_error_s
    assert energy is not None and energy.source == "measured" and energy.relative_error is not None
    assert 0.0 < energy.relative_error < 0.02
    # On a busy machine the GPU stands still between two iterations, and draws less then: for the time by which they
    # take longer, at most.
    alone_w, idle_w = watts(training.compute, training.memory), watts(0.0)
    worked = min(1.0, training.ms / 1000 / made.train.mean_s)
    error_w = 3 * energy.relative_error * alone_w
    assert idle_w + worked * (alone_w - idle_w) - error_w <= energy.power_w <= alone_w + error_w
    beyond_idle_j, active_j = (alone_w - idle_w) * made.train.mean_s, energy.active_per_iteration_j
    error_j = 4 * energy.relative_error * beyond_idle_j
    assert active_j is not None and worked * beyond_idle_j - error_j <= active_j <= beyond_idle_j + error_j
    # The fake tells the load of the instant: one of the few samples may fall between two iterations.
    assert (made.use.busy, made.use.memory_busy) == pytest.approx((training.compute, training.memory), rel=0.25)
    assert made.use.bound_by == bound_by
    setting = made.setting
    assert (setting.gpu_clock_mhz, setting.memory_clock_mhz) == (TOP_CLOCK_MHZ, 3201)
    assert setting.power_limit_w == H200.limits_w[1]


@pytest.mark.parametrize("which", ["shared", "known"])
def test_each_job_gets_the_joules_of_its_own_work(
    which: str, request: pytest.FixtureRequest, watts: Callable[..., float]
) -> None:
    """The sum would be wrong with the idle power of a GPU without contexts, or with work after a hand-over."""
    run: OnGpu = request.getfixturevalue(which)
    # The time in which the contexts come up, a second or more, counts as idle with them on the GPU.
    first, *_ = (sample for sample in run.samples if any(each.memory_bytes for each in sample.jobs.values()))
    beginning_j = (watts(0.0) - watts(None)) * max(first.at_s - run.samples[0].at_s, 1.0)
    for training in (COMPUTES, STREAMS):
        energy = run.done.job(training.name)["energy"]
        assert energy["source"] == "attributed"
        allowed_j = 3 * energy["standard_error_j"] + beginning_j
        assert energy["value_j"] == pytest.approx(active_j(training, run.done, watts), abs=allowed_j)


def test_the_next_run_measures_nothing_again(known: OnGpu) -> None:
    entries = event_log.read(known.done.folder / "events.jsonl")
    assert not [entry for entry in entries if isinstance(entry, ProfileJob)]
    assert not [line for line in known.lines if isinstance(line, Idle)]


def test_the_next_run_splits_joules_by_the_profiles(known: OnGpu, watts: Callable[..., float]) -> None:
    """A split by time with the turn would give the job with less power too much."""
    truth_j = {each.name: active_j(each, known.done, watts) for each in (COMPUTES, STREAMS)}
    jobs = [known.done.job(name) for name in truth_j]
    share = jobs[0]["energy"]["value_j"] / sum(job["energy"]["value_j"] for job in jobs)
    truth = truth_j[COMPUTES.name] / sum(truth_j.values())
    by_time = jobs[0]["held_s"] / sum(job["held_s"] for job in jobs)
    assert abs(share - truth) < 0.035 < abs(by_time - truth)


def test_profile_prints_measured_joules_with_their_error(
    hidden: tuple[FakeDriver, str, Profile], watts: Callable[..., float]
) -> None:
    _, printed, made = hidden
    energy = made.energy
    assert energy is not None and energy.source == "measured" and energy.relative_error is not None
    assert energy.power_w == pytest.approx(watts(WAITS.compute, WAITS.memory), rel=3 * energy.relative_error)
    (line,) = (line for line in printed.splitlines() if line.strip().startswith("training iteration  "))
    assert " J ± " in line and "% measured" in line
    assert made.use.bound_by == "host", "the GPU is idle for most of the time"


def test_memory_that_the_driver_hides_is_left_out_and_said_to_be(hidden: tuple[FakeDriver, str, Profile]) -> None:
    """A context of 0 bytes would look like a measured context."""
    _, _, made = hidden
    assert made.memory.context_bytes is None
    assert made.memory.persistent_bytes == WAITS.kept_bytes
    assert "P is without context" in made.memory.note


@pytest.mark.nightly
def test_no_fault_of_the_meter_ends_a_run(faulty: OnGpu) -> None:
    job = faulty.done.job(COMPUTES.name)
    assert (job["state"], job["exit_code"]) == ("completed", 0)


def test_every_fault_is_told(faulty: OnGpu) -> None:
    energy = faulty.done.summary["energy"]
    assert 0.0 < energy["covered"] < 1.0
    for told in ("Unknown Error", "stood still while a job was busy", "Timeout"):
        assert any(told in fault for fault in energy["faults"]), energy["faults"]


def test_what_a_fault_hides_is_unknown_and_never_zero(faulty: OnGpu) -> None:
    summary = faulty.done.summary
    assert summary["energy"]["value_j"] > 0.0 and summary["idle_energy_j"] > 0.0
    assert summary["jobs"][0]["energy"]["value_j"] > 0.0
    assert all(sample.energy_j is None for sample in faulty.samples if sample.fault)
    (silent, *_) = (sample for sample in faulty.samples if "Timeout" in sample.fault)
    assert (silent.power_w, silent.gpu_clock_mhz, silent.memory_bytes, silent.busy) == (None,) * 4
    assert [each.memory_bytes for each in silent.jobs.values()] == [None]
    hidden = [interval for interval in faulty.intervals if interval.energy_j is None]
    assert all(interval.fault and not interval.jobs_j for interval in hidden) and len(hidden) >= 4
    assert all(interval.energy_j != 0.0 for interval in faulty.intervals)


def test_no_interval_has_more_joules_than_the_gpu_can_spend(faulty: OnGpu, watts: Callable[..., float]) -> None:
    most_w = watts(COMPUTES.compute, COMPUTES.memory)
    for interval in faulty.intervals:
        # Two updates of the counter more than fit, at most.
        assert (interval.energy_j or 0.0) <= most_w * (interval.to_s - interval.from_s + 0.2)


def test_joules_an_iteration_do_not_shrink_with_what_is_known(faulty: OnGpu, watts: Callable[..., float]) -> None:
    per_iteration_j = faulty.done.job(COMPUTES.name)["energy_per_iteration_j"]
    truth_j = (watts(COMPUTES.compute, COMPUTES.memory) - watts(None)) * COMPUTES.ms / 1000
    # On a busy machine the stand-in's work takes longer than it should, and so costs more.
    assert per_iteration_j is None or 0.9 * truth_j < per_iteration_j < 1.4 * truth_j


def test_nothing_is_set(shared: OnGpu, known: OnGpu, hidden: tuple[FakeDriver, str, Profile], faulty: OnGpu) -> None:
    """No setter may be called, not even one that fails or that repeats the present value."""
    for driver in (shared.driver, known.driver, hidden[0], faulty.driver):
        assert driver.setter_calls() == []
