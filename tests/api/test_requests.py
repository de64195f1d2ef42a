"""Requests: their fields are the options of the commands, and wrong ones are typed errors with a place."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ecoshare
from ecoshare.cli.profile import profile as profile_command
from ecoshare.cli.run import run as run_command
from ecoshare.cli.simulate import simulate as simulate_command
from ecoshare.cli.tune import tune as tune_command
from ecoshare.cli.up import up as up_command
from ecoshare.errors import EcoshareError, InvalidJobFile, Mistake, UnfitEnvironment, UsageError
from tests.knowledge.invented import COLUMNS, write_table
from tests.runtime.running import SCRIPTS
from tests.warm import ecoshare as command

SCRIPT = SCRIPTS / "no_torch.py"
GOOD = {"version": 1, "jobs": [{"name": "a", "script": SCRIPT}]}
OWN = {"note", "progress", "signals", "show", "begins", "measured"}
"""Fields that are objects of the caller, in place of what a command prints."""

PRINTED = {"as_json", "no_report", "dry_run", "plot", "convert", "report", "compare", "context"}
PRINTED |= {"detach", "queue", "verbose", "quiet", "print_unit"}
"""Options that choose what a command does with the result."""


@pytest.mark.parametrize(
    ("requests", "function", "renamed"),
    [
        ((ecoshare.RunRequest,), run_command, {"resume": None}),
        ((ecoshare.UpRequest,), up_command, {}),
        ((ecoshare.ProfileRequest,), profile_command, {}),
        ((ecoshare.TuneRequest, ecoshare.ReplayRequest), tune_command, {"replay": "table"}),
        (
            (ecoshare.SimulateRequest,),
            simulate_command,
            {"policy": "policies", "option": "options", "no_costs": "costs"}
            | dict.fromkeys(("start_s", "stop_s", "restart_s"), "costs"),
        ),
    ],
    ids=["run", "up", "profile", "tune", "simulate"],
)
def test_a_request_has_the_options_of_its_command(
    requests: tuple[type, ...], function: Callable[..., None], renamed: dict[str, str | None]
) -> None:
    """If it failed, a command could do what Python cannot, or have another default."""
    parameters = inspect.signature(function).parameters
    options = {renamed.get(name, name): each.default for name, each in parameters.items() if name not in PRINTED}
    options.pop(None, None)  # `--resume` is a request of its own
    fields: dict[str, Any] = {}
    for request in requests:
        fields |= {each.name: each.default for each in dataclasses.fields(request) if each.name not in OWN}
    assert fields.keys() - {"args"} == options.keys() - {"args"}
    for name, default in fields.items():
        if name in ("args", *(each for each in renamed.values() if each)) or default is dataclasses.MISSING:
            continue
        if name == "use_profiles":  # the option takes them away
            default = not default
        assert default == options[name] or not (default or options[name]), name


def test_a_request_is_a_value() -> None:
    request = ecoshare.RunRequest(jobs="a.yaml", lanes=2)
    assert request == dataclasses.replace(request) and "a.yaml" in repr(request)
    with pytest.raises(dataclasses.FrozenInstanceError):
        request.lanes = 3  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"RunRequest has no field 'objetive': did you mean 'objective'\?"):
        ecoshare.plan(request, objetive="jct")
    with pytest.raises(TypeError, match=r"RunRequest has no field 'polcy': did you mean 'policy'\?"):
        ecoshare.RunRequest(jobs="a.yaml", polcy="fair")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("call", "kind", "said"),
    [
        (lambda: ecoshare.run([]), UsageError, "no jobs were given"),
        (lambda: ecoshare.run("nowhere.yaml"), UsageError, "no job file"),
        (lambda: ecoshare.run(["a.py", "b.yaml"]), UsageError, "neither a script"),
        (lambda: ecoshare.run("train.py", args="--epochs 3"), UsageError, "a list of arguments"),
        (lambda: ecoshare.run(GOOD, args=["x"]), UsageError, "under `args`"),
        (lambda: ecoshare.run(GOOD, control="on"), UsageError, "expected auto, known or off"),
        (lambda: ecoshare.run(GOOD, objective="fun"), UsageError, "expected one of energy"),
        (lambda: ecoshare.run(GOOD, policy="best"), UsageError, "expected one of allox"),
        (lambda: ecoshare.run(GOOD, options={"limit_1": 3}), UsageError, "name it with --policy"),
        (lambda: ecoshare.plan(GOOD, policy="fair", options={"limit_1": 3}), UsageError, "have no options"),
        (lambda: ecoshare.plan(GOOD, policy="tiresias", options={"limit_1": float("nan")}), UsageError, "finite"),
        (lambda: ecoshare.plan(GOOD, policy="tiresias", options={"limit_1": "3"}), UsageError, "finite"),
        (lambda: ecoshare.run(GOOD, memory="much"), UsageError, "--memory much"),
        (lambda: ecoshare.plan(GOOD, memory=1000), UsageError, "torch alone takes"),
        (lambda: ecoshare.run(GOOD, lanes=0), UsageError, "--lanes 0"),
        (lambda: ecoshare.run(GOOD, tuning_limit=0.5), UsageError, "at least 1"),
        (lambda: ecoshare.run(GOOD, wait=True, share_device=True), UsageError, "exclude each other"),
        (lambda: ecoshare.run(GOOD, on="k8s"), UsageError, "--on k8s: expected ray or slurm"),
        (lambda: ecoshare.run(GOOD, nodes=2), UsageError, "--nodes is for runs on other machines"),
        (lambda: ecoshare.run(GOOD, on="ray", nodes=0), UsageError, "--nodes 0: expected 1 or more"),
        (lambda: ecoshare.run(GOOD, on="slurm", nodes=0), UsageError, "--nodes 0: expected 1 or more"),
        (lambda: ecoshare.run(GOOD, on="slurm", gpus_per_node=-1), UsageError, "--gpus-per-node -1"),
        (lambda: ecoshare.run(GOOD, on="slurm", address="auto"), UsageError, "does not go with --on slurm"),
        (lambda: ecoshare.run(GOOD, on="ray", devices=2), UsageError, "--devices does not go with --on ray"),
        (lambda: ecoshare.run(GOOD, on="ray", wait=True), UsageError, "--wait does not go with --on ray"),
        (lambda: ecoshare.run(GOOD, device="cuda:7"), UnfitEnvironment, "cuda"),
        (lambda: ecoshare.run({"jobs": [{"script": object()}]}), UsageError, "cannot hold this value"),
        (lambda: ecoshare.resume("nowhere"), UsageError, "not a run folder"),
        (lambda: ecoshare.profile("nowhere.py"), UsageError, "no such script"),
        (lambda: ecoshare.profile(SCRIPT, iterations=0), UsageError, "iterations=0"),
        (lambda: ecoshare.tune(SCRIPT, budget=0), UsageError, "budget=0"),
        (lambda: ecoshare.tune(SCRIPT, knobs=[]), UsageError, "names no knob"),
        (lambda: ecoshare.replay("t.csv", columns=[COLUMNS], noise=1.0), UsageError, "noise=1.0"),
        (lambda: ecoshare.replay("nowhere.csv", columns=[COLUMNS]), UsageError, "nowhere.csv"),
        (lambda: ecoshare.simulate(), UsageError, "give a trace"),
        (lambda: ecoshare.simulate("a.csv", generate="salus"), UsageError, "give a trace"),
        (lambda: ecoshare.simulate(generate="phily"), UsageError, "expected one of"),
        (lambda: ecoshare.simulate(generate="sweep", jobs=0), UsageError, "jobs=0"),
        (lambda: ecoshare.simulate(generate="sweep", policies=[]), UsageError, "empty"),
        (lambda: ecoshare.simulate(generate="sweep", policies=["fifo"], objective="jct"), UsageError, "one or the"),
        (lambda: ecoshare.simulate(generate="sweep", nodes="4"), UsageError, "such as 15x4"),
    ],
)
def test_a_wrong_request_is_a_typed_error(
    call: Callable[[], object],
    kind: type[EcoshareError],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """If it failed, a program would get another class of error, or a message on its terminal."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind) as raised:
        call()
    assert said in f"{raised.value} {raised.value.hint}"
    assert capfd.readouterr() == ("", "")
    assert not (tmp_path / "ecoshare-runs").exists()


def test_mistakes_have_their_file_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text("version: 1\njobs:\n  - name: a b\n    scrpt: x.py\n")
    with pytest.raises(InvalidJobFile) as raised:
        ecoshare.run(path)
    assert raised.value.file == str(path)
    assert [(each.line, each.column) for each in raised.value.mistakes] == [(3, 5), (3, 11), (4, 5)]


def test_mistakes_of_a_value_have_their_place_in_it() -> None:
    with pytest.raises(InvalidJobFile) as raised:
        ecoshare.plan({"version": 1, "jobs": [{"name": "a", "script": SCRIPT, "slowdown": 0.5}]})
    (mistake,) = raised.value.mistakes
    assert isinstance(mistake, Mistake) and mistake.where == "jobs[0].slowdown"
    assert str(raised.value).startswith("<jobs>:")


def test_a_plan_is_what_a_dry_run_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is started or written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.yaml").write_text(f"version: 1\njobs: [{{name: a, script: {SCRIPT}, env: {{KEY: secret}}}}]\n")
    notes: list[str] = []
    plan = ecoshare.plan("jobs.yaml", device="cpu", objective="jct", lanes=3, memory="3 GiB", note=notes.append)
    assert (plan.policy, plan.lanes, plan.notes) == ("jct", 3, tuple(notes))
    assert [(each.name, each.memory_bytes) for each in plan.devices] == [("cpu", 3 * 2**30)]
    assert [job.spec.name for job in plan.jobs] == ["a"]
    line = ("run", "jobs.yaml", "--device", "cpu", "--objective", "jct", "--lanes", "3", "--memory", "3 GiB")
    printed = json.loads(command(*line, "--dry-run", "--json", cwd=tmp_path).stdout)
    mine = json.loads(json.dumps(plan.as_dict()))
    for each in (mine, printed):
        (device,) = each["devices"]
        assert device.pop("memory_bytes") > 0  # free memory, which changes
    assert mine == printed and "secret" not in str(mine)
    assert not (tmp_path / "ecoshare-runs").exists()


def test_a_mapping_holds_the_jobs_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with paths and tuples as values, and paths relative to the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    job = {"name": "a", "script": Path("train.py"), "args": ("--lr", "1e-3", "yes", "007"), "arrival": "2 min"}
    (made,) = ecoshare.plan({"version": 1, "jobs": [job]}, device="cpu").jobs
    (tmp_path / "jobs.yaml").write_text(
        "version: 1\njobs: [{name: a, script: train.py, args: [--lr, 1e-3, yes, 007], arrival: 2 min}]\n"
    )
    (loaded,) = ecoshare.plan("jobs.yaml", device="cpu").jobs
    assert made.source == loaded.source and made.source.args == ("--lr", "1e-3", "yes", "007")


@pytest.mark.slow
def test_a_simulation_is_what_its_command_prints(tmp_path: Path) -> None:
    result = ecoshare.simulate(generate="sweep", jobs=20, seed=3, gpus=2, policies=["fifo", "srtf"])
    line = ("--generate", "sweep", "--jobs", "20", "--seed", "3", "--gpus", "2", "--policy", "fifo,srtf")
    printed = json.loads(command("simulate", *line, "--json", cwd=tmp_path).stdout)
    mine = result.as_dict()
    for each in (*printed["policies"], *mine["policies"]):
        assert each.pop("wall_s") > 0.0
    assert mine == printed
    assert result["srtf"].as_dict()["mean_jct_s"] == printed["policies"][1]["mean_jct_s"]
    assert result.cluster.size == 2 and len(result.trace.jobs) == 20
    result.write_report(tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size > 10_000


@pytest.mark.slow
def test_a_replayed_search_is_what_its_command_prints(tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv", {"a": 0.3, "b": 0.6})
    seen: list[int] = []
    result = ecoshare.replay(
        tmp_path / "t.csv",
        columns=[COLUMNS],
        where=["network=b"],
        default=["batch=64"],
        budget=6,
        measured=lambda record: seen.append(record.number),
    )
    line = ("--replay", tmp_path / "t.csv", "--columns", COLUMNS, "--where", "network=b", "--default", "batch=64")
    printed = json.loads(command("tune", *line, "--budget", "6", "--json", cwd=tmp_path).stdout)
    mine = result.as_dict()
    assert printed.pop("made_utc") and mine.pop("made_utc")
    assert mine == printed and result.ending
    assert seen == [trial.number for trial in result.tuning.trials]
