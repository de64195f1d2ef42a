"""A queue from `up` to `down`: jobs come while others run, and each command does what it says."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from ecoshare.errors import InvalidJobFile, UnfitEnvironment, UsageError
from ecoshare.queue.queue_documents import JobStatus
from ecoshare.record.run_data import read
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.run_view import DeviceStatus
from tests.queue.queues import TRAINS, WAITS, Served, check_replay, served_alone
from tests.warm import Started, ecoshare, wait_for

pytestmark = pytest.mark.slow

EXITS = """
import os, sys
print(os.environ.get("COLOUR"), os.getcwd())
print("bad", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""
JOBS = """
version: 1
jobs:
  - {name: prepare, script: exits.py, args: [0]}
  - {name: fails, script: exits.py, args: [7], after: [prepare]}
  - {name: report, script: exits.py, args: [0], after: [fails]}
  - {name: sweep, script: exits.py, args: [0, "{x}"], sweep: {grid: {x: [1, 2]}}, after_any: [fails]}
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("queue")
    (folder / "exits.py").write_text(EXITS)
    (folder / "jobs.yaml").write_text(JOBS)
    with served_alone(folder) as found:
        yield found


def test_a_script_has_the_folder_and_environment_of_its_submitter(up: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLOUR", "green")
    assert up.lines("submit", "exits.py", "--name", "coloured", "--wait", "--", "0") == ["coloured"]
    assert up.lines("logs", "coloured") == [f"green {up.folder}"]
    assert up.lines("logs", "coloured", "--stderr") == ["bad"]
    up.lines("submit", "exits.py", "--name", "plain", "--env-from", "none", "--wait", "--", "0")
    assert up.lines("logs", "plain") == [f"None {up.folder}"]
    listed = ("--env-from", "listed", "--env", "COLOUR")
    up.lines("submit", "exits.py", "--name", "listed", *listed, "--wait", "--", "0")
    assert up.lines("logs", "listed", "-n", "1") == [f"green {up.folder}"]
    assert "green" not in (up.run / "submitted.jsonl").read_text() + (up.run / "events.jsonl").read_text()


def test_what_is_no_utf8_is_told_and_a_variable_stops_no_job(up: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLOUR", os.fsdecode(b"gr\xfcn"))
    done = up.ask("submit", "exits.py", "--name", "latin", "--wait", "--", "0")
    assert done.returncode == 0 and done.stdout == "latin\n"
    assert "the jobs do not get COLOUR: the value is no UTF-8 text" in " ".join(done.stderr.split())
    assert up.lines("logs", "latin") == [f"None {up.folder}"]
    folder = up.folder / os.fsdecode(b"gr\xfcn")
    folder.mkdir()
    (folder / "exits.py").write_text(EXITS)
    refused = ecoshare("submit", "--queue", "test", "exits.py", cwd=folder)
    assert refused.returncode == 2 and "is no UTF-8 text, and a queue takes no other" in refused.stderr


def test_jobs_of_a_file_wait_for_each_other_and_their_ends_are_told(up: Served) -> None:
    assert up.lines("submit", "jobs.yaml") == ["prepare", "fails", "report", "sweep"]
    done = up.ask("wait", "sweep", "report", "fails")
    assert done.returncode == 1, "the first without success has no exit code of its own"
    assert "note: report cancelled: fails failed, and had to complete first" in done.stderr
    assert up.ask("wait", "fails").returncode == 7
    states = {job.name: job for job in up.queue.status(100).jobs}
    assert (states["sweep"].state == "completed" and states["sweep"].trials is None) or states["sweep"].trials == 2
    assert (states["fails"].state, states["fails"].exit_code) == ("failed", 7)
    assert up.lines("logs", "sweep.0000") == [f"None {up.folder}"]


def test_a_taken_name_gets_a_number_and_the_file_waits_for_its_own_jobs(up: Served) -> None:
    again = up.queue.submit(str(up.folder / "jobs.yaml")).jobs
    assert again == ["prepare-2", "fails-2", "report-2", "sweep-2"]
    [*_, report, sweep] = up.queue.wait(*again)
    assert report.reason == f"{again[1]} failed, and had to complete first" and sweep.state == "completed"


def test_a_job_is_cancelled_held_and_released_and_another_may_wait_for_it(up: Served) -> None:
    go = up.waits("blocks")
    up.waits("held", "--after", "blocks", "--priority", "2")
    assert up.queue.job("held").waits_for == ["blocks"] and up.queue.job("held").state == "arriving"
    assert up.ask("hold", "held").returncode == 0 and up.queue.job("held").state == "held"
    assert up.ask("priority", "held", "5").returncode == 0 and up.queue.job("held").priority == 5
    up.begun("blocks")
    assert "only a job that waits for a place can be held" in up.ask("hold", "blocks").stderr
    go.touch()
    assert up.ask("wait", "blocks").returncode == 0 and up.queue.job("held").state == "held"
    (up.folder / "go-held").touch()
    assert up.ask("release", "held").returncode == 0 and up.ask("wait", "held").returncode == 0
    assert "held is not held" in up.ask("release", "held").stderr
    up.waits("unwanted")
    up.waits("after-it", "--after", "unwanted")
    up.begun("unwanted")
    done = up.ask("cancel", "blocks", "unwanted", "--now", "nothing")
    assert done.returncode == 2 and done.stdout == "unwanted\n", "those that can be are cancelled"
    assert done.stderr.splitlines() == [
        "error: blocks has ended already: it completed",
        "error: the queue 'test' has no job 'nothing'",
    ]
    assert up.ask("wait", "unwanted").returncode == 137
    assert up.queue.wait("after-it")[0].reason == "unwanted was cancelled, and had to complete first"
    with pytest.raises(UsageError, match="after-it has ended already: it was cancelled"):
        up.queue.cancel("after-it", "unwanted")


def test_a_failed_job_runs_again_with_those_that_were_cancelled_because_of_it(up: Served) -> None:
    """If it failed, a user would submit all of them anew, under other names."""
    (up.folder / "needs.py").write_text("import os, sys\nsys.exit(0 if os.path.exists(sys.argv[1]) else 3)\n")
    needed = up.folder / "needed"
    jobs = [
        {
            "name": "base",
            "script": "needs.py",
            "args": [str(needed)],
            "on_end": ["sh", "-c", 'echo "$0" >> ends', "{state}"],
        },
        {"name": "next", "script": "exits.py", "args": [0], "after": ["base"]},
        {"name": "grid", "script": "exits.py", "args": ["{x}"], "after": ["base"], "sweep": {"grid": {"x": [0]}}},
        {"name": "last", "script": "exits.py", "args": [0], "after": ["next", "grid"]},
        {"name": "own", "script": "needs.py", "args": [str(up.folder / "never")]},
        {"name": "both", "script": "exits.py", "args": [0], "after": ["base", "own"]},
    ]
    (up.folder / "again.yaml").write_text(json.dumps({"version": 1, "jobs": jobs}))
    up.lines("submit", "again.yaml", "--json")
    assert up.ask("wait", "base", "next", "grid", "last", "own", "both").returncode == 3
    refused = up.ask("submit", "exits.py", "--name", "hopeless", "--after", "base")
    assert refused.returncode == 2 and "base failed, so that hopeless could never start" in refused.stderr
    assert refused.stderr.splitlines()[1:] == ["hint: `ecoshare retry base` runs it again"]
    assert "last waits for next, which was cancelled: `ecoshare retry next` runs both" in up.ask("retry", "last").stderr
    needed.touch()
    done = up.ask("retry", "base", "coloured", "nothing")
    assert done.returncode == 2 and done.stdout.split() == ["base", "next", "grid", "last"], "`both` waits for own, too"
    assert done.stderr.splitlines() == [
        "error: coloured has completed: submit it again",
        "error: the queue 'test' has no job 'nothing'",
    ]
    states = up.queue.wait("base", "next", "grid", "last")
    assert [each.state for each in states] == ["completed"] * 4
    assert (states[0].attempts, states[0].exit_code, states[0].reason) == (2, 0, "")
    wait_for(lambda: (up.folder / "ends").read_text().split() == ["failed", "completed"], otherwise=up.folder.iterdir)
    assert "grid is a sweep that has begun" not in up.ask("retry", "grid").stderr, "it has completed"
    assert up.queue.retry("own").jobs == ["own", "both"]
    assert [each.state for each in up.queue.wait("own", "both")] == ["failed", "cancelled"]


def test_all_jobs_are_waited_for_and_cancelled_and_jobs_are_submitted_held(up: Served) -> None:
    up.lines("submit", "exits.py", "--name", "later", "--hold", "--after", "coloured", "--", "0")
    up.waits("endless")
    up.waits("behind-endless", "--after", "endless")
    up.begun("endless")
    assert up.queue.job("later").state == "held"
    waiting = Started("wait", "--queue", "test", cwd=up.folder)
    wait_for(lambda: "note: held until `ecoshare release`: later" in waiting.stderr)
    assert up.lines("cancel", "--all", "--now") == ["later", "endless", "behind-endless"]
    assert waiting.wait() == 1 and "endless cancelled: cancelled by the user" in waiting.stderr
    assert up.queue.left() == [] and up.queue.wait() == []
    assert "no job is left to wait for" in up.ask("wait").stderr
    assert "no job is left to cancel" in up.ask("cancel", "--all").stderr
    assert "no job was named to be cancelled" in up.ask("cancel").stderr
    assert up.lines("retry", "endless", "later") == ["later", "endless"], (
        "behind-endless was cancelled by the user, too"
    )
    (up.folder / "go-endless").touch()
    assert [each.state for each in up.queue.wait("later", "endless")] == ["completed"] * 2


def test_a_cancelled_sweep_is_cancelled_whatever_its_trials_have_reached(up: Served) -> None:
    (up.folder / "waits.py").write_text(WAITS)
    (up.folder / "go-first").touch()
    args = f'args: ["{up.folder}/go-{{x}}"], sweep: {{grid: {{x: [first, second]}}}}'
    (up.folder / "half.yaml").write_text(
        f"version: 1\njobs:\n  - {{name: half, script: waits.py, {args}}}\n"
        "  - {name: behind-half, script: exits.py, args: [0], after: [half]}\n"
    )
    up.lines("submit", "half.yaml")
    wait_for(lambda: up.queue.job("half").ended_trials == {"completed": 1}, otherwise=lambda: up.process.stderr)
    up.begun("half.0001")
    assert up.ask("cancel", "half", "--now").returncode == 0
    half, behind = up.queue.wait("half", "behind-half")
    assert (half.state, half.reason) == ("cancelled", "cancelled by the user")
    assert (behind.state, behind.reason) == ("cancelled", "half was cancelled, and had to complete first")


def test_a_wait_for_an_unknown_job_ends_at_once(up: Served) -> None:
    go = up.waits("long")
    assert "has no job 'lomg'" in up.ask("wait", "long", "lomg").stderr
    assert up.queue.job("long").ended_unix_s is None
    go.touch()
    up.queue.wait("long")


def test_status_tells_the_turn_the_joules_and_the_expected_end(up: Served) -> None:
    (up.folder / "long.yaml").write_text("version: 1\njobs: [{name: trains, script: trains.py, iterations: 100000}]\n")
    (up.folder / "trains.py").write_text(TRAINS)
    up.lines("submit", "long.yaml")

    seen: list[tuple[JobStatus, DeviceStatus]] = []

    def is_shown() -> bool:
        job, (device,) = up.queue.job("trains"), up.queue.status(0).devices
        known = job.energy_j and job.expected_end_unix_s and device.energy_j and device.power_w
        seen.append((job, device))
        return bool(known) and device.lanes[0].holder == "trains"

    wait_for(is_shown, otherwise=lambda: up.process.stderr)
    job, device = seen[-1]
    assert job.energy_source in ("attributed", "modelled") and device.energy_source in ("measured", "modelled")
    assert job.energy_j is not None and device.energy_j is not None and 0 < job.energy_j <= device.energy_j
    assert job.expected_end_unix_s is not None and job.expected_end_unix_s > time.time()
    assert [lane.jobs for lane in device.lanes] == [["trains"]] and device.name == "cpu" and not device.failed
    up.ask("cancel", "trains", "--now")
    up.ask("wait", "trains")


def test_output_is_followed_to_its_end(up: Served) -> None:
    go = up.waits("spoken")
    up.begun("spoken")
    told = up.queue.output("spoken", follow=True)
    assert next(told) == b"begun\n"
    go.touch()
    assert b"".join(told) == b"went\n"
    up.queue.wait("spoken")  # or its end would be noted during the next test


def test_mistakes_are_told_as_by_run_and_nothing_is_submitted(up: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYTES", os.fsdecode(b"\xff"))
    before = up.queue.status(0).more
    bad = up.folder / "bad.yaml"
    bad.write_text("version: 1\njobs:\n  - {name: a, script: nowhere.py, after: [coloured, b]}\n")
    done, as_run = up.ask("submit", str(bad)), ecoshare("run", bad, cwd=up.folder)
    assert done.returncode == as_run.returncode == 3
    assert "there is no job 'b'" in done.stderr and done.stderr.splitlines()[-1] in as_run.stderr
    with pytest.raises(InvalidJobFile):
        up.queue.submit(bad)
    for words, said in (
        (("submit", "nowhere.py"), "nowhere.py: no such script"),
        (("submit", "exits.py", "--after", "nothing"), "there is no job 'nothing'"),
        (("submit", "exits.py", "--gpus", "9"), "the job needs 9 devices, and the run has 1"),
        (("submit", "jobs.yaml", "--priority", "3"), "is a job file, and takes no --priority"),
        (("submit", "exits.py", "--env-from", "some"), "--env-from some: expected none, listed or all"),
        (("cancel", "nothing"), "the queue 'test' has no job 'nothing'"),
        (("logs", "sweep"), "sweep is a sweep: give the name of a trial, such as sweep.0000"),
        (("status", ""), "the queue 'test' has no job ''"),
        (("hold", "coloured#1"), "the queue 'test' has no job 'coloured#1'"),
        (("logs", "coloured/../plain"), "the queue 'test' has no job 'coloured/../plain'"),
        (("wait", "a\nb"), "the queue 'test' has no job 'a\\nb'"),
        (("cancel", os.fsdecode(b"\xff")), r"the queue 'test' has no job '\udcff'"),
        (("submit", "exits.py", "--env-from", "listed", "--env", "BYTES"), "--env BYTES: the variable is no UTF-8"),
        (("hold", "sweep.0000"), "sweep.0000 is a trial"),
        (("priority", "coloured", "1"), "coloured has ended already"),
        (("retry", "nothing"), "the queue 'test' has no job 'nothing'"),
        (("cancel", "coloured", "--all"), "jobs and --all: give one of them"),
    ):
        done = up.ask(*words)
        assert done.returncode in (2, 3) and said in done.stderr, done.stderr
        assert len(done.stderr.splitlines()) <= 2
    assert up.queue.status(0).more == before


def test_a_queue_on_its_socket_alone_has_no_page(up: Served) -> None:
    done = up.ask("page")
    assert done.returncode == 2 and "the queue 'test' has no page" in done.stderr
    assert "`ecoshare up --listen 127.0.0.1:8265 --queue test` opens a queue with one" in done.stderr
    assert not (up.home / "token").exists()


def test_the_end_of_a_file_is_no_end_of_a_run_and_a_note_says_so(up: Served) -> None:
    """Only the end of a run has the command of the top level, and a queue goes on."""
    jobs = {"version": 1, "on_end": ["touch", "of-the-run"], "defaults": {"on_end": ["touch", "of-the-job"]}}
    jobs |= {"jobs": [{"name": "told", "script": "exits.py", "args": [0]}]}
    (up.folder / "on_end.yaml").write_text(json.dumps(jobs))
    done = up.ask("submit", "on_end.yaml", "--wait")
    assert done.returncode == 0 and "`on_end:` of the file does not run in a queue" in " ".join(done.stderr.split())
    wait_for(lambda: list(up.folder.rglob("of-the-job")))
    assert not list(up.folder.rglob("of-the-run"))


def test_the_same_submission_twice_is_one(up: Served) -> None:
    from ecoshare.api.queue_client import made_submission

    submission = made_submission([up.folder / "exits.py"], ["0"], "all", (), {"name": "once"})
    assert up.queue.submit_made(submission).jobs == up.queue.submit_made(submission).jobs == ["once"]


def test_a_second_queue_of_the_name_is_refused_and_other_commands_name_the_remedy(up: Served) -> None:
    again = ecoshare("up", "--name", "test", cwd=up.folder)
    assert again.returncode == 2 and "the queue 'test' is up already (process " in again.stderr
    other = ecoshare("submit", "exits.py", "--queue", "other", cwd=up.folder)
    assert other.returncode == 4 and "`ecoshare up --detach --queue other` opens it" in other.stderr
    resumed = ecoshare("run", "--resume", up.run, cwd=up.folder)
    assert resumed.returncode == 2 and "`ecoshare up --resume --name test` goes on with it" in resumed.stderr


def test_other_users_can_neither_read_nor_steer(up: Served) -> None:
    assert stat.S_IMODE(up.home.stat().st_mode) == 0o700
    assert {stat.S_IMODE((up.home / name).stat().st_mode) for name in ("socket", "queue.db", "lock")} == {0o600}
    if os.geteuid() != 0:
        pytest.skip("another user can be played by root only")
    program = (
        "import os, socket, sys\nos.setgid(65534); os.setuid(65534)\n"
        "for what in (lambda: open(sys.argv[1] + '/queue.db'), lambda: os.listdir(sys.argv[1]), "
        "lambda: socket.socket(socket.AF_UNIX).connect(sys.argv[1] + '/socket')):\n"
        "    try:\n        what()\n        print('in')\n    except OSError as error:\n        print(error.errno)\n"
    )
    for path in up.home.parents[1:3]:
        path.chmod(0o711)
    folder = os.path.relpath(up.home)
    done = subprocess.run([sys.executable, "-c", program, folder], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["13"] * 3


def test_the_run_of_a_queue_is_a_run_like_others(up: Served) -> None:
    """The log replays, and the summary has all jobs, though the run goes on."""
    up.queue.submit([up.folder / "exits.py"], ["0"], options={"name": "last"})
    up.queue.wait("last")
    check_replay(up.run)
    data = read(RunFolder.open(up.run))
    names = {job.name for job in data.summary.jobs}
    assert data.summary.state == "running" and {"last", "coloured", "sweep.0001"} <= names
    for words in ((up.run, "last"), ("last", "--queue", "test")):
        explained = ecoshare("explain", *words, cwd=up.folder)
        assert explained.returncode == 0 and "last" in explained.stdout


def test_status_lists_what_there_is(up: Served) -> None:
    shown = up.lines("status", "--ended", "2")
    assert shown[0].startswith("queue test: up for ") and "job that ended earlier" not in shown[-1]
    found = json.loads("\n".join(up.lines("status", "--json", "--ended", "3")))
    assert len([job for job in found["jobs"] if job["ended_unix_s"]]) == 3 and found["more"] > 3
    one = json.loads("\n".join(up.lines("status", "coloured", "--json")))
    assert one["name"] == "coloured" and one["state"] == "completed" and one["exit_code"] == 0


def test_hostile_requests_are_refused(up: Served) -> None:
    import httpx

    from ecoshare.queue.queue_folder import socket_address

    with (
        socket_address(up.home / "socket") as address,
        httpx.Client(transport=httpx.HTTPTransport(uds=address), base_url="http://queue", timeout=20.0) as http,
    ):
        assert http.get("/api/v1/nothing").status_code == 404
        assert http.get("/api/v1/jobs/..%2f..%2fetc/output").status_code in (400, 404)
        assert http.get("/api/v1/jobs/%2e%2e/output").status_code in (400, 404)
        assert http.post("/api/v1/jobs", json={"id": "x"}).status_code == 422
        assert http.post("/api/v1/jobs", content=b"{" * 1000).status_code == 422
        assert http.post("/api/v1/jobs", content=iter([b"x" * (1 << 20)] * 40)).status_code in (413, 400)
        assert http.post("/api/v1/cancel", json={"jobs": []}).status_code == 422
        described = http.get("/api/v1/openapi.json").json()
        assert {"/api/v1/jobs", "/api/v1/jobs/{name}", "/api/v1/cancel", "/api/v1/end"} <= described["paths"].keys()


def test_a_job_arrives_after_one_that_ends_while_it_is_submitted(up: Served) -> None:
    script = up.folder / "exits.py"
    (quick,) = up.queue.submit(script, ["0"], options={"name": "quick"}).jobs
    behind: list[str] = []
    until_s = time.monotonic() + 30.0
    while up.queue.job(quick).ended_unix_s is None and time.monotonic() < until_s:  # the last ones come after its end
        behind += up.queue.submit(script, ["0"], options={"after": [quick]}).jobs
    assert {job.state for job in up.queue.wait(*behind)} == {"completed"}


@pytest.mark.nightly
def test_a_store_that_another_process_locks_ends_no_queue(up: Served) -> None:
    go = up.waits("copied")
    up.begun("copied")
    with contextlib.closing(sqlite3.connect(up.home / "queue.db", isolation_level=None)) as backup:
        backup.execute("BEGIN IMMEDIATE")
        go.touch()
        for _ in range(2):  # each waits for the lock, after a note of the end that waits, too
            with pytest.raises(UnfitEnvironment, match="database is locked"):
                up.queue.submit(str(up.folder / "exits.py"), ["0"])
        backup.execute("ROLLBACK")
    assert up.queue.wait("copied")[0].state == "completed"


def test_a_client_of_no_queue_says_so() -> None:
    from ecoshare.api.queue_client import Queue

    with pytest.raises(UnfitEnvironment, match="the queue 'never' is not up"):
        Queue("never").status()
    with pytest.raises(UsageError, match="expected up to 100 letters"):
        Queue("../up")


def test_down_asks_on_a_terminal_what_would_begin_again(up: Served) -> None:
    up.waits("left")
    up.begun("left")
    terminal, theirs = os.openpty()
    done = Started("down", "--queue", "test", cwd=up.folder, stdin=theirs, stderr=theirs)
    said = b""
    while b"End the queue" not in said:
        said += os.read(terminal, 4096)
    os.write(terminal, b"n\n")
    assert done.wait() == 1 and done.stdout == ""
    for end in (terminal, theirs):
        os.close(end)
    words = " ".join(said.decode().split())
    assert words.startswith(
        "1 running job begins again at the next `ecoshare up --resume --queue test`; `--drain` lets"
    )
    assert up.queue.job("left").state == "running"


def test_down_ends_it_at_last(up: Served) -> None:
    """The last test of the module: what has not ended waits for another `up`."""
    for _ in range(2):
        up.queue._ask("POST", "/end", {"how": "stop"})
    assert up.queue.job("left").state == "stopping"
    assert (up.run / "events.jsonl").read_text().count('"StopRequested"') == 1, "the second would kill the jobs"
    done = up.ask("down", "--now")
    waits = "1 job waits for `ecoshare up --resume --queue test`"
    assert done.returncode == 0 and done.stdout == f"the queue 'test' is down; {waits}\n"
    assert up.process.wait(20) == 0, up.process.stderr
    assert not (up.home / "socket").exists()
    check_replay(up.run)
    summary = json.loads((up.run / "summary.json").read_text())
    assert {job["name"]: job["state"] for job in summary["jobs"]}["left"] == "cancelled"
    refused = ecoshare("up", "--name", "test", cwd=up.folder)
    assert refused.returncode == 2 and "1 job of the queue 'test' has not ended" in refused.stderr
