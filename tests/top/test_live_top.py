"""`ecoshare top` with a real queue: what it shows, and what its keys do."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ecoshare.errors import UsageError
from ecoshare.top.live_top import Changed, Heard, LiveTop
from ecoshare.top.queue_watch import ENDED
from tests.queue.queues import TRAINS, Served, served, served_alone
from tests.top.seen import SIZES, Pilots, drive, lines, select, shows, text, until

HOSTILE = r"""
import os, sys, time
print("\x1b[31mred\x1b[0m [bold]not bold[/bold] \x1b]0;title\x07after \x1b[2J\x1b[H\x07\x9b31m", flush=True)
sys.stdout.buffer.write(b"bytes \xff\xfe.\na bar: 10 %\r 50 %\r100 %\r\n"); sys.stdout.flush()
print("no end yet", end="", flush=True)
print("complaint", file=sys.stderr, flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
print(" but now", flush=True)
"""

ENDS_IN = re.compile(r"\d m?J +(\d+ (s|min|h|d) ?)+")
"""Joules of a job, and the time until its end."""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("top")
    (folder / "hostile.py").write_text(HOSTILE)
    (folder / "trains.py").write_text(TRAINS)
    (folder / "fails.py").write_text("raise SystemExit(7)")
    (folder / "long.yaml").write_text("version: 1\njobs: [{name: trains, script: trains.py, iterations: 100000}]\n")
    with served_alone(folder) as found:
        yield found


@pytest.fixture(autouse=True)
def _nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """End the jobs of a test, which would stand in the way of those of the next one."""
    yield
    if "up" in request.fixturenames:
        queue = request.getfixturevalue("up").queue
        if left := [job.name for job in queue.status(0).jobs]:
            queue.cancel(*left, at_once=True)
            queue.wait(*left)


def top(up: Served) -> LiveTop:
    return LiveTop(up.queue, up.queue.status(ENDED))


def state(app: LiveTop, name: str) -> str:
    job = app.view.job(name) if app.view is not None else None
    return job.state if job is not None else ""


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("colour", ["colours", "plain"])
def test_it_shows_devices_jobs_turns_joules_and_ends(
    up: Served, size: tuple[int, int], colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if colour == "plain":
        monkeypatch.setenv("NO_COLOR", "1")
    trains = up.queue.submit(up.folder / "long.yaml").jobs[0]
    fails = up.queue.submit([up.folder / "fails.py"]).jobs[0]
    after = up.queue.submit([up.folder / "fails.py"], options={"after": [trains], "name": "x" * 60}).jobs[0]
    up.queue.wait(fails)

    async def look(pilot: Pilots) -> None:
        await shows(
            pilot, f"▶ {trains}", "▶ running", "failed (7)", f"after {trains}", "it/s", "ends in", " W ", "/100000"
        )
        await until(pilot, lambda: any(ENDS_IN.search(line) for line in lines(app) if line.split()[:1] == [trains]))
        shown = lines(app)
        assert len(shown) == size[1] and all(len(line) <= size[0] for line in shown)
        assert shown[0].startswith(" queue test   1 running, 1 waiting") and "policy fair" in shown[0]
        assert all(word in shown[-1] for word in ("cancel", "hold/release", "priority", "logs", "explain", "quit"))
        heading = next(place for place, line in enumerate(shown) if "it/s" in line)
        rows = [line.split()[0] for line in shown[heading + 1 :] if line]
        assert rows[0] == trains and "…" in rows[1] + rows[2] and fails in rows, "running, waiting, ended"
        assert ("waited" in text(app)) == (size[0] == 120), "a wide terminal has more columns"
        colours = {part.style.color for strip in app.screen._compositor.render_strips() for part in strip if part.style}
        named = {each.name for each in colours if each is not None} - {"default"}
        assert bool(named) == (colour == "colours"), named

    app = top(up)
    try:
        drive(app, size, look)
    finally:
        up.queue.cancel(trains, after, at_once=True)
        up.queue.wait(trains, after)


@pytest.mark.slow
def test_the_keys_hold_release_prioritise_and_cancel(up: Served) -> None:
    go = up.waits("first")
    up.begun("first")
    up.waits("second", "--after", "first")

    async def use(pilot: Pilots) -> None:
        await select(pilot, "second")
        await pilot.press("h")
        await shows(pilot, "second is held")
        assert up.queue.job("second").state == "held"
        await until(pilot, lambda: state(app, "second") == "held")
        await pilot.press("h")
        await shows(pilot, "second is released")
        assert up.queue.job("second").state == "arriving"
        await pilot.press("plus", "plus", "minus", "plus")
        await until(pilot, lambda: up.queue.job("second").priority == 2)
        await select(pilot, "first")
        await pilot.press("h")
        await shows(pilot, "first is running: only a job that waits for a place can be held")
        await pilot.press("c")
        await shows(pilot, "cancel first?", "kill it at once")
        await pilot.press("n")
        await until(pilot, lambda: "cancel first?" not in text(app))
        assert up.queue.job("first").state == "running"
        await select(pilot, "second")
        await pilot.press("c", "y")
        await shows(pilot, "second is cancelled")
        assert up.queue.wait("second")[0].state == "cancelled"
        await select(pilot, "first")
        await pilot.press("c", "k")
        await shows(pilot, "first is killed")
        assert up.queue.wait("first")[0].exit_code == 137
        await until(pilot, lambda: state(app, "first") == "cancelled")
        await pilot.press("c")
        await shows(pilot, "first has ended already")
        await pilot.press("r")
        await shows(pilot, "first runs again")
        assert up.queue.job("first").attempts >= 1 and not up.queue.job("first").has_ended

    app = top(up)
    drive(app, SIZES[0], use)
    assert not go.exists()


@pytest.mark.nightly
@pytest.mark.parametrize("size", SIZES)
def test_the_output_is_followed_and_reaches_no_terminal_as_it_is(up: Served, size: tuple[int, int]) -> None:
    go = up.folder / f"go-hostile-{size[0]}"
    (name,) = up.queue.submit([up.folder / "hostile.py"], [str(go)], options={"name": f"hostile-{size[0]}"}).jobs

    async def use(pilot: Pilots) -> None:
        await select(pilot, name)
        await pilot.press("l")
        await shows(pilot, "stdout", "red [bold]not bold[/bold] after", "bytes ��.", "100 %", "no end yet")
        shown = text(app)
        assert shown.isprintable() or all(char.isprintable() or char == "\n" for char in shown)
        assert "50 %" not in shown and "title" not in shown and "\\x07" in shown
        go.touch()
        await shows(pilot, "no end yet but now", "(the end)")
        await pilot.press("s")
        await shows(pilot, "stderr", "complaint")
        await pilot.press("q")
        await shows(pilot, "queue test")
        await pilot.press("l", "s", "escape", "enter")
        await shows(pilot, "stdout", "no end yet but now")

    app = top(up)
    drive(app, size, use)


@pytest.mark.slow
def test_it_explains_a_job_of_a_queue_that_goes_on_and_lists_the_keys(up: Served) -> None:
    go = up.waits("told")
    up.begun("told")

    async def use(pilot: Pilots) -> None:
        await select(pilot, "told")
        await pilot.press("e")
        await shows(pilot, "explain told", "told (class", "running")
        await pilot.press("q", "question_mark")
        await shows(pilot, "keys and words", "cancel the selected job", "slowdown")
        await pilot.press("escape")
        await shows(pilot, "queue test")

    app = top(up)
    drive(app, SIZES[0], use)
    go.touch()
    up.queue.wait("told")


@pytest.mark.nightly
def test_a_sweep_shows_the_output_of_a_trial(up: Served) -> None:
    grid = {"grid": {"go": [str(up.folder / "go-sweep")]}}
    job = {"name": "sweep", "script": str(up.folder / "hostile.py"), "args": ["{go}"], "sweep": grid}
    (sweep,) = up.queue.submit({"version": 1, "jobs": [job]}).jobs

    async def use(pilot: Pilots) -> None:
        await select(pilot, sweep)
        await until(pilot, lambda: app.view is not None and app.view.trial_of(sweep))
        await pilot.press("l")
        await shows(pilot, f"{sweep}.0000   stdout", "no end yet")
        await pilot.press("q")
        (up.folder / "go-sweep").touch()
        await until(pilot, lambda: app.view is not None and not app.view.trial_of(sweep))
        await pilot.press("l")
        await shows(pilot, f"{sweep} is a sweep, and none of its trials is in a lane now")

    app = top(up)
    drive(app, SIZES[0], use)


@pytest.mark.nightly
def test_ctrl_c_and_q_quit_from_every_screen(up: Served) -> None:
    up.queue.wait(*up.queue.submit([up.folder / "fails.py"]).jobs)

    for words in ("q", "ctrl+c", "l ctrl+c", "e ctrl+c", "question_mark ctrl+c", "question_mark q q"):
        app = top(up)

        async def use(pilot: Pilots, words: str = words) -> None:
            await pilot.press(*words.split())

        drive(app, SIZES[0], use)
        assert not app.is_running and app.return_code == 0, words


@pytest.mark.nightly
def test_a_queue_that_stands_still_or_is_down_is_told_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ECOSHARE_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("ECOSHARE_QUEUE", raising=False)
    with served(tmp_path) as up:
        up.waits("lasts")
        up.begun("lasts")
        app = top(up)

        async def use(pilot: Pilots) -> None:
            await shows(pilot, "lasts", "running")
            server = up.queue.status(0).process
            os.kill(server, signal.SIGSTOP)
            await shows(pilot, "the queue has not answered for", "lasts")
            os.kill(server, signal.SIGCONT)
            await shows(pilot, "policy fair")
            up.kill()
            await shows(pilot, "the queue 'test' is not up", "lasts")
            with served(tmp_path, "--resume") as again:
                await until(pilot, lambda: not app.trouble and state(app, "lasts") in ("starting", "running"))
                await shows(pilot, "policy fair", "lasts")
                again.queue.cancel("lasts", at_once=True)
                again.queue.wait("lasts")

        drive(app, SIZES[0], use)


@pytest.mark.slow
def test_an_answer_that_comes_when_the_app_has_closed_is_dropped(up: Served) -> None:
    app = top(up)

    async def use(pilot: Pilots) -> None:
        await shows(pilot, "queue test")

    drive(app, SIZES[0], use)
    app.on_heard(Heard(up.queue.status(ENDED)))
    app.on_changed(Changed("", UsageError("it was refused")))


@pytest.mark.slow
@pytest.mark.parametrize("gone", ["#head", "#message", "JobsTable"])
def test_an_answer_that_comes_while_the_app_closes_is_dropped(up: Served, gone: str) -> None:
    """The widgets of a screen that closes go one after the other."""
    app = top(up)

    async def use(pilot: Pilots) -> None:
        await shows(pilot, "queue test")
        await app.query_one(gone).remove()
        app.on_heard(Heard(up.queue.status(ENDED)))
        app.on_changed(Changed("", UsageError("it was refused")))

    drive(app, SIZES[0], use)


@pytest.mark.slow
def test_a_refusal_is_one_line(up: Served) -> None:
    app = top(up)

    async def use(pilot: Pilots) -> None:
        await until(pilot, lambda: bool(app.query("#head")))
        app.tell_error(UsageError("no " + "\x1b[31m" * 3, "a hint\nof two lines"))
        await pilot.pause()
        (told,) = [line for line in lines(app) if line.startswith(" no ")]
        assert "\x1b" not in told and "a hint" in told

    drive(app, SIZES[0], use)
