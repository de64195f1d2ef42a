"""`ecoshare top RUN`: a run is played, and keys move in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoshare.record.run_folder import RunFolder
from ecoshare.top.played_top import PlayedTop
from ecoshare.top.recorded_run import RecordedRun
from tests.runtime.running import SLEEPS, job_file, run, start
from tests.top.seen import SIZES, Pilots, drive, lines, select, shows, text, until
from tests.warm import wait_for


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("played")
    (folder / "sleeps.py").write_text(SLEEPS)
    done = run(folder, *({"name": name, "script": "sleeps.py", "args": [80]} for name in ("a", "b")))
    return RunFolder.open(done.folder)


@pytest.mark.nightly
@pytest.mark.parametrize("size", SIZES)
def test_keys_stop_the_time_and_move_in_it(recorded: RunFolder, size: tuple[int, int]) -> None:
    played = RecordedRun(recorded)
    app = PlayedTop(played, 1 / 64, played.end_s / 2)

    async def use(pilot: Pilots) -> None:
        await pilot.press("space")
        at_s = app.at_s
        await shows(pilot, f"run {recorded.path.name}", "❚❚", "x0.015625", "running", "▶")
        shown = lines(app)
        assert all(len(line) <= size[0] for line in shown) and "policy fair" in shown[0]
        await pilot.pause(0.6)
        assert app.at_s == at_s, "it is paused"
        await pilot.press("left")
        assert app.at_s == max(0.0, at_s - 10.0)
        await pilot.press("right", "end")
        assert app.at_s == played.end_s
        await shows(pilot, "completed")
        await pilot.press("home")
        assert app.at_s == 0.0
        await pilot.press("plus", "plus", "minus")
        assert app.speed == 1 / 32
        await pilot.press("space", *["plus"] * 16)
        await until(pilot, lambda: app.at_s == played.end_s)
        await shows(pilot, "■", "completed")
        await select(pilot, "b")
        await pilot.press("l")
        (result,) = (recorded.job("b") / "stdout.log").read_text().split()
        await shows(pilot, "b   stdout   (the end)", result)
        await pilot.press("q", "e")
        await shows(pilot, "b (class", "completed")
        await pilot.press("q", "question_mark")
        await shows(pilot, "twice and half the speed")
        assert "hold" not in text(app)

    drive(app, size, use)


@pytest.mark.nightly
def test_a_run_in_progress_goes_on_at_the_end_of_its_record(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text(SLEEPS)
    going = start(job_file(tmp_path, {"name": "a", "script": "sleeps.py", "args": [100000]}))
    folder = tmp_path / "ecoshare-runs" / "latest"
    wait_for(lambda: (folder / "samples.jsonl").exists(), otherwise=lambda: going.stderr)
    played = RecordedRun(RunFolder.open(folder))
    assert played.goes_on
    app = PlayedTop(played, 1000.0, 0.0)

    async def use(pilot: Pilots) -> None:
        await shows(pilot, "so far", "a ")
        await until(pilot, lambda: app.at_s > played.end_s + 1.0)
        going.send_signal(2)
        await until(pilot, lambda: "cancelled" in text(app) and "so far" not in text(app))

    drive(app, SIZES[0], use)
    going.wait(60)
