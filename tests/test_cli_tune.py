"""`ecoshare tune` on the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.knowledge.invented import COLUMNS, write_table
from tests.test_cli import ecoshare

GOOD = ("tune", "--replay", "t.csv", "--columns", COLUMNS, "--where", "network=b", "--default", "batch=64")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_table(tmp_path / "t.csv", {"a": 0.3, "b": 0.6})
    (tmp_path / "twice.csv").write_text("limit,watts,epoch_s\n1,2,3\n1,2,3\n2,2,3\n")
    (tmp_path / "odd.csv").write_text("limit,watts,epoch_s\n100,2,3\n200,much,3\n300,2,\n")
    return tmp_path


@pytest.mark.slow
def test_a_replay_shows_its_trials_and_what_came_of_them(folder: Path) -> None:
    done = ecoshare(*GOOD, "--plot", "f.svg", "--seed", "3", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    trials = re.findall(r"^ +(\d+) .* (kept|broken)", done.stdout, re.MULTILINE)
    assert [int(number) for number, _ in trials] == list(range(1, len(trials) + 1)) and trials[0][1] == "kept"
    for words in ("default ", "chosen ", "best of table ", "best static ", "saves ", "broke the limit", "plot: f.svg"):
        assert words in done.stdout
    assert (folder / "f.svg").read_text().startswith("<?xml")


@pytest.mark.slow
def test_json_is_alone_on_stdout_and_equal_seeds_give_it_equal(folder: Path) -> None:
    one, other = (ecoshare(*GOOD, "--json", "--budget", "4", "--seed", "1", cwd=folder) for _ in range(2))
    result = json.loads(one.stdout)
    assert one.returncode == 0 and one.stderr.startswith("  no. ")
    assert result["schema_version"] == 1 and len(result["trials"]) <= 4
    assert result["default"] == {"limit": 250.0, "batch": 64.0}
    assert set(result["replay"]) >= {"optimum", "regret", "violations", "trials_until_good"}
    again = json.loads(other.stdout)
    del result["made_utc"], again["made_utc"]
    assert result == again


@pytest.mark.slow
@pytest.mark.parametrize("form", ["png", "html"])
def test_pictures(folder: Path, form: str) -> None:
    done = ecoshare(*GOOD, "--objective", "edp", "--plot", f"f.{form}", cwd=folder)
    assert done.returncode == 0
    assert (folder / f"f.{form}").read_bytes().startswith(b"\x89PNG" if form == "png" else b"<!DOCTYPE html>")


@pytest.mark.slow
def test_a_picture_that_cannot_be_written_is_said_after_the_result(folder: Path) -> None:
    (folder / "f.svg").mkdir()
    done = ecoshare(*GOOD, "--budget", "2", "--plot", "f.svg", cwd=folder)
    assert done.returncode == 4 and "cannot write f.svg" in done.stderr and "chosen " in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("tune",), 2, "--replay TABLE.csv"),
        (("tune", "jobs.yaml", "--replay", "t.csv"), 2, "one or the other"),
        (("tune", "--columns", COLUMNS), 2, "--replay TABLE.csv"),
        (("tune", "--replay", "t.csv"), 2, "such as --columns"),
        (("tune", "--replay", "none.csv", "--columns", COLUMNS), 2, "cannot read none.csv"),
        ((*GOOD[:4], COLUMNS.replace("=watts", "=wats"), *GOOD[5:]), 2, "did you mean 'watts'?"),
        ((*GOOD[:6], "network=c", *GOOD[7:]), 2, "the value 'c' is not there"),
        ((*GOOD[:5], *GOOD[7:]), 3, "choose with --where network=VALUE, one of a, b"),
        (GOOD[:7], 2, "what is the default of batch?"),
        ((*GOOD, "--default", "limit=260"), 2, "the nearest is --default limit=250,batch=64"),
        ((*GOOD, "--objective", "fun"), 2, "expected energy, edp, jct or makespan"),
        ((*GOOD, "--tuning-limit", "0.5"), 2, "expected at least 1"),
        ((*GOOD, "--budget", "0"), 2, "--budget"),
        ((*GOOD, "--noise", "2"), 2, "--noise"),
        ((*GOOD, "--plot", "f.jpg"), 2, ".svg, .html or .png"),
        ((*GOOD, "--plot", "no/f.svg"), 2, "no folder"),
    ],
)
def test_wrong_use_gives_a_clear_word(folder: Path, args: tuple[str, ...], code: int, said: str) -> None:
    done = ecoshare(*args, cwd=folder)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in " ".join(done.stderr.split())


def test_mistakes_of_a_table_have_their_places(folder: Path) -> None:
    columns = ("--columns", "power_limit=limit,power=watts,time=epoch_s")
    odd = ecoshare("tune", "--replay", "odd.csv", *columns, cwd=folder)
    assert odd.returncode == 3 and odd.stdout == ""
    assert [line.split(": ")[0] for line in odd.stderr.splitlines()[:2]] == ["odd.csv:3:5", "odd.csv:4:7"]
    twice = ecoshare("tune", "--replay", "twice.csv", *columns, cwd=folder)
    assert twice.returncode == 3 and "twice.csv:3:1: the same setting as in line 2" in twice.stderr
