"""Parts of gpu_check.py without a GPU: those for several GPUs, for scripts of different kinds, and for the counter."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from ecoshare.devices.nvidia import nvml
from scripts.bench.benchmarking import JOBS, Figure
from scripts.bench.gpu import counter, kinds, ranks, several
from scripts.bench.job_file import JobEntry
from tests.driver import COMPILER, FakeDriver, presets
from tests.driver.training import COMPUTES, CONTEXT_BYTES, ROOT, SCRIPT, STREAMS
from tests.runtime.running import alone

RANK = f"""
import json, sys, time
sys.path.insert(0, {str(ROOT)!r})
import torch
from tests.driver.cuda_standin import StandIn

gpu, steps = StandIn(0.8, 0.3, {CONTEXT_BYTES}), int(sys.argv[1])
work_bytes = int(0.3 * torch.cuda.get_device_properties(gpu.own).total_memory)
torch.manual_seed(0)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
began_s = time.monotonic()
for _ in range(steps):
    optimizer.zero_grad()
    loss = model(torch.ones(1, 4)).sum()
    gpu.allocate(work_bytes)
    gpu.work(0.01)
    gpu.free(work_bytes)
    loss.backward()
    optimizer.step()
looped_s = time.monotonic()
torch.cuda.synchronize(gpu.own)
now_s = time.monotonic()
print(loss.item().hex())
print(json.dumps({{"ahead": (now_s - looped_s) / 0.01, "elsewhere": 0}}), file=sys.stderr)
"""
"""Script of a rank as `rank_job.py`, on a fake GPU."""


def by_name(figures: list[Figure]) -> dict[str, Figure]:
    return {each.name: each for each in figures}


@pytest.mark.parametrize("names", [[], ["cuda:0"]])
def test_with_one_gpu_each_part_says_that_it_needs_two(tmp_path: Path, names: list[str]) -> None:
    parts = several.parts(tmp_path, names, [], {})
    found = [figure for part in parts.values() for figure in part()]
    assert [each.name for each in found] == list(several.PARTS)
    assert {(each.value, each.note, each.met) for each in found} == {(None, "needs two GPUs", None)}
    assert not list(tmp_path.iterdir()), "nothing was run"


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two partitions take two processors")
def test_all_parts_on_two_partitions(tmp_path: Path) -> None:
    """Each figure keeps its bound; a bound that cannot be missed is tested below."""
    script, args = JOBS / "device_job.py", ("1", "100")
    jobs: list[JobEntry] = [{"name": "one", "script": str(script), "args": list(args)}]
    printed = {"one": alone(script, args, tmp_path)[1]}
    parts = several.parts(tmp_path, ["cpu:0", "cpu:1"], jobs, printed, device="cpu/2", steps=300)
    assert tuple(parts) == several.PARTS
    found = by_name([figure for part in parts.values() for figure in part()])
    assert not [each for each in found.values() if each.met is False]
    assert found[f"{several.ALL}: same losses as alone"].value == 2
    assert found["joules of cpu:1"].note == "modelled"
    assert found["joules of all devices / those of the run"].value == pytest.approx(1.0)
    turns = found[f"{several.GANGS}: turns"].value
    assert turns is not None and found[f"{several.GANGS}: turns that the ranks ended together"].value == turns >= 4


@pytest.mark.nightly
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two partitions take two processors")
def test_other_losses_and_failed_jobs_miss_their_bounds(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("raise SystemExit('no data')\n")
    jobs: list[JobEntry] = [
        {"name": "one", "script": str(JOBS / "device_job.py"), "args": ["1", "20"]},
        {"name": "fails", "script": str(tmp_path / "fails.py")},
    ]
    found = by_name(several.over_all(tmp_path, "cpu/2", jobs, {"one": b"another loss\n"}, 1))
    completed = found[f"{several.ALL}: jobs completed"]
    assert (completed.value, completed.met) == (1, False) and "fails-0: no data" in completed.note
    assert found[f"{several.ALL}: same losses as alone"].met is False
    assert found[f"{several.ALL}: devices that had jobs"].met is False


@pytest.mark.nightly
@pytest.mark.skipif(COMPILER is None, reason="the fake driver is compiled, and there is no C compiler")
def test_joules_are_those_of_each_gpu_by_its_counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything but CUDA is real: the registry finds two GPUs, and the run measures each."""
    driver = FakeDriver(tmp_path, [presets.H200, presets.H200])
    (tmp_path / "trains.py").write_text(SCRIPT)
    jobs: list[JobEntry] = [
        {"name": each.name, "script": str(tmp_path / "trains.py"), "args": each.args(40)}
        for each in (COMPUTES, STREAMS)
    ]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in driver.environment.items():
        monkeypatch.setenv(name, value)
    with driver:
        names = several.gpus()
    assert names == ["cuda:0", "cuda:1"]
    before = len(driver.setter_calls())
    found = by_name(several.parts(tmp_path, names, jobs, {})[several.ALL]())
    assert not [each for each in found.values() if each.met is False]
    for name in names:
        joules = found[f"joules of {name}"]
        assert joules.value is not None and joules.value > 10.0 and joules.note == "measured"
    assert len(driver.setter_calls()) == before, "the check sets nothing"


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.skipif(COMPILER is None, reason="the fake driver is compiled, and there is no C compiler")
@pytest.mark.parametrize("gpus", [1, 2])
def test_ranks_that_never_choose_their_gpu_are_paced_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: int
) -> None:
    """Else a rank runs far ahead of its GPU, and its work goes on beside the turn of the next gang."""
    driver = FakeDriver(tmp_path, [presets.H200] * gpus)
    (tmp_path / "rank.py").write_text(RANK)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in driver.environment.items():
        monkeypatch.setenv(name, value)
    names = [f"cuda:{number}" for number in range(gpus)]
    found = by_name(ranks.figures(tmp_path / "ranks", names, tmp_path / "rank.py", ("200",)))
    assert not [each for each in found.values() if each.met is False]
    assert found[f"{ranks.PART}: the same parameters as alone"].value == 2 * gpus
    assert found[f"{ranks.PART}: iterations ahead of the GPU"].met is True
    left_out = found.get(f"{ranks.PART}: two ranks")
    assert (left_out is None) == (gpus == 2) and (left_out is None or "needs two GPUs" in left_out.note)


@pytest.mark.nightly
def test_scripts_of_kinds_that_need_no_gpu_do_the_same_alone_and_shared(tmp_path: Path) -> None:
    found = by_name(kinds.figures(tmp_path / "kinds", "cpu", steps=20, rounds=1))
    told = {name: each.met for name, each in found.items() if name.endswith("the same parameters as alone")}
    same = [met for name, met in told.items() if not name.startswith("cut")]
    assert same == [True] * 2 * len(kinds.ON_PROCESSORS)
    assert [found[f"{kind}-0: iterations seen"].value for kind in kinds.ON_PROCESSORS] == [20, 20, 20]
    assert all((found[f"{kind}: under ecoshare / alone"].value or 0.0) > 0.0 for kind in kinds.MEASURED)
    assert [found[f"cut: {kind}, the same parameters as alone"].value for kind in ("long", "plain")] == [1.0, 1.0]
    assert (found["cut: longest wait of plain / bound"].value or 0.0) > 0.0


@pytest.mark.skipif(COMPILER is None, reason="the fake driver is compiled, and there is no C compiler")
@pytest.mark.parametrize(("board", "least", "most"), [(presets.H200, -0.02, 0.02), (presets.A100, 0.2, 0.9)])
def test_a_counter_that_misses_part_of_the_time_differs_from_the_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, board: presets.Preset, least: float, most: float
) -> None:
    """A wave in step with the updates: a counter that looks in their first quarter sees the busy half alone."""
    with FakeDriver(tmp_path, [board], virtual=True) as driver:
        now = [0.0]

        def sleep(seconds: float) -> None:
            driver.gpu(0).load(1, compute=1.0 if now[0] % 0.1 < 0.05 - 1e-9 else 0.0)
            driver.advance(seconds)
            now[0] = round(now[0] + seconds, 6)

        monkeypatch.setattr(counter, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: now[0]))
        for _ in range(300):
            sleep(0.01)
        part, power_w = counter.difference(nvml.NvmlDevice(driver.gpu(0).uuid), 4.0)
    assert power_w > 100.0 and least <= part <= most
