"""Profile of a service: joules of its answers from the samples of the meter, and what a plan takes from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ecoshare.base.device import DeviceInfo
from ecoshare.base.service import BATCHES
from ecoshare.jobs.load import load
from ecoshare.knowledge.profile import Profile
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.lane.files import of_attempt
from ecoshare.lane.serving.batch_measurement import BatchTimes
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.samples import Line, Sample, Session
from ecoshare.runtime.measuring.profiler import Profiler, batch_answers
from ecoshare.runtime.measuring.profiling_window import Limits
from ecoshare.runtime.planning import plan as planning
from ecoshare.runtime.planning.planned_knowledge import known_solo
from tests.planning import planned as made_plan
from tests.reporting.profiles import PROFILE, SERVICE
from tests.runtime.running import job_file

DEVICE = DeviceInfo("cpu", "cpu", "cpu", "A processor", None, 8 << 30, 2)


def times(size: int, from_s: float, to_s: float, mean_s: float) -> BatchTimes:
    return BatchTimes(size, 30, from_s, to_s, mean_s, 0.0, mean_s, mean_s, mean_s)


def lines(source: str = "measured") -> list[Line]:
    """Samples of a device that takes 100 W for 10 s, and then 200 W; the meter fails at 18 s."""
    session = Session(0.0, "cpu", "rapl", source, "cpu", "a meter", 0.1, 40.0)
    levels = [100.0 * at_s + 100.0 * max(0, at_s - 10) for at_s in range(21)]
    return [session, *(Sample(float(at_s), None if at_s == 18 else level) for at_s, level in enumerate(levels))]


def test_joules_are_the_power_inside_the_time_of_a_size_times_the_time_of_an_answer() -> None:
    one, four = batch_answers([times(1, 2.5, 9.5, 0.01), times(4, 10.5, 15.5, 0.02)], lines())
    assert one.per_request_j == pytest.approx(100.0 * 0.01)
    assert four.per_request_j == pytest.approx(200.0 * 0.02 / 4), "a request is a part of its batch"
    # The counter is new every 0.1 s, and 6 s are measured at size 1: from 3 s to 9 s.
    assert one.energy_error == pytest.approx(0.1 / 6**0.5 / 6.0)
    assert (four.size, four.count, four.mean_s, four.p99_s) == (4, 30, 0.02, 0.02)
    [modelled] = batch_answers([times(1, 2.5, 9.5, 0.01)], lines("modelled"))
    assert modelled.per_request_j == one.per_request_j and modelled.energy_error is None


@pytest.mark.parametrize(("from_s", "to_s"), [(2.1, 3.9), (15.5, 18.5), (30.0, 40.0)])
def test_joules_that_are_not_known_are_no_number(from_s: float, to_s: float) -> None:
    """One sample, a last sample without a number, and none at all."""
    assert batch_answers([times(1, from_s, to_s, 0.01)], lines())[0].per_request_j is None
    assert batch_answers([times(1, from_s, to_s, 0.01)], [])[0].per_request_j is None


@pytest.mark.parametrize(
    ("sizes", "longest_s"), [((), 0.009), ((1, 4), 0.009), ((2,), 0.015), ((4, 8), 0.015), ((8,), None)]
)
def test_the_longest_answer_is_that_of_the_smallest_batch_that_may_be_used(
    sizes: tuple[int, ...], longest_s: float | None
) -> None:
    assert known_solo(SERVICE, sizes).longest_s == longest_s
    assert known_solo(SERVICE, sizes).iteration_s is None, "it has no iterations"


def test_the_longest_iteration_is_that_of_either_kind() -> None:
    assert PROFILE.train is not None
    assert known_solo(PROFILE).longest_s == PROFILE.train.p95_s
    slower = PROFILE.train.model_copy(update={"p95_s": 1.5})
    assert known_solo(PROFILE.model_copy(update={"eval": slower})).longest_s == 1.5
    assert known_solo(PROFILE.model_copy(update={"train": None})).longest_s is None


@pytest.mark.parametrize("known", [PROFILE, SERVICE])
def test_times_of_a_busy_machine_keep_no_job_out(known: Profile) -> None:
    assert (
        known_solo(known.model_copy(update={"doubt": "other programs kept 1 of 2 processors busy"})).longest_s is None
    )


def test_a_job_file_need_not_name_the_sizes_that_were_measured(tmp_path: Path) -> None:
    """The class is that of the program. If `batch:` counted, each list would have to be measured anew."""
    (tmp_path / "serves.py").write_text("")
    store = ProfileStore(tmp_path / "profiles")

    def planned(**options: Any) -> planning.Plan:
        job = {"name": "serves", "script": "serves.py", "service": {"p99": "50 ms", **options}}
        return made_plan(load(job_file(tmp_path, job)), (DEVICE,), policy="fair", store=store)

    [job] = planned().jobs
    assert job.spec.solo is not None and job.spec.solo.longest_s is None
    store.save(SERVICE.model_copy(update={"job_class": job.spec.job_class, "origin": job.job_class.origin}))
    for options, longest_s in (({}, 0.009), ({"batch": [2, 4]}, 0.015)):
        [again] = planned(**options).jobs
        assert again.spec.job_class == job.spec.job_class and again.spec.profiled
        assert again.spec.solo is not None and again.spec.solo.longest_s == longest_s


def test_a_profile_of_an_earlier_version_has_no_batches() -> None:
    old = json.loads(PROFILE.model_dump_json())
    del old["batches"]
    assert Profile.model_validate_json(json.dumps(old)) == PROFILE
    assert SERVICE.is_whole and not SERVICE.model_copy(update={"batches": ()}).is_whole


def test_the_window_of_a_service_that_has_measured_itself_is_short(tmp_path: Path) -> None:
    limits = Limits(shortest_s=5.0, longest_s=30.0)
    profiler = Profiler(RunFolder(tmp_path), ProfileStore(tmp_path / "profiles"), limits)
    assert profiler.window_limits("a", 1) == profiler.limits
    path = of_attempt(profiler.folder.job("a"), BATCHES, 1)
    path.parent.mkdir(parents=True)
    path.write_text(SERVICE.batches[0].model_dump_json(include={"size", "count", "mean_s"}) + "\n")
    assert profiler.window_limits("a", 1) == profiler.limits, "the line is damaged"
    known = {**SERVICE.batches[0].model_dump(), "from_s": 1.0, "to_s": 4.0}
    path.write_text(json.dumps(known) + "\n")
    assert profiler.window_limits("a", 1).longest_s == 5.0
