"""Options of a queue: `up --resume` keeps each of them, and says which ones a user has changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import ecoshare
from ecoshare.api import queue_up
from ecoshare.api.queue_up import QueueOptions, UpRequest, resumed
from ecoshare.cli import up as up_command
from ecoshare.cli.app import app
from ecoshare.cli.background import command_line
from ecoshare.errors import UsageError
from ecoshare.option_fields import default_of, kept
from ecoshare.queue.job_store import JobStore
from ecoshare.queue.queue_folder import QueueFolder
from tests.queue.test_job_store import submission

GIVEN: dict[str, tuple[list[str], Any]] = {
    "objective": (["jct"], "jct"),
    "policy": (["tiresias"], "tiresias"),
    "options": (["limit_1=3600"], {"limit_1": 3600.0}),
    "device": (["cpu/2"], "cpu/2"),
    "devices": (["2"], 2),
    "lanes": (["3"], 3),
    "jobs_per_lane": (["2"], 2),
    "memory": (["6 GiB"], "6 GiB"),
    "host_memory": (["1 GiB"], "1 GiB"),
    "power_budget": (["300 W"], "300 W"),
    "power_budget_by": (["placement"], "placement"),
    "control": (["off"], "off"),
    "tuning_limit": (["1.3"], 1.3),
    "share_device": ([], True),
    "exclusive": ([], True),
    "profiles": (["mine"], "mine"),
    "use_profiles": ([], False),
    "on": (["ray"], "ray"),
    "address": (["first:6379"], "first:6379"),
    "nodes": (["2"], 2),
    "gpus_per_node": (["4"], 4),
    "node_timeout_s": (["30"], 30.0),
    "ship": (["here"], "here"),
    "release_idle": (["10min"], "10min"),
    "keep_s": (["30d"], 30 * 86_400.0),
    "listen": (["127.0.0.1:0"], "127.0.0.1:0"),
}
"""Words after each option of `ecoshare up`, and the value of its field. A new option of `up` has its line here."""

OF_THE_COMMAND = {"name", "resume", "wait", "detach", "print_unit", "help"}
"""Parameters that are no options of the queue: a wait for the device is one of this session."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ECOSHARE_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("ECOSHARE_QUEUE", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Reached(Exception):
    """The command would serve the queue now."""


def keep(**options: Any) -> None:
    """Keep options as a session of the queue does."""
    path = QueueFolder.of("lab").options
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept(UpRequest(**options), QueueOptions)))


def given_to(*words: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Fields that a command line gives to `ecoshare.up`."""
    found: dict[str, Any] = {}

    def serve(**fields: Any) -> None:
        found.update(fields)
        raise Reached

    monkeypatch.setattr(up_command, "serve", serve)
    with pytest.raises(Reached):
        get_command(app).main(["up", "--name", "lab", *words], standalone_mode=False)
    return {name: value for name, value in found.items() if name not in ("name", "wait", "note", "progress", "signals")}


def options_of_up() -> list[Any]:
    (command,) = [each for name, each in get_command(app).commands.items() if name == "up"]  # type: ignore[attr-defined]
    return [each for each in command.params if each.name not in OF_THE_COMMAND]


def test_each_option_of_up_is_known_here() -> None:
    """If it failed, an option could be forgotten by `up --resume`, and no test would see it."""
    assert {each.name for each in options_of_up()} == GIVEN.keys() == queue_up._options().keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", GIVEN)
def test_an_option_is_kept_and_may_be_changed(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words, value = GIVEN[name]
    (parameter,) = [each for each in options_of_up() if each.name == name]
    line = [max(parameter.opts, key=len), *words]
    given = given_to(*line, "--resume", monkeypatch=monkeypatch)
    assert given.keys() == {"resume", name} and (given[name] == value or str(given[name]) == value)
    keep(**{name: value})
    request, said = resumed(None, {"name": "lab", "resume": True})
    before = str(folder / value) if name in ("profiles", "ship") else value
    assert getattr(request, name) == before, "it is forgotten"
    assert len(said) == 1 and line[0] in said[0] and said[0].startswith("the options are those of before: --")
    changed, said = resumed(None, {"name": "lab", "resume": True, name: default_of(queue_up._options()[name])})
    assert getattr(changed, name) == getattr(UpRequest(), name), "it cannot be changed"
    assert len(said) == 1 and " instead of " in said[0] and line[0] in said[0]
    assert resumed(None, {"name": "lab"})[0] == UpRequest(name="lab"), "a queue that begins anew has the default"


def test_what_is_given_with_its_old_value_changes_nothing_and_a_default_counts_if_it_is_given() -> None:
    keep(policy="fifo", lanes=1, objective="jct")
    request, said = resumed(None, {"name": "lab", "resume": True, "lanes": 1, "objective": "energy"})
    assert (request.policy, request.lanes, request.objective) == ("fifo", 1, "energy")
    assert said == [
        "the options are those of before: --policy fifo --lanes 1",
        "--objective energy instead of --objective jct",
    ]
    request, _ = resumed(UpRequest(name="lab", resume=True, policy="fair"), {})
    assert (request.policy, request.lanes, request.objective) == ("fair", 1, "jct")


def test_options_of_another_policy_are_not_kept() -> None:
    keep(policy="tiresias", options={"limit_1": 3600.0})
    assert resumed(None, {"name": "lab", "resume": True})[0].options == {"limit_1": 3600.0}
    request, said = resumed(None, {"name": "lab", "resume": True, "policy": "fair"})
    assert request.options == {} and said == [
        "--policy fair instead of --policy tiresias",
        "no --option instead of --option limit_1=3600",
    ]


def test_jobs_that_are_left_keep_their_devices() -> None:
    """If it failed, `--device` would be ignored, or jobs would go on elsewhere than their joules are counted."""
    keep(device="cpu")
    assert resumed(None, {"name": "lab", "resume": True, "device": "cpu/2"})[0].device == "cpu/2"
    store = JobStore(QueueFolder.of("lab").database)
    store.add(submission(1), [("a", "a", False)], "run", 1.0)
    store.close()
    assert resumed(None, {"name": "lab", "resume": True, "device": "cpu"})[0].device == "cpu"
    with pytest.raises(UsageError, match="--device cpu/2 instead of --device cpu: the jobs that are left keep theirs"):
        resumed(None, {"name": "lab", "resume": True, "device": "cpu/2"})


def test_damaged_options_are_told_with_the_file() -> None:
    keep()
    QueueFolder.of("lab").options.write_text("{")
    with pytest.raises(UsageError, match=r"options.json: ") as told:
        ecoshare.up(name="lab", resume=True)
    assert "remove the file" in told.value.hint


def test_the_background_gets_what_is_given_be_it_a_default() -> None:
    (command,) = [each for name, each in get_command(app).commands.items() if name == "up"]  # type: ignore[attr-defined]
    context = command.make_context("up", ["--resume", "--objective", "energy", "--lanes", "2", "--detach"])
    words = command_line(context)
    assert words[3] == "up" and words[6:] == ["--objective", "energy", "--lanes", "2", "--resume"]
