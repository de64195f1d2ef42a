"""Device for the energy of a simulation: the user's choice, the recorded device, or an assumed one that is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ecoshare.simulation.cluster import GPUS, gpu_of
from ecoshare.simulation.power_source import PowerOrigin, choose
from ecoshare.simulation.traces.any_trace import read
from tests.runtime import running
from tests.simulation.test_recorded import recorded
from tests.warm import ecoshare

PLAUSIBLE = 1.35
"""Largest factor by which simulated joules may be off. The joules of the jobs agree with the attributed ones. The
rest is the device's power at rest times the makespan, and the simulation computes the times anew: it takes
jobs of two lanes to have 0.55 of their speed, or none to have a neighbour, and knows nothing of the first second in
which a run measures. On processors the draw at rest is up to half of all joules."""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> running.Finished:
    """Two jobs that take turns in one lane, on processors."""
    folder = tmp_path_factory.mktemp("recorded")
    jobs = [running.slow_steps(name, 60) for name in ("first", "second")]
    return running.run(folder, *jobs, options=("--lanes", "1"))


def simulated(run: Path, *options: str) -> dict[str, Any]:
    done = ecoshare("simulate", run, "--json", *options)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.slow
def test_a_recorded_run_under_its_own_policy_takes_about_its_own_joules(ran: running.Finished) -> None:
    plan = json.loads((ran.folder / "plan.json").read_text())
    own = ("--policy", plan["policy"], "--lanes", str(plan["lanes"]), "--jobs-per-lane", str(plan["places_per_lane"]))
    told = simulated(ran.folder, *own)
    energy_j = ran.summary["energy"]["value_j"]
    assert energy_j / PLAUSIBLE < told["policies"][0]["energy_j"] < energy_j * PLAUSIBLE
    assert told["power"]["origin"] == "recorded"
    assert told["power"]["device"] == told["cluster"]["gpu_model"]
    assert told["power"]["active_w_by_class"].keys() == {job["class"] for job in ran.summary["jobs"]}


@pytest.mark.slow
def test_the_joules_of_the_jobs_are_those_that_were_attributed(ran: running.Finished) -> None:
    """To rounding: what a class draws is its joules over the very times that the simulation lays out."""
    trace = read(ran.folder)
    power = choose(None, trace)
    active_j = sum(job.service_s * power.active_w[job.job_class] for job in trace.jobs)
    assert active_j == pytest.approx(sum(job["energy"]["value_j"] for job in ran.summary["jobs"]))
    model = json.loads((ran.folder / "environment.json").read_text())["power_models"]["cpu"]
    if ran.summary["energy"]["source"] == "modelled":
        assert power.gpu.idle_w == model["idle_w"]


@pytest.mark.slow
def test_the_users_choice_wins_over_the_recorded_device(ran: running.Finished) -> None:
    told = simulated(ran.folder, "--gpu-model", "v100")
    assert (told["power"]["origin"], told["power"]["device"]) == ("given", "v100")
    assert told["power"]["idle_w"] == GPUS["v100"].idle_w and not told["power"]["active_w_by_class"]


@pytest.mark.slow
def test_the_table_names_the_device_of_its_power(ran: running.Finished, tmp_path: Path) -> None:
    shown = ecoshare("simulate", ran.folder, "--policy", "fifo").stdout
    assert "joules: power of the recorded device, " in shown
    model = json.loads((ran.folder / "environment.json").read_text())["devices"][0]["model"]
    assert model in shown
    page = tmp_path / "page.html"
    assert ecoshare("simulate", ran.folder, "--policy", "fifo", "--report", page).returncode == 0
    assert "joules: power of the recorded device, " in page.read_text()
    shown = ecoshare("simulate", ran.folder, "--policy", "fifo", "--gpu-model", "k80").stdout
    assert "joules: power of --gpu-model k80 (18 W idle, 112 W at work)." in shown


@pytest.mark.slow
def test_a_run_without_joules_is_priced_by_its_power_model(ran: running.Finished, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("plan.json", "events.jsonl", "environment.json"):
        (folder / name).write_text((ran.folder / name).read_text())
    power = choose(None, read(folder))
    model = json.loads((ran.folder / "environment.json").read_text())["power_models"]["cpu"]
    assert (power.gpu.idle_w, power.gpu.active_w) == (model["idle_w"], model["busy_w"] - model["idle_w"])
    assert power.origin is PowerOrigin.RECORDED and "its power model" in power.words


def test_an_assumed_device_is_named(tmp_path: Path) -> None:
    power = choose(None, read(recorded(tmp_path)))
    assert (power.origin, power.gpu.name) == (PowerOrigin.ASSUMED, "h200")
    assert power.words.startswith("joules: the run does not tell what its device drew; h200 is assumed")
    assert choose(None, None).words == ("joules: h200 is assumed (84 W idle, 525 W at work); --gpu-model names another")


@pytest.mark.parametrize(
    ("maker_name", "name"),
    [
        ("NVIDIA H200", "h200"),
        ("Tesla V100-SXM2-32GB", "v100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("Quadro RTX 6000", "rtx6000"),
        ("NVIDIA RTX 6000 Ada Generation", None),
        ("NVIDIA GeForce GTX 1080", None),
        ("", None),
    ],
)
def test_a_gpu_is_known_by_the_name_that_its_maker_gives_it(maker_name: str, name: str | None) -> None:
    found = gpu_of(maker_name)
    assert (None if found is None else found.name) == name
