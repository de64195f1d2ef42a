"""The command line: its texts on stdout and stderr, and its exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from ecoshare.cli.app import app
from tests import warm
from tests.runtime.running import SCRIPTS
from tests.warm import COLD, ROOT

GOOD = f"version: 1\njobs:\n  - name: a\n    script: {SCRIPTS / 'no_torch.py'}\n"


def ecoshare(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    done = warm.ecoshare(*args, cwd=cwd)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def test_every_command_and_option_is_documented() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()

    for words, command in every_command(get_command(app)):
        name = " ".join(words)
        is_named = re.search(rf"`{re.escape(name.removesuffix(' show').removesuffix(' rm'))}\b", page)
        assert is_named or command.hidden or not words, name
        assert command.help, name
        for parameter in command.params:
            assert parameter.name == "help" or getattr(parameter, "help", None), f"{name} {parameter.name}"


def every_command(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each command and group, with the words that name it, those of installed parts included."""
    yield words, command
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        yield from every_command(command.get_command(None, name), (*words, name))


def helped(*words: str) -> str:
    return CliRunner(env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).invoke(app, [*words, "--help"]).output


@pytest.mark.nightly
def test_no_help_shows_a_type_of_python() -> None:
    """A user reads `<list[Path]>` as something to type."""
    found = {words: helped(*words) for words, _ in every_command(get_command(app))}
    assert len(found) > 35 and all("Usage: " in shown for shown in found.values())
    types = re.compile(r"<(?!=)[^>]*>|\b(?:list\[|int range|float range|str\b)")
    assert {words: types.findall(shown) for words, shown in found.items() if types.search(shown)} == {}


def test_the_help_shows_the_ten_most_needed_commands_first() -> None:
    shown = helped()
    assert re.findall(r"─ (\w+) ─", shown) == ["Options", "Run", "Look", "Queue", "Devices", "More"]
    names = re.findall(r"^│ (\w+)  +\S", shown, re.MULTILINE)
    ten = ["run", "init", "profile", "doctor", "status", "top", "logs", "explain", "export", "runs"]
    assert names[:10] == ten and len(names) == len(set(names)) > 25
    assert not {"agent", "dashboard"} & set(names), "one is for machines, and the other a second name"


OPTIONS = "`ecoshare {} --help` lists its options"


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        ("run --polcy x", "--polcy is no option of `ecoshare run`", "did you mean '--policy'?"),
        ("run --zzz", "--zzz is no option of `ecoshare run`", OPTIONS),
        ("run --lanes x a.py", "--lanes x: expected a whole number", OPTIONS),
        ("run --tuning-limit x a.py", "--tuning-limit x: expected a number", OPTIONS),
        ("tune --budget 0 a.py", "--budget 0: expected at least 1", OPTIONS),
        ("priority a b", "NUMBER b: expected a whole number", OPTIONS),
        ("run --json=3", "--json: it takes no value", ""),
        ("run a.py --lanes", "--lanes: its value is missing", ""),
        ("submit", "JOBS.YAML | SCRIPT.PY is missing", OPTIONS),
        ("page extra", "extra: `ecoshare page` takes no such word", OPTIONS),
        ("dashboard extra", "extra: `ecoshare dashboard` takes no such word", OPTIONS),
        ("profiles lst", "`ecoshare profiles` has no command 'lst'", "did you mean 'list'?"),
    ],
)
def test_mistakes_of_options_have_the_style_of_all_others(tmp_path: Path, words: str, said: str, hint: str) -> None:
    done = ecoshare(*words.split(), cwd=tmp_path)
    expected = [f"error: {said}", *([f"hint: {hint.format(words.split()[0])}"] if hint else [])]
    assert (done.returncode, done.stdout, done.stderr.splitlines()) == (2, "", expected)


def test_mistakes_are_told_all_at_once_with_their_places(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text("version: 1\njobs:\n  - name: a b\n    scrpt: x.py\n    timeout: -3\n")
    done = ecoshare("run", "jobs.yaml", cwd=tmp_path)
    assert done.returncode == 3
    places = [line.split(": ")[0] for line in done.stderr.splitlines()]
    assert places == ["jobs.yaml:3:5", "jobs.yaml:3:11", "jobs.yaml:4:5", "jobs.yaml:5:14"]
    assert "did you mean 'script'?" in done.stderr
    assert not (tmp_path / "ecoshare-runs").exists()


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("run",), 2, "give a job file"),
        (("run", "nowhere.yaml"), 2, "no job file"),
        (("run", "good.yaml", "--policy", "best"), 2, "expected one of allox, critical, edp"),
        (("run", "good.yaml", "--policy", "tiresias", "--option", "round=3"), 2, "expected one of limit_1"),
        (("run", "good.yaml", "--policy", "tiresias", "--option", "limit_1"), 2, "expected a name and a number"),
        (("run", "good.yaml", "--policy", "fair", "--option", "limit_1=3"), 2, "these policies have no options"),
        (("run", "good.yaml", "--option", "limit_1=3"), 2, "name it with --policy"),
        (("run", "good.yaml", "--objective", "fun"), 2, "expected one of energy"),
        (("run", "good.yaml", "--lanes", "0"), 2, "--lanes 0"),
        (("run", "good.yaml", "--jobs-per-lane", "99"), 2, "--jobs-per-lane 99"),
        (("run", "good.yaml", "--memory", "much"), 2, "--memory much"),
        (("run", "good.yaml", "--device", "tpu"), 2, "expected cpu, cuda"),
        (("run", "good.yaml", "--device", "cuda:7"), 4, "--device cpu"),
        (("run", "good.yaml", "--resume", "ecoshare-runs/x"), 2, "one or the other"),
        (("run", "good.yaml", "--memory", "9 MiB"), 2, "torch alone takes"),
        (("run", "--resume", "nowhere"), 2, "not a run folder"),
        (("run", "--resume", "nowhere", "--lanes", "2"), 2, "takes its options from the run"),
        (("export", "nowhere"), 2, "not a run folder"),
        (("export",), 2, "there is no run in ecoshare-runs"),
        (("logs",), 2, "there is no run in ecoshare-runs"),
        (("logs", "--queue", "none", "a"), 4, "there is no queue 'none'"),
        (("explain", "nowhere"), 2, "there is no run in ecoshare-runs"),
        (("explain", "./nowhere"), 2, "not a run folder"),
        (("explain", ".", "a"), 2, "not a run folder"),
        (("init", "good.yaml"), 2, "--force"),
        (("fly",), 2, "`ecoshare` has no command 'fly'"),
    ],
)
def test_wrong_use_gives_a_clear_word(tmp_path: Path, args: tuple[str, ...], code: int, said: str) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    done = ecoshare(*args, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr


def test_a_gang_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text(GOOD + "    gpus: 2\n")
    done = ecoshare("run", "jobs.yaml", "--device", "cpu", cwd=tmp_path)
    assert done.returncode == 3 and "the job needs 2 devices, and the run has 1" in done.stderr
    assert done.stderr.startswith("jobs.yaml:5:11: jobs[0].gpus: ")


def test_a_dry_run_prints_the_plan_and_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text(GOOD + "    env: {TOKEN: hunter2}\n")
    done = ecoshare("run", "jobs.yaml", "--device", "cpu", "--dry-run", "--json", cwd=tmp_path)
    plan = json.loads(done.stdout)
    assert done.returncode == 0 and (plan["policy"], plan["lanes"]) == ("energy", 6)
    assert plan["jobs"][0]["env"] == ["TOKEN"] and "hunter2" not in done.stdout
    assert plan["goal"] == {"objective": "energy", "tuning_limit": 1.1, "budget": 12, "seed": 0}
    words = ecoshare("run", "jobs.yaml", "--device", "cpu", "--memory", "3 GiB", "--dry-run", cwd=tmp_path).stdout
    assert "6 that share 3 GiB" in words, words
    assert not (tmp_path / "ecoshare-runs").exists()


@pytest.mark.nightly
def test_a_run_then_its_exports(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text(GOOD)
    done = ecoshare("run", "jobs.yaml", "--device", "cpu", cwd=tmp_path)
    assert done.returncode == 0
    assert "modelled" in done.stdout and "ecoshare-runs/" in done.stdout
    assert "a: starts in lane 0" in done.stderr
    summary = json.loads(ecoshare("export", "ecoshare-runs/latest", cwd=tmp_path).stdout)
    assert summary == json.loads((tmp_path / "ecoshare-runs/latest/summary.json").read_text())
    table = ecoshare("export", "ecoshare-runs/latest", "--format", "csv", cwd=tmp_path).stdout.splitlines()
    assert table[1].startswith("a,no_torch-")
    ecoshare("export", "ecoshare-runs/latest", "-o", "out.json", cwd=tmp_path)
    assert json.loads((tmp_path / "out.json").read_text()) == summary
    again = ecoshare("run", "--resume", "ecoshare-runs/latest", "--json", cwd=tmp_path)
    assert again.returncode == 0 and json.loads(again.stdout)["jobs"][0]["attempts"] == 1


@pytest.mark.nightly
def test_a_run_has_the_name_that_it_is_given_and_says_as_much_as_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text(GOOD)
    line = ("run", "jobs.yaml", "--device", "cpu", "--no-report", "--name", "my first")
    done = ecoshare(*line, "-q", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "") and "energy" in done.stdout
    (path,) = (tmp_path / "ecoshare-runs").glob("2*")
    assert path.name.endswith("-my-first")
    assert "starts in lane 0" in ecoshare(*line, "-v", cwd=tmp_path).stderr
    assert ecoshare(*line, "-v", "-q", cwd=tmp_path).stderr == "error: -v and -q: give one of them\n"


@pytest.mark.slow
def test_a_run_in_the_background_opens_the_queue_if_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one opens it with its options; a later one finds it up, and cannot change them."""
    monkeypatch.setenv("ECOSHARE_STATE", str(tmp_path / "state"))
    (tmp_path / "jobs.yaml").write_text(GOOD)
    line = ("run", "-d", "--queue", "lab")
    wrong = ecoshare(*line, "none.py", cwd=tmp_path)
    assert wrong.returncode == 2 and not (tmp_path / "state").exists(), "nothing is opened for jobs that are none"
    try:
        first = ecoshare(*line, "jobs.yaml", "--device", "cpu", "--lanes", "2", cwd=tmp_path)
        assert (first.returncode, first.stdout) == (0, "a\n"), first.stderr
        assert "the queue 'lab' is up" in first.stderr and "`ecoshare logs --queue lab -f a`" in first.stderr
        second = ecoshare(*line, str(SCRIPTS / "no_torch.py"), "--name", "b", "--json", cwd=tmp_path)
        assert json.loads(second.stdout)["jobs"] == ["b"] and "is up" not in second.stderr
        other = ecoshare(*line, "jobs.yaml", "--lanes", "3", cwd=tmp_path)
        assert other.returncode == 2 and "--lanes cannot be given now" in other.stderr
        assert ecoshare("wait", "--queue", "lab", cwd=tmp_path).returncode == 0
        assert ecoshare("logs", "--queue", "lab", "b", cwd=tmp_path).stdout.startswith("0 ")
        assert "14 " in ecoshare("logs", "--queue", "lab", "-n", "1", "a", cwd=tmp_path).stdout
        options = json.loads((tmp_path / "state/queues/lab/options.json").read_text())
        assert options["lanes"] == 2
    finally:
        down = ecoshare("down", "--queue", "lab", "--now", cwd=tmp_path)
    assert down.returncode == 0, down.stderr
    refused = ecoshare(*line, "jobs.yaml", "--dry-run", cwd=tmp_path)
    assert refused.returncode == 2 and "--dry-run does not go with -d" in refused.stderr


@pytest.mark.nightly
def test_a_run_goes_on_without_a_reader_of_its_progress(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text(GOOD)
    line = ["run", "jobs.yaml", "--device", "cpu", "--no-report", "--json"]
    with Path("/dev/full").open("w") as full:
        done = warm.Started(*line, cwd=tmp_path, stderr=full.fileno()).done()
    assert done.returncode == 0
    assert json.loads(done.stdout)["state"] == "completed"
    reader, writer = os.pipe()
    os.close(reader)
    done = warm.Started(*line, cwd=tmp_path, stderr=writer).done()
    os.close(writer)
    assert done.returncode == 0 and (tmp_path / "ecoshare-runs/latest/summary.json").exists()


@pytest.mark.slow
@pytest.mark.cold
def test_the_real_command_runs_jobs(tmp_path: Path) -> None:
    """The real command in a process of its own; all other tests fork it from a process that has loaded it."""
    (tmp_path / "jobs.yaml").write_text(GOOD)
    line = [*COLD, "run", "jobs.yaml", "--device", "cpu", "--json"]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0 and json.loads(done.stdout)["state"] == "completed", done.stderr
    assert (tmp_path / "ecoshare-runs/latest/report.html").stat().st_size


@pytest.mark.slow
@pytest.mark.cold
def test_output_that_cannot_be_written_is_said_in_a_line(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COLD, "schema"], stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path, check=False
        )
    assert done.returncode == 4
    assert done.stderr == "error: No space left on device\n"


def test_the_schema_describes_the_keys(tmp_path: Path) -> None:
    schema = json.loads(ecoshare("schema", cwd=tmp_path).stdout)
    assert "startup_timeout" in schema["$defs"]["JobConfig"]["properties"]


@pytest.mark.slow
def test_doctor_says_what_it_found_and_what_would_help(tmp_path: Path) -> None:
    done = ecoshare("doctor", "--json", cwd=tmp_path)
    findings = {finding["subject"]: finding for finding in json.loads(done.stdout)}
    assert done.returncode == 0
    assert {"system", "torch", "device", "MPS", "parked jobs", "GPU energy", "CPU energy", "clocks and power"} <= set(
        findings
    )
    for finding in findings.values():
        assert finding["evidence"] and (finding["verdict"] == "ok" or finding["remedy"])


@pytest.mark.nightly
def test_a_changed_job_file_is_another_run(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text(GOOD)
    assert ecoshare("run", "jobs.yaml", "--device", "cpu", "--no-report", cwd=tmp_path).returncode == 0
    (tmp_path / "jobs.yaml").write_text(GOOD + "    priority: 2\n")
    done = ecoshare("run", "--resume", "ecoshare-runs/latest", cwd=tmp_path)
    assert done.returncode == 2 and "has changed" in done.stderr


@pytest.mark.slow
@pytest.mark.cold
@pytest.mark.parametrize("closed", [1, 2])
def test_a_closed_stream_changes_no_exit_code(closed: int) -> None:
    line = f"{sys.executable} -m ecoshare schema {closed}>&-"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.cold
@pytest.mark.parametrize(
    ("at", "words", "code"),
    [("atexit.register(end)", ["--version"], 0), ("entry._tell = lambda *_: end()", ["explain", "nothing"], 130)],
    ids=["it leaves", "it tells an error"],
)
def test_a_signal_to_a_command_that_is_over_shows_no_traceback(
    at: str, words: list[str], code: int, tmp_path: Path
) -> None:
    """Signals that come at its very end, sent from the process itself."""
    ends = "".join(f"os.kill(os.getpid(), signal.{name}); " for name in ("SIGHUP", "SIGTERM", "SIGINT"))
    setup = f"import atexit, os, signal\nfrom ecoshare.cli import entry\ndef end(): {ends}\n{at}\nentry.main()"
    done = subprocess.run([sys.executable, "-c", setup, *words], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.slow
@pytest.mark.cold
@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)])
def test_the_number_of_a_closed_stream_is_nobodys(closed: tuple[int, ...]) -> None:
    """Else the next opened file got the descriptor, and output went there."""
    streams = "".join(f" {number}>&-" for number in closed)
    code = (
        "import os, sys\n"
        "from ecoshare.cli import entry\n"
        "entry.app = lambda **_: (print('said'), sys.exit(7 if os.open('/', os.O_RDONLY) > 2 else 8))\n"
        "entry.main()\n"
    )
    line = f"{sys.executable} -c '{code.replace(chr(39), chr(34))}' {streams}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (7, "")


@pytest.mark.nightly
@pytest.mark.cold
def test_a_profile_of_the_command_has_the_figures(tmp_path: Path) -> None:
    figures = tmp_path / "figures"
    line = [sys.executable, "-m", "cProfile", "-o", str(figures), "-m", "ecoshare", "--version"]
    assert subprocess.run(line, capture_output=True, check=False).returncode == 0
    assert figures.stat().st_size


@pytest.mark.nightly
def test_what_a_user_has_named_latest_stays_and_the_run_goes_on(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text(GOOD)
    (tmp_path / "ecoshare-runs" / "latest").mkdir(parents=True)
    (tmp_path / "ecoshare-runs" / "latest" / "mine").touch()
    done = ecoshare("run", "jobs.yaml", "--device", "cpu", "--no-report", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [each.name for each in (tmp_path / "ecoshare-runs" / "latest").iterdir()] == ["mine"]
    assert len(list((tmp_path / "ecoshare-runs").glob("2*"))) == 1
