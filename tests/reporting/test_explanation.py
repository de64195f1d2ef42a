"""Explanations why each job waited, shared or ran alone, from logs of the real core: whole, cut short and changed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ecoshare.base.class_profile import MemoryDemand
from ecoshare.base.measurement import Setting
from ecoshare.core.commands import Command, SetShares
from ecoshare.core.events import Config, RunOpened
from ecoshare.core.reasons import Doing
from ecoshare.errors import UsageError
from ecoshare.record import event_log
from ecoshare.record.run_history import RunHistory
from ecoshare.reporting.explanation import explain
from ecoshare.reporting.explanation_text import show
from ecoshare.reporting.reason_words import percent
from tests.core import test_power_budget as budgets
from tests.reporting.recorded import Entries, Settable, entries_of, plan, proposing, write
from tests.runtime.running import SLEEPS, run
from tests.simulation.test_packs import GIB, GPU, job, world
from tests.warm import ecoshare

ENERGY = Config("energy", 3, 4, profile=True)
SLOW: Setting = (("gpu_clock", 1200.0),)
JOBS = [
    replace(job("anna", "a", 200.0), slowdown_limit=1.3),
    job("bert", "b", 150.0),
    job("carl", "c", 100.0),
    job("dora", "c", 90.0, arrival_s=30.0),
]
SPEEDS = {"ab": 0.3, "ac": 0.95, "bc": 0.4, "cc": 0.9}


@pytest.fixture(scope="module")
def entries() -> Entries:
    return entries_of(JOBS, world(**SPEEDS), ENERGY)


def told(capsys: pytest.CaptureFixture[str], folder: Path, name: str | None = None) -> str:
    show(folder, name, as_json=False)
    return capsys.readouterr().out


@pytest.fixture
def folder(entries: Entries, tmp_path: Path) -> Path:
    return write(tmp_path / "run", plan(JOBS, ENERGY), entries)


def test_each_job_is_explained_from_its_arrival_to_its_end_without_a_gap(entries: Entries) -> None:
    explained = explain(RunHistory(entries))
    assert explained.differs_s is None
    for each in JOBS:
        story = explained.stories[each.name]
        assert story.remarks[-1][1] == "completed"
        end_s = story.remarks[-1][0]
        total_s = sum(interval.length_s(end_s) for interval in story.intervals)
        assert total_s == pytest.approx(end_s - each.arrival_s, abs=0.5 * len(story.intervals))
        for before, after in zip(story.intervals, story.intervals[1:], strict=False):
            assert before.to_s is not None and before.to_s <= after.from_s


def test_intervals_say_what_the_log_says(entries: Entries) -> None:
    """Explained windows are those of the log, and jobs share only while they are in one packing."""
    explained = explain(RunHistory(entries))
    for window in explained.windows:
        (own,) = [each for each in explained.stories[window.job].intervals if each.reason.doing is Doing.MEASURED]
        assert (own.from_s, own.to_s) == (window.from_s, window.to_s)
    for story in explained.stories.values():
        for each in story.intervals:
            if each.reason.doing is Doing.SHARES:
                mid_s = each.from_s + 0.5 * each.length_s(explained.end_s)
                (stretch,) = [s for s in explained.timeline.stretches if s.from_s <= mid_s < (s.to_s or mid_s + 1.0)]
                assert set(stretch.jobs) == {story.name, *each.reason.beside}


def test_jobs_say_when_they_empty_their_caches_and_that_no_turn_is_cut_then() -> None:
    """32 GiB hold what two jobs keep, 2 x 10 GiB, and one of their iterations of 10 GiB, but not both."""
    large = [
        replace(job(name, name, seconds), memory=MemoryDemand(10 * GIB, 10 * GIB), slowdown_limit=4.0)
        for name, seconds in (("a", 30.0), ("b", 60.0))
    ]
    small = job("c", "c", 120.0, gib=1.0)
    explained = explain(RunHistory(entries_of([*large, small], world(), Config("fair", 1, 4))))
    empties = "empties its cache at hand-overs, since n0g0 has no memory for the caches of all jobs"
    said = {name: [words for _, words in each.remarks if "cache" in words] for name, each in explained.stories.items()}
    cut = f"{empties}: no turn is cut inside an iteration"
    again = "keeps its cache at hand-overs again"
    assert said == {"a": [cut], "b": [cut, again], "c": [cut, again]}


def test_one_job_is_the_same_whether_others_are_asked_for_or_not(entries: Entries) -> None:
    alone, together = explain(RunHistory(entries), "anna").stories["anna"], explain(RunHistory(entries)).stories["anna"]
    assert alone == together
    assert not explain(RunHistory(entries), "anna").stories["bert"].intervals


def test_the_words_of_a_job(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = told(capsys, folder, "bert")
    assert words.startswith("bert (class b): completed, ")
    assert "paused: anna was measured alone" in words or "anna was measured alone, and no job may start" in words
    assert "may have a slowdown of 1." in words and "(`slowdown:`)" in words, "anna's limit kept bert behind"
    assert "measured alone, since nothing was known of its class" in words
    assert "its slowdown was" in told(capsys, folder, "anna")


@pytest.mark.slow
def test_a_pair_that_did_not_pay_is_told_as_measured_against_expected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [job("anna", "a", 300.0), job("bert", "b", 300.0)]
    made = write(tmp_path / "run", plan(jobs, ENERGY), entries_of(jobs, world(ab=0.3), ENERGY))
    for words in (told(capsys, made), told(capsys, made, "anna")):
        assert "measured 0.30 and 0.30 of their speeds alone, expected 0." in words and ": parted" in words
    words = told(capsys, made, "bert") + told(capsys, made, "anna")
    assert "(0.30 and 0.30 of their speeds alone) the work would have taken" in words
    assert "% more joules" in words


def test_settings_that_were_tried_are_told_where_they_were_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [job("anna", "a", 200.0)]
    config = replace(ENERGY, search=True)
    truth = Settable(GPU, effects={SLOW: (0.9, 0.6)})
    made = write(tmp_path / "run", plan(jobs, config), entries_of(jobs, truth, config, proposing(SLOW, best=SLOW)))
    for words in (told(capsys, made), told(capsys, made, "anna")):
        assert "set: gpu_clock 1200" in words
        saved = 1.0 - (GPU.idle_w + 0.6 * GPU.active_w) / 0.9 / (GPU.idle_w + GPU.active_w)
        assert f"searched: of 1 setting gpu_clock 1200 is best, with {percent(saved)} fewer joules" in words


def test_a_slowdown_limit_that_a_power_budget_does_not_suffice_for_is_told_once() -> None:
    jobs = [budgets.job(name, slowdown_limit=limit) for name, limit in (("anna", 1.2), ("bert", 1.2), ("carl", None))]
    for budget_w, count in ((400.0, 1), (600.0, 0)):
        driver = budgets.drive(budget_w, (budgets.gpu(0), budgets.gpu(1)), *jobs)
        explained = explain(RunHistory([entry for event, commands in driver.log for entry in (event, *commands)]))
        words = "need a power limit of 250 W, and the power budget does not suffice for that"
        told = {name: sum(words in each for _, each in story.remarks) for name, story in explained.stories.items()}
        assert told == {"anna": count, "bert": count, "carl": 0}


def test_the_whole_run_has_its_packings_and_a_few_lines_for_each_job(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = told(capsys, folder).splitlines()
    assert "completed, objective energy, policy energy" in words[0]
    assert words[2] == "n0g0"
    for each in JOBS:
        (place,) = [place for place, line in enumerate(words) if line.startswith(f"{each.name} (class")]
        own = words[place + 1 : place + 5]
        assert any(part in " ".join(own) for part in ("waited", "alone", "behind"))
    assert any("anna measured alone" in line for line in words)
    assert any("anna" in line and "expected" in line for line in words)


def test_as_json_it_is_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show(folder, None, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in found["jobs"]] == [each.name for each in JOBS]
    lines = told(capsys, folder, "bert")
    (bert,) = [each for each in found["jobs"] if each["name"] == "bert"]
    assert bert["intervals"] and all(each["words"] in lines for each in bert["intervals"])
    assert {each["device"] for each in found["packings"]} == {"n0g0"}


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("ana", "did you mean 'anna'?"), ("zzz", "its jobs are anna, bert, carl and dora")],
)
def test_an_unknown_job_is_told_with_what_there_is(folder: Path, name: str, remedy: str) -> None:
    with pytest.raises(UsageError, match=f"has no job '{name}'") as found:
        show(folder, name, as_json=False)
    assert found.value.hint == remedy and found.value.exit_code == 2


@pytest.mark.nightly
def test_a_log_that_is_cut_anywhere_is_explained_as_far_as_it_goes(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    for count in range(1, len(lines), 7):
        path.write_bytes(b"".join(lines[:count]) + lines[count][:20])
        explained = explain(RunHistory(event_log.read(path)))
        assert explained.differs_s is None, "a cut is no other version"
    words = told(capsys, folder)
    assert "would have decided otherwise" not in words
    path.unlink()
    assert "nothing was decided about it yet" in told(capsys, folder)


def test_a_run_that_was_resumed_goes_on_where_it_was_cut_off(entries: Entries) -> None:
    later = [place for place, entry in enumerate(entries) if not isinstance(entry, Command) and entry.at_s > 50.0]
    first = entries[: later[0]]
    cut_s = max(entry.at_s for entry in first if not isinstance(entry, Command))
    explained = explain(RunHistory([*first, *_later(entries, cut_s + 10.0)]))
    assert explained.differs_s is None
    anna = explained.stories["anna"]
    assert (cut_s, "cut off with the run, which was resumed later") in anna.remarks
    assert not [each for each in anna.intervals if each.from_s < cut_s + 10.0 and (each.to_s or 0.0) > cut_s]
    assert anna.remarks[-1][1] == "completed"


def _later(entries: Entries, by_s: float) -> Entries:
    """Entries of the same run, opened later. A log of a packing policy has no `WakeAt`, which holds a time."""
    moved: Entries = []
    for entry in entries:
        moved.append(entry if isinstance(entry, Command) else replace(entry, at_s=entry.at_s + by_s))
    assert isinstance(moved[0], RunOpened)
    return moved


def test_a_log_of_another_version_is_explained_up_to_where_it_differs(
    folder: Path, entries: Entries, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = [place for place, entry in enumerate(entries) if isinstance(entry, SetShares)][4]
    other = write(tmp_path / "other", plan(JOBS, ENERGY), [*entries[:place], *entries[place + 1 :]])
    words = told(capsys, other)
    assert "this version of ecoshare would have decided otherwise than the one that ran" in words
    assert "would have decided otherwise" not in told(capsys, folder)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["fair", "fifo", "srtf", "jct", "edp", "makespan"])
def test_every_policy_is_explained(policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = Config(policy, 2, 2, profile=True)
    small = [replace(each, slowdown_limit=None) for each in JOBS]
    made = write(tmp_path / "run", plan(small, config), entries_of(small, world(**SPEEDS), config))
    words = told(capsys, made)
    assert "None" not in words and "[]" not in words
    assert "joules" not in words or policy == "edp", "another policy's unit"
    if policy == "fifo":
        assert "waited: all places were taken" in words


@pytest.mark.nightly
def test_a_real_run_is_explained_by_the_command(tmp_path: Path) -> None:
    script = tmp_path / "sleeps.py"
    script.write_text(SLEEPS)
    jobs = [
        {"name": f"j{count}", "script": str(script), "args": [str(count)], "iterations": count} for count in (900, 901)
    ]
    options = ("--policy", "energy", "--lanes", "2", "--profiles", str(tmp_path / "profiles"))
    done = run(tmp_path, *jobs, options=options)
    assert done.code == 0, done.stderr
    pair = [each for each in done.summary["packings"] if len(each["jobs"]) == 2]
    assert pair and pair[-1]["verdict"] == "kept" and pair[-1]["measured"]["power_w"] is None
    assert done.summary["baseline"]["exclusive_makespan_s"] > done.summary["makespan_s"], "side by side it is faster"
    explained = ecoshare("explain", done.folder, "j900").stdout
    assert "ran beside j901: expected at" in explained and "of their speeds alone, expected" in explained
    assert ": kept" in explained and "measured alone, since nothing was known of its class" in explained
    assert "would have decided otherwise" not in explained
    whole = ecoshare("explain", done.folder, "--json")
    assert [each["name"] for each in json.loads(whole.stdout)["jobs"]] == ["j900", "j901"]
