"""The energy world and the bound on energy, on small invented tables, and on the measured tables if given."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from itertools import combinations_with_replacement
from pathlib import Path
from random import Random
from statistics import fmean, pstdev

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scripts.bench.energy_bound import bound, exclusive
from scripts.bench.energy_world import DRIFT, NOISE, MeasuredWorld, busy_and_delay, load, mix
from tests.simulation.trace_files import data, needs_data

ROOT = Path(__file__).parents[2]
LIMITS_W = (100, 150, 200, 250)
MADE = {
    "ResNet-18 (batch size 16)": 30.0,
    "ResNet-18 (batch size 256)": 10.0,
    "ResNet-50 (batch size 64)": 4.0,
    "Transformer (batch size 32)": 11.0,
    "Transformer (batch size 256)": 1.5,
    "LM (batch size 5)": 109.0,
    "A3C": 7.0,
    "Recommendation (batch size 512)": 23.0,
}
BIG = "Transformer (batch size 256)"
REFUSED = {(BIG, BIG), (BIG, "Transformer (batch size 32)"), (BIG, "ResNet-50 (batch size 64)")}
WATTS = {"shufflenetv2": 120.0, "resnet50": 222.0, "bert_base_uncased": 226.0, "deepspeech2": 170.0, "ncf": 38.0}


def tables(folder: Path) -> Path:
    """Tables in the formats of the public ones, with numbers that are easy to tell apart."""
    files = {
        "gavel/simulation_throughputs.json": json.dumps({"v100": made_pairs()}),
        "gavel/oracle_throughputs.json": json.dumps({"k80": made_oracle(0.3), "p100": made_oracle(0.1)}),
        "zeus_nsdi23/summary_power_v100.csv": made_limits(),
        "gpuptxmodel/microbenchmarks__aggregated_dataset_gtxtitanx.csv": made_clocks(),
        "gpuptxmodel/idle_pows_gtxtitanx.txt": "40\n41\n42\n80\n83\n88\n",
        "kernel_tuner/synthetic_fp32_cache_NVIDIA_RTX_A4000.json": json.dumps(
            {"cache": {mhz: {"core_freq": mhz, "time": 1e5 / mhz, "nvml_power": 17 + mhz / 20} for mhz in (400, 1700)}}
        ),
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def made_pairs() -> dict[str, dict[str, object]]:
    rows: dict[str, dict[str, object]] = {}
    for one, (name, alone) in enumerate(MADE.items()):
        row = rows.setdefault(f"('{name}', 1)", {"null": alone})
        for other, (beside, its) in enumerate(MADE.items()):
            refused = (name, beside) in REFUSED or (beside, name) in REFUSED
            pair = [alone / (1.2 + 0.1 * other), its / (1.2 + 0.1 * one)]
            row[f"('{beside}', 1)"] = [0.0, 0.0] if refused else pair
    rows["('LM (batch size 5)', 2)"] = {"null": 150.0}
    return rows


def made_oracle(delay: float) -> dict[str, dict[str, object]]:
    """Pairs on another GPU: each type slows all others by the same factor, larger from type to type."""
    slower = {name: 1.0 + delay * place for place, name in enumerate(MADE)}
    return {
        name: {"null": alone} | {other: [alone / slower[other], MADE[other] / slower[name]] for other in MADE}
        for name, alone in MADE.items()
    }


def made_limits() -> str:
    lines = ["dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power"]
    kinds = (
        ("cifar100", "shufflenetv2", (16, 256)),
        ("imagenet", "resnet50", (64,)),
        ("sentiment140", "bert_base_uncased", (32, 128)),
        ("librispeech", "deepspeech2", (4,)),
        ("movielens-1m", "ncf", (512,)),
    )
    for dataset, network, sizes in kinds:
        for size in sizes:
            for limit in LIMITS_W:
                watts = min(WATTS[network], 0.97 * limit)
                noise = 1.01 if (network, limit) == ("ncf", 200) else 1.0
                lines.append(f"{dataset},{network},{size},adam,{limit},{noise * 9 * WATTS[network] / watts},{watts}")
    return "\n".join(lines) + "\n"


def made_clocks() -> str:
    lines = []
    for name, slow in (("SP", 1.9), ("DRAM", 1.5)):
        lines.append(name)
        for memory in (810, 3505):
            for clock, time, watts in ((595, slow, 110), (900, 1.2, 130), (1164, 1.0, 170)):
                lines.append(f"{memory},{clock},{time},{watts},{time * watts}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module", params=["made", pytest.param("measured", marks=needs_data)])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tables(tmp_path_factory.mktemp("tables")) if request.param == "made" else data()


@pytest.fixture(scope="module")
def world(folder: Path) -> MeasuredWorld:
    return load(folder, 3)


def drawn_packing(world: MeasuredWorld, draw: st.DataObject, least: int = 1, most: int = 4) -> tuple[str, ...]:
    jobs = tuple(draw.draw(st.lists(st.sampled_from(world.classes), min_size=least, max_size=most)))
    assume(world.fits(jobs))
    return jobs


def gavel(folder: Path) -> dict[tuple[str, str], float]:
    """Speeds beside another job, read in another way than the world's."""
    table = json.loads((folder / "gavel" / "simulation_throughputs.json").read_text())["v100"]
    name = {key: key[2:-5] for key in table if key.endswith("', 1)")}
    return {(name[one], name[other]): table[one][other][0] / table[one]["null"] for one in name for other in name}


def test_speeds_at_the_default_are_the_measured_ones(folder: Path, world: MeasuredWorld) -> None:
    """If it failed, the world would invent values that were measured."""
    at, checked = world.space.index(world.default), 0
    for (one, other), speed in gavel(folder).items():
        if speed > 0.0 and world.fits((one, other)):
            states = world.states((one, other))
            if not states.throttled[at]:
                assert states.speeds[0, at] == pytest.approx(min(1.0, speed), rel=1e-9)
                checked += 1
    assert checked > 0.75 * len(world.classes) ** 2
    assert all(world.states((each,)).speeds[0, at] == 1.0 for each in world.classes)


def test_pairs_that_do_not_fit_by_the_table_exceed_the_card(folder: Path, world: MeasuredWorld) -> None:
    """If it failed, a driver could pack pairs that were never measured, or sizes would forbid measured pairs."""
    pairs = gavel(folder)
    refused = {pair for pair, speed in pairs.items() if not speed}
    assert refused and not any(world.fits(pair) for pair in refused)
    lost = {tuple(sorted(pair)) for pair in pairs if pair not in refused and not world.fits(pair)}
    assert len(lost) <= 3
    with pytest.raises(ValueError, match="do not fit"):
        world.state(sorted(refused)[0], (), 0.0, "gpu0")


def test_a_table_that_contradicts_the_bytes_is_refused(tmp_path: Path) -> None:
    """If it failed, a pair without a speed would end a benchmark in its middle."""
    tables(tmp_path)
    path = tmp_path / "gavel" / "simulation_throughputs.json"
    table = json.loads(path.read_text())
    table["v100"]["('A3C', 1)"]["('LM (batch size 5)', 1)"] = [0.0, 0.0]
    path.write_text(json.dumps(table))
    with pytest.raises(ValueError, match="A3C"):
        load(tmp_path, 0)
    with pytest.raises(ValueError, match="p100"):
        load(tmp_path, 0, "p100")


def test_power_limits_are_those_of_the_stand_in(tmp_path: Path) -> None:
    """If it failed, the response to limits would not be the measured one."""
    world = load(tables(tmp_path), 5)
    for limit in LIMITS_W:
        setting = (("power_limit", float(limit)),)
        states = world.states(("ResNet-50 (batch size 64)",))
        at = world.space.index({**world.default, **dict(setting)})
        watts = min(222.0, 0.97 * limit)
        assert states.watts[at] == pytest.approx(watts)
        assert states.speeds[0, at] == pytest.approx(watts / 222.0)
        assert states.throttled[at] == (limit < 250)
    light = world.states(("Recommendation (batch size 512)",))
    # A time that was measured longer under a higher limit is noise: neither it nor a slowdown below it counts in full.
    assert light.speeds[0].min() > 0.97 and not light.throttled.any()


@needs_data
def test_limits_of_the_measured_table(tmp_path: Path) -> None:
    """If it failed, stand-ins, limits or units would be mixed up. Figures: ResNet-50, batch size 64, in Zeus' table."""
    world = load(data(), 0)
    half = world.space.index({**world.default, "power_limit": 125.0})
    states = world.states(("ResNet-50 (batch size 64)",))
    assert states.watts[world.space.index(world.default)] == pytest.approx(223, abs=1)
    assert states.watts[half] == pytest.approx(122, abs=1)
    assert 1 / states.speeds[0, half] == pytest.approx(1.38, abs=0.01)


def test_less_is_never_faster_nor_hotter_alone(world: MeasuredWorld) -> None:
    """If it failed, noise of the tables would pass for savings."""
    shape = tuple(len(knob.values) + len(knob.special) for knob in world.space.knobs)
    for job_class in world.classes:
        states = world.states((job_class,))
        for values in (states.speeds[0], states.watts):
            grid = values.reshape(shape)
            assert (np.diff(grid, axis=0) >= -1e-12).all() and (np.diff(grid, axis=1) >= -1e-12).all()
    names = [tuple(setting.values()) for setting in world.space.settings]
    assert names[-1] == ("unlocked", 250.0) == tuple(world.default[knob.name] for knob in world.space.knobs)


@given(draw=st.data())
def test_neighbours_slow_and_watts_keep_the_limit(world: MeasuredWorld, draw: st.DataObject) -> None:
    """If it failed, a packing could be better than physics, or draw more than the board may."""
    jobs = drawn_packing(world, draw)
    states, alone = world.states(jobs), [world.states((job,)) for job in jobs]
    for row, its in enumerate(alone):
        assert (states.speeds[row] > 0.0).all() and (states.speeds[row] <= its.speeds[0] + 1e-12).all()
    active_w = sum(its.watts - world.idle_w for its in alone)
    assert (states.watts > world.idle_w).all() and (states.watts <= world.idle_w + active_w + 1e-9).all()
    limits_w = np.array([setting["power_limit"] for setting in world.space.settings], dtype=float)
    most_w = np.maximum(limits_w, np.max([its.watts for its in alone], axis=0))
    assert (states.watts <= most_w + 1e-9).all()


@given(draw=st.data(), at_s=st.floats(0, 1e5), seed=st.integers(0, 99))
def test_the_order_of_jobs_means_nothing(world: MeasuredWorld, draw: st.DataObject, at_s: float, seed: int) -> None:
    """If it failed, the speed of one job would be told of another."""
    jobs = drawn_packing(world, draw, 2)
    setting = world.setting(draw.draw(st.integers(0, len(world.space) - 1)))
    order = list(range(len(jobs)))
    Random(seed).shuffle(order)
    state, other = (
        world.state(jobs, setting, at_s, "gpu0"),
        world.state([jobs[place] for place in order], setting, at_s, "gpu0"),
    )
    assert (other.watts, other.throttled) == (state.watts, state.throttled)
    assert other.speeds == pytest.approx([state.speeds[place] for place in order], rel=1e-12)


def test_shared_limits_throttle_all_jobs(world: MeasuredWorld) -> None:
    """If it failed, two jobs could draw more than the limit together, or be held back without need."""
    one = next(name for name in world.classes if name.startswith("LM"))
    other = next(name for name in world.classes if name.startswith("ResNet-18 (batch size 256"))
    at = [world.space.index({**world.default, "power_limit": limit}) for limit in (100.0, 250.0)]
    states = world.states((one, other))
    assert states.throttled[at[0]] and 90.0 < states.watts[at[0]] <= 100.0
    for row in range(2):
        assert states.speeds[row, at[0]] < 0.95 * states.speeds[row, at[1]]
    dim = world.states((next(name for name in world.classes if name.startswith("Recommendation")),) * 3)
    assert not dim.throttled.any()


def test_mismatch_that_no_sum_of_delays_has(world: MeasuredWorld) -> None:
    """If it failed, the world would have the predictor's form: delays that add up and ignore the setting."""
    at = world.space.index(world.default)
    slow = world.space.index({**world.default, "gpu_clock": 795.0})
    changes, extra = [], []
    for one, other in combinations_with_replacement(world.classes, 2):
        if world.fits((one, other)):
            pair, alone = world.states((one, other)), world.states((one,))
            delay = alone.speeds[0] / pair.speeds[0] - 1.0
            changes.append(delay[slow] / delay[at] if delay[at] > 0.05 else 1.0)
        if not world.fits((one, one, other)):
            continue
        if not any(world.states(each).throttled[at] for each in ((one, one, other), (one, one), (one, other))):
            first, second = (1.0 / world.states(pair).speeds[0, at] - 1.0 for pair in ((one, one), (one, other)))
            own = 1.0 / world.states((one, one, other)).speeds[0, at] - 1.0
            assert first + second - 1e-9 <= own <= first + second + first * second + 1e-9
            extra.append(own - first - second)
    assert min(changes) < 0.95 and max(changes) > 1.05
    assert max(extra) > 0.02


@pytest.mark.nightly
def test_drift_is_slow_and_small(world: MeasuredWorld) -> None:
    """If it failed, the difference would hide in the noise, or bias every comparison."""
    job = world.classes[0]
    moments = [5.0 * each for each in range(20_000)]
    steady, at = world.states((job,)), world.space.index(world.default)
    devices = [[world.state([job], (), each, device) for each in moments] for device in ("gpu0", "gpu1")]
    assert devices[0] != devices[1]
    for states in devices:
        for values, truth in (
            ([each.watts for each in states], steady.watts[at]),
            ([each.speeds[0] for each in states], steady.speeds[0, at]),
        ):
            off = np.array(values) / truth - 1.0
            assert 0.01 < np.abs(off).max() <= DRIFT + 1e-9
            assert abs(off.mean()) < 0.001
            assert np.abs(np.diff(off)).max() < DRIFT / 10


def test_noise_is_of_measurements_alone(world: MeasuredWorld) -> None:
    """If it failed, the truth would be noisy, or the noise not as claimed."""
    logs = [math.log(world.noise("any", float(each))) for each in range(4000)]
    assert fmean(logs) == pytest.approx(0.0, abs=0.002) and pstdev(logs) == pytest.approx(NOISE, rel=0.1)
    job = world.classes[0]
    assert world.noise("a", 1.0) == world.noise("a", 1.0) != world.noise("b", 1.0)
    assert world.profile(job, 1.0, "gpu0") == world.profile(job, 1.0, "gpu0") != world.profile(job, 2.0, "gpu0")
    assert world.state([job], (), 7.0, "gpu0") == world.state([job], (), 7.0, "gpu0")
    times = [world.profile(job, 10.0 * each, "gpu0").iteration_s / world.solo_s(job) for each in range(200)]
    assert fmean(times) == pytest.approx(1.0, abs=0.01) and pstdev(times) < 0.04


@pytest.mark.slow
@needs_data
def test_features_say_something_and_not_all() -> None:
    """If it failed, no predictor could learn from profiles, or it could read the truth off them."""
    world = load(data(), 1)
    profiles = [world.profile(each, 0.0, "gpu0") for each in world.classes]
    assert all(0.0 < each.memory_busy < each.busy <= 1.0 for each in profiles)
    assert 0.3 < np.corrcoef(*busy_and_delay(world))[0, 1] < 0.95


def test_profiles_do_not_read_the_delays_that_judge(tmp_path: Path) -> None:
    """If it failed, profiles would tell what is judged, or nothing at all: their cause is in the other GPUs' tables."""

    def changed(name: str) -> MeasuredWorld:
        """World in which each job is half as fast beside `A3C`, by the tables of this file."""
        folder = tables(tmp_path)
        path = folder / "gavel" / name
        read = json.loads(path.read_text())
        for row in (row for table in read.values() for row in table.values()):
            for beside in (each for each in row if "A3C" in each):
                row[beside] = [0.5 * row[beside][0], row[beside][1]]
        path.write_text(json.dumps(read))
        return load(folder, 5)

    def busy(world: MeasuredWorld) -> dict[str, float]:
        return {each: world.profile(each, 3.0, "gpu0").busy for each in world.classes}

    before = busy(load(tables(tmp_path), 5))
    judged, hidden = changed("simulation_throughputs.json"), changed("oracle_throughputs.json")
    delays = dict(zip(judged.classes, busy_and_delay(judged)[1], strict=True))
    assert delays["A3C"] > dict(zip(hidden.classes, busy_and_delay(hidden)[1], strict=True))["A3C"] + 0.1
    assert busy(judged) == before
    after = busy(hidden)
    assert after["A3C"] > before["A3C"] + 0.05
    assert {name for name in after if after[name] != before[name]} == {"A3C"}


@pytest.mark.nightly
def test_another_process_gets_the_same_world(tmp_path: Path) -> None:
    """If it failed, no result could be repeated. The other process asks in another order, with other hashes."""
    world = load(tables(tmp_path), 11)
    jobs = ["A3C", "LM (batch size 5)"]
    program = (
        "import sys; from pathlib import Path; from scripts.bench.energy_world import load, mix\n"
        "world = load(Path(sys.argv[1]), 11); other = world.noise('z', 1.0); mixed = mix(world, 4, 9)\n"
        "print(repr((world.profile('A3C', 9.0, 'g'), world.state(sys.argv[2:], (), 5.0, 'g'), mixed)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), *jobs],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)},
    )
    state = world.state(jobs, (), 5.0, "g")
    assert done.stdout.strip() == repr((world.profile("A3C", 9.0, "g"), state, mix(world, 4, 9)))
    assert load(tmp_path, 12).state(jobs, (), 5.0, "g") != state


def test_nothing_that_decides_imports_the_world() -> None:
    """If it failed, the world would judge a model that has read it."""
    files = [path for part in ("ecoshare", "tuner") for path in (ROOT / part).rglob("*.py")]
    assert files and not [path for path in files if re.search(r"energy_(world|bound)", path.read_text())]


@given(seed=st.integers(0, 10_000), jobs=st.integers(5, 30))
def test_mixes_are_as_stated(world: MeasuredWorld, seed: int, jobs: int) -> None:
    """If it failed, the benchmark's load would not be the stated one."""
    mixed = mix(world, seed, jobs)
    assert mixed == mix(world, seed, jobs) and len({job.name for job in mixed}) == len(mixed) == jobs
    arrivals = [job.arrival_s for job in mixed]
    assert arrivals == sorted(arrivals) and arrivals.count(0.0) == max(1, jobs // 4)
    limits = [job.slowdown_limit for job in mixed if job.slowdown_limit is not None]
    assert len(limits) == round(jobs / 3) and all(1.5 <= each <= 3.0 for each in limits)
    for job in mixed:
        assert job.work_s == pytest.approx(job.iterations * world.solo_s(job.job_class))
        assert 59.0 < job.work_s < 601.0


def test_loads_of_mixes_are_between_one_and_two(world: MeasuredWorld) -> None:
    """If it failed, devices would idle most of the time, or never."""
    loads = []
    for seed in range(60):
        late = [job for job in mix(world, seed, 30) if job.arrival_s > 0.0]
        loads.append(sum(job.work_s for job in late) / late[-1].arrival_s)
    assert 1.2 < fmean(loads) < 1.9


Work = list[tuple[str, float]]


def drawn_work(world: MeasuredWorld, draw: st.DataObject) -> Work:
    job = st.tuples(st.sampled_from(world.classes), st.floats(1.0, 600.0))
    return draw.draw(st.lists(job, min_size=1, max_size=6))


def scheduled(world: MeasuredWorld, work: Work, random: Random) -> float:
    """Energy (J) of a random schedule: any fitting packings, at any setting, for any time, until all work is done."""
    left, joules = [seconds for _, seconds in work], 0.0
    while open_jobs := [job for job, seconds in enumerate(left) if seconds > 0.0]:
        jobs = random.sample(open_jobs, min(len(open_jobs), random.randint(1, 3)))
        while not world.fits([work[job][0] for job in jobs]):
            jobs.pop()
        states = world.states(tuple(work[job][0] for job in jobs))
        place = random.randrange(len(world.space))
        first_s = min(left[job] / states.speeds[row, place] for row, job in enumerate(jobs))
        ends = random.random() < 0.7
        for_s = float(first_s) * (1.0 if ends else random.random())
        joules += for_s * float(states.watts[place])
        for row, job in enumerate(jobs):
            left[job] -= for_s * float(states.speeds[row, place])
            if left[job] < 1e-9 * work[job][1]:
                left[job] = 0.0
    return joules


@given(draw=st.data(), seed=st.integers(0, 10_000))
def test_no_schedule_goes_below_the_bound(world: MeasuredWorld, draw: st.DataObject, seed: int) -> None:
    """If it failed, the value would be no bound."""
    work = drawn_work(world, draw)
    least_j = bound(world, work).joules
    assert min(scheduled(world, work, Random(f"{seed} {each}")) for each in range(5)) >= least_j * (1.0 - 1e-6)
    assert exclusive(world, work).joules >= least_j * (1.0 - 1e-9)


@given(draw=st.data())
def test_the_bound_is_the_optimum_of_all_columns(world: MeasuredWorld, draw: st.DataObject) -> None:
    """If it failed, pruned columns would be needed: the kept ones do all work, and at their prices none is better."""
    work = drawn_work(world, draw)
    found = bound(world, work)
    needed, done = defaultdict[str, float](float), defaultdict[str, float](float)
    for job_class, seconds in work:
        needed[job_class] += seconds
    for column in found.columns:
        for job_class, speed in zip(column.jobs, column.speeds, strict=True):
            done[job_class] += column.seconds * speed
    assert all(done[each] >= seconds * (1.0 - 1e-6) for each, seconds in needed.items())
    assert sum(found.prices[each] * seconds for each, seconds in needed.items()) == pytest.approx(found.joules)
    count = Counter(job_class for job_class, _ in work)
    for size in (1, 2, 3):
        for packing in combinations_with_replacement(sorted(count), size):
            if world.fits(packing) and all(packing.count(each) <= count[each] for each in packing):
                states = world.states(packing)
                worth_w = sum(found.prices[each] * states.speeds[row] for row, each in enumerate(packing))
                assert (worth_w <= states.watts * (1.0 + 1e-6)).all()


@pytest.mark.nightly
@given(draw=st.data(), seed=st.integers(0, 99))
def test_more_freedom_never_raises_the_bound(world: MeasuredWorld, draw: st.DataObject, seed: int) -> None:
    """If it failed, the program would be wrong; alone, the best setting of each class is the whole answer."""
    work = drawn_work(world, draw)
    some = [world.setting(place) for place in Random(seed).sample(range(len(world.space)), 6)]
    alone, pairs, triples = (bound(world, work, most).joules for most in (1, 2, 3))
    assert triples <= pairs * (1 + 1e-9) <= alone * (1 + 2e-9)
    assert triples <= bound(world, work, 3, settings=some).joules * (1 + 1e-9)
    assert bound(world, work, 3, settings=some).joules <= bound(world, work, 3, settings=some[:2]).joules * (1 + 1e-9)
    best_j = 0.0
    for job_class, seconds in work:
        best_j += min(
            exclusive(world, [(job_class, seconds)], world.setting(place)).joules for place in range(len(world.space))
        )
    assert alone == pytest.approx(best_j, rel=1e-9)


@pytest.mark.nightly
def test_edges_of_the_bound(world: MeasuredWorld) -> None:
    """If it failed, an empty mix or a wrong setting would end in a solver's error, or in an answer."""
    assert bound(world, []).joules == 0.0 and bound(world, [(world.classes[0], 0.0)]).columns == ()
    with pytest.raises(ValueError, match="needs a setting"):
        bound(world, [(world.classes[0], 1.0)], settings=[])
    with pytest.raises(ValueError, match="no setting"):
        bound(world, [(world.classes[0], 1.0)], settings=[(("power_limit", 99.0),)])
    small = world.classes[0]
    one, both = bound(world, [(small, 100.0)]), bound(world, [(small, 50.0)] * 2)
    assert {column.jobs for column in one.columns} == {(small,)} and both.joules < 0.95 * one.joules
    two = bound(world, [(each, 100.0) for each in world.classes], devices=2)
    assert two.least_s == pytest.approx(two.seconds / 2)
