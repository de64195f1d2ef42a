"""Files of a run on machines that share no file system with it: what goes there, and what comes back."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecoshare.base.disk import atomic_write
from ecoshare.cluster.agent_calls import FilePart
from ecoshare.cluster.links import ProcessLink
from ecoshare.cluster.shipment import MOST_BYTES, FileSender, Shipment, file_parts, write_part
from ecoshare.cluster.shipped_jobs import check_shipped, placed, shipped_folder
from ecoshare.devices import registry
from ecoshare.errors import InvalidJobFile, UnfitEnvironment, UsageError
from ecoshare.jobs.load import load
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.lane import trace
from ecoshare.record.run_documents import recorded_end
from tests.cluster.agents import run_on, states, strikes
from tests.planning import planned as made_plan
from tests.runtime.running import SLEEPS, job_file

CPU = (registry.find("cpu"),)

WORKS = """
import os, pathlib, sys
from torch import nn
assert pathlib.Path(sys.argv[1]).read_text() == pathlib.Path("data/values.txt").read_text()
assert os.environ["DATA"] == sys.argv[1]
print("in", os.getcwd())
pathlib.Path("written.txt").write_text("result")
"""
"""Script that reads a shipped file by a relative path, an argument and a variable, and writes a file."""


def project(folder: Path) -> Path:
    """Folder to ship, with scripts and data."""
    (shipped := folder / "project" / "data").mkdir(parents=True)
    (shipped / "values.txt").write_text("1 2 3")
    shipped.parent.joinpath("works.py").write_text(WORKS)
    shipped.parent.joinpath("sleeps.py").write_text(SLEEPS)
    return shipped.parent


def job(shipped: Path, name: str, script: str, *args: str, **keys: Any) -> dict[str, Any]:
    """A job in the shipped folder."""
    return {"name": name, "script": str(shipped / script), "args": list(args), "cwd": str(shipped), **keys}


def places(folder: Path, node: str) -> list[Path]:
    """Files and folders that have stayed on a node."""
    return sorted((folder / f"state-{node}" / "shipped").glob("*/*/*"))


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_job_runs_in_a_copy_and_its_files_come_back(tmp_path: Path) -> None:
    shipped = project(tmp_path)
    data = str(shipped / "data" / "values.txt")
    jobs = [job(shipped, "works", "works.py", data, env={"DATA": data}), job(shipped, "trains", "sleeps.py", "400")]
    store = ProfileStore(tmp_path / "profiles")
    done = run_on(tmp_path, jobs, policy="energy", shipped=shipped, store=store)
    assert {name: state for name, (state, _) in states(done).items()} == {"works": "completed", "trains": "completed"}
    output = (done.folder.job("works") / "stdout.log").read_text()
    node = next(name for name in ("n0", "n1") if f"/state-{name}/shipped/" in output)
    files, listed = places(tmp_path, node)
    assert (files.name, listed.name) == ("files", "shipped.json")
    assert output == f"in {files}\n" and (files / "written.txt").read_text() == "result"
    assert not (shipped / "written.txt").exists() and not (tmp_path / "unpacked" / "written.txt").exists()
    assert f"files that jobs have written on {node} are there in {files}" in done.notes
    assert not places(tmp_path, "n1" if node == "n0" else "n0"), "nothing was written there"
    end = recorded_end(done.folder.job("trains"), 1)
    assert end is not None and end.exit_code == 0
    marks = list(trace.read(trace.trace_path(done.folder.job("trains"), 1)))
    assert sum(mark.kind is trace.Kind.TRAIN for mark in marks) == 400
    [profile] = [each for each in done.made.values() if each.train is not None]
    assert store.find(profile.job_class) == profile == ProfileStore(done.folder.profiles).find(profile.job_class)


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_outputs_of_each_attempt_come_back_when_a_node_dies(tmp_path: Path) -> None:
    def kill(link: ProcessLink) -> None:
        os.kill(link.pid, signal.SIGKILL)

    shipped = project(tmp_path)
    shipped.joinpath("talks.py").write_text('print("begun", flush=True)\n' + SLEEPS)
    jobs = [job(shipped, f"j{number}", "talks.py", "150") for number in range(2)]
    done = run_on(tmp_path, jobs, begun=strikes(kill, "n1", tmp_path), shipped=shipped)
    assert states(done) == {"j0": ("completed", 150), "j1": ("completed", 150)}
    [again] = [each for each in done.data.summary.jobs if each.attempts == 2]
    folder = done.folder.job(again.name)
    assert (folder / "stdout.attempt-1.log").read_text() == "begun\n"
    other = done.folder.job("j1" if again.name == "j0" else "j0")
    assert (folder / "stdout.log").read_bytes() == (other / "stdout.log").read_bytes()
    assert (folder / "stdout.log").read_text().count("begun") == 1


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_sweep_reads_what_its_trials_report_elsewhere(tmp_path: Path) -> None:
    shipped = project(tmp_path)
    shipped.joinpath("trial.py").write_text('import sys\nprint(f"loss={float(sys.argv[1]) ** 2}")\n')
    sweep = {"metric": "loss={:f}", "grid": {"x": [0.5, 2.0]}}
    done = run_on(tmp_path, [job(shipped, "search", "trial.py", "{x}", sweep=sweep)], shipped=shipped)
    [found] = done.data.summary.sweeps
    assert [each.value for each in found.best] == [0.25, 4.0]


def test_a_resumed_run_gets_changed_files_and_keeps_those_of_its_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ECOSHARE_STATE", str(tmp_path / "state"))
    shipped = project(tmp_path)
    first = Shipment("/runs/a", "n0", shipped, lambda _part: None)
    assert (first.files / "data" / "values.txt").read_text() == "1 2 3"
    (first.files / "model.pt").write_text("trained")
    (first.files / "sleeps.py").write_text("changed by a job")
    [note] = first.end()
    assert note == f"files that jobs have written on n0 are there in {first.files}" and not first.run.exists()
    (shipped / "works.py").write_text("mended")
    (shipped / "new.py").touch()
    again = Shipment("/runs/a", "n0", shipped, lambda _part: None)
    assert again.files == first.files and (again.files / "works.py").read_text() == "mended"
    assert (again.files / "model.pt").read_text() == "trained" and (again.files / "new.py").exists()
    assert (again.files / "sleeps.py").read_text() == "changed by a job", "the shipped one is as it was"
    other = Shipment("/runs/b", "n0", shipped, lambda _part: None)
    assert not (other.files / "model.pt").exists(), "another run has a copy of its own"
    assert other.end() == () and not other.files.exists()


def test_files_of_the_run_do_not_go_back_and_those_of_ended_jobs_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ECOSHARE_STATE", str(tmp_path / "state"))
    sent = list[FilePart]()
    here = Shipment("/runs/a", "n0", project(tmp_path), sent.append)
    here.begin("a")
    here.receive(FilePart("jobs/a/arrivals.txt", 0, "MQ=="))
    (here.run / "jobs" / "a" / "stdout.log").write_text("out")
    (here.run / "jobs" / "b").mkdir()
    here.sender.finish("jobs")
    assert [part.path for part in sent] == ["jobs/a/stdout.log"]
    assert (here.run / "jobs" / "a" / "arrivals.txt").read_text() == "1"
    here.keep_only(["a"])
    assert [path.name for path in (here.run / "jobs").iterdir()] == ["a"]
    with pytest.raises(ValueError, match="no file of another machine"):
        here.receive(FilePart("../x", 0, ""))


def test_a_state_folder_that_cannot_be_written_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").touch()
    monkeypatch.setenv("ECOSHARE_STATE", str(tmp_path / "state"))
    with pytest.raises(UnfitEnvironment, match=r"cannot write .*shipped.*: ") as told:
        Shipment("/runs/a", "n0", project(tmp_path), lambda _part: None)
    assert "ECOSHARE_STATE" in told.value.hint


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from("arcl"), st.integers(0, 2), st.integers(0, 400_000)), max_size=12))
def test_files_arrive_as_they_are(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]) -> None:
    """Files that grow, are replaced, or are changed in their first bytes, between looks that are cut off."""
    folder = tmp_path_factory.mktemp("parts")
    here, there, drawn = folder / "here", folder / "there", random.Random(0)
    (here / "jobs" / "a").mkdir(parents=True)
    sender = FileSender(here, lambda part: write_part(there, part))
    for kind, number, size in steps:
        path = here / "jobs" / "a" / f"file-{number}"
        if kind == "a":
            with path.open("ab") as file:
                file.write(drawn.randbytes(size))
        elif kind == "r":
            atomic_write(path, drawn.randbytes(size))
        elif kind == "c" and path.exists():
            path.write_bytes(drawn.randbytes(path.stat().st_size))
        else:
            sender.look("jobs/a", most_bytes=100_000)
    sender.finish("jobs/a")
    for path in here.rglob("file-*"):
        assert (there / path.relative_to(here)).read_bytes() == path.read_bytes()
    assert not sender.cut
    sent = list[FilePart]()
    FileSender(here, sent.append).finish("jobs/b")
    assert not sent, "a folder that is not there has no files"


def test_a_file_that_is_too_long_is_named(tmp_path: Path) -> None:
    (folder := tmp_path / "jobs" / "a").mkdir(parents=True)
    with (folder / "long.log").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    sent = list[FilePart]()
    sender = FileSender(tmp_path, sent.append)
    sender.finish("jobs")
    assert sender.cut == {"jobs/a/long.log"} and sent[-1].offset + (256 << 10) == MOST_BYTES
    sent.clear()
    sender.finish("jobs")
    assert not sent


@pytest.mark.parametrize("path", ["/etc/passwd", "jobs/../plan.json", "plan.json", "../jobs/a", "", ".", "jobs"])
def test_a_part_is_written_below_the_folders_of_other_machines_only(tmp_path: Path, path: str) -> None:
    with pytest.raises(ValueError, match="is no file of another machine"):
        write_part(tmp_path, FilePart(path, 0, ""))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("offset", [-1, MOST_BYTES + 1, 10**30])
def test_a_part_has_a_place_in_a_file_that_may_be_sent(tmp_path: Path, offset: int) -> None:
    with pytest.raises(ValueError, match="has no place"):
        write_part(tmp_path, FilePart("jobs/a/stdout.log", offset, "bmV3"))


def test_a_part_follows_no_link(tmp_path: Path) -> None:
    (folder := tmp_path / "jobs" / "a").mkdir(parents=True)
    (tmp_path / "own").write_bytes(b"own")
    (folder / "stdout.log").symlink_to(tmp_path / "own")
    with pytest.raises(OSError, match="symbolic links"):
        write_part(tmp_path, FilePart("jobs/a/stdout.log", 1, ""))
    write_part(tmp_path, FilePart("jobs/a/stdout.log", 0, "bmV3"))
    assert (tmp_path / "own").read_bytes() == b"own" and (folder / "stdout.log").read_bytes() == b"new"
    [part] = file_parts(folder / "stdout.log", tmp_path)
    assert part == FilePart("jobs/a/stdout.log", 0, "bmV3")


def test_nothing_is_written_through_links_that_jobs_have_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECOSHARE_STATE", str(tmp_path / "state"))
    (outside := tmp_path / "outside").mkdir()
    (outside / "values.txt").write_text("of the user")
    shipped = project(tmp_path)
    first = Shipment("/runs/a", "n0", shipped, lambda _part: None)
    for linked, target in ((first.files / "data", outside), (first.files / "works.py", outside / "values.txt")):
        linked.rename(tmp_path / linked.name)
        linked.symlink_to(target)
    first.end()
    for path, text in (("works.py", "mended"), ("data/values.txt", "4")):
        (shipped / path).write_text(text)
    again = Shipment("/runs/a", "n0", shipped, lambda _part: None)
    assert (again.files / "works.py").read_text() == "mended" and (again.files / "data/values.txt").read_text() == "4"
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "a").symlink_to(outside)
    write_part(tmp_path, FilePart("jobs/a/values.txt", 0, "bmV3"))
    assert (tmp_path / "jobs" / "a" / "values.txt").read_text() == "new"
    assert [each.name for each in outside.iterdir()] == ["values.txt"]
    assert (outside / "values.txt").read_text() == "of the user"


@pytest.mark.timeout(20)
def test_pipes_in_the_place_of_files_stop_nothing(tmp_path: Path) -> None:
    (folder := tmp_path / "jobs" / "a").mkdir(parents=True)
    for name in ("stdout.log", "exit-1.json.new"):
        os.mkfifo(folder / name)
    with pytest.raises(OSError, match="No such device"):
        write_part(tmp_path, FilePart("jobs/a/stdout.log", 1, ""))
    write_part(tmp_path, FilePart("jobs/a/exit-1.json", 0, "bmV3"))
    assert (folder / "exit-1.json").read_bytes() == b"new"


def test_scripts_and_working_folders_must_be_shipped(tmp_path: Path) -> None:
    shipped = shipped_folder(project(tmp_path))
    (tmp_path / "outside.py").touch()
    for keys, place in (({"script": str(tmp_path / "outside.py")}, "script"), ({"cwd": str(tmp_path)}, "cwd")):
        path = job_file(tmp_path, {**job(shipped, "a", "works.py"), **keys})
        loaded = load(path)
        plan = made_plan(loaded, CPU)
        with pytest.raises(InvalidJobFile, match=rf"jobs.yaml:\d+:\d+: .*{place}: .*is not in the folder of --ship"):
            check_shipped(plan.everything, loaded, shipped)
    (shipped / "linked.py").symlink_to(tmp_path / "outside.py")
    loaded = load(job_file(tmp_path, job(shipped, "a", "linked.py")))
    check_shipped(made_plan(loaded, CPU).everything, loaded, shipped)
    with pytest.raises(UsageError, match=r"--ship .*none: no such folder"):
        shipped_folder(tmp_path / "none")


def test_paths_in_the_shipped_folder_become_those_of_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = shipped_folder(project(tmp_path))
    (tmp_path / "link").symlink_to(shipped)
    args = [str(shipped / "data"), "data", str(tmp_path / "link" / "data"), str(tmp_path), f"--data={shipped}/data"]
    env = {"DATA": str(shipped), "OTHER": "/usr", "PATHS": f"{shipped}/data:/usr"}
    monkeypatch.setenv("PYTHONPATH", f"/elsewhere:{shipped}/src")
    given = job(shipped, "a", "works.py", *args, env=env)
    [planned] = made_plan(load(job_file(tmp_path, given)), CPU).jobs
    there = placed(planned.for_node(), shipped, "/copy")
    assert (there.script, there.cwd) == ("/copy/works.py", "/copy")
    assert there.args == ("/copy/data", "data", "/copy/data", str(tmp_path), "--data=/copy/data")
    assert there.env == {"DATA": "/copy", "OTHER": "/usr", "PATHS": "/copy/data:/usr"}
    assert there.inherited == {"PYTHONPATH": "/elsewhere:/copy/src"}
