"""Output of a search: its lines, its end, its chart."""

from __future__ import annotations

import dataclasses
import html
import io
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from matplotlib.text import Text
from rich.console import Console

from ecoshare.errors import UsageError
from ecoshare.knowledge.advisers.measured_table import read
from ecoshare.knowledge.advisers.search_replay import SearchReplay
from ecoshare.knowledge.advisers.setting_search import SettingScore
from ecoshare.knowledge.tuning_store import BestStatic, KnobRange, MeasurementRecord, TunedDevice, TuningResult
from ecoshare.reporting.charts.frontier_chart import Ground, frontier
from ecoshare.reporting.charts.search_picture import check_picture, ground_of, picture
from ecoshare.reporting.search_text import TrialLines, print_result, replayed
from tests.knowledge.invented import COLUMNS, write_table

KNOBS = (
    KnobRange(name="gpu_clock", unit="MHz", count=4, lowest=900.0, highest=1980.0),
    KnobRange(name="power_limit", unit="W", count=3, lowest=200.0, highest=700.0),
)


def trial(number: int, energy: float | None, slow: float | None, **changes: Any) -> MeasurementRecord:
    fields: dict[str, Any] = {
        "number": number,
        "requested": {"gpu_clock": 1980.0 - 10.0 * number, "power_limit": 700.0},
        "status": "measured",
        "power_w": 300.0,
        "times": {"a": 0.1},
        "energy": energy,
        "interference": {} if slow is None else {"a": slow, "b": slow - 0.05},
        "feasible": None if slow is None else slow <= 1.1,
        "best": False,
    }
    return MeasurementRecord(**{**fields, **changes})


TRIALS = (
    trial(1, 1.0, 1.0, best=True, achieved={"gpu_clock": 1965.0, "power_limit": None}),
    trial(2, 0.8, 1.3, reasons=("power cap", "hot")),
    trial(3, None, 1.5, status="censored", feasible=False),
    trial(4, None, None, status="contaminated", note="another process"),
    trial(5, 0.9, 1.05, best=True),
    trial(6, None, None, status="failed", requested={"gpu_clock": "unlocked", "power_limit": 200.0}),
)


def tuned(**changes: Any) -> TuningResult:
    fields: dict[str, Any] = {
        "objective": "energy",
        "tuning_limit": 1.1,
        "knobs": KNOBS,
        "packing": (("a",), ("b",)),
        "device": TunedDevice(model="NVIDIA H200", uuid=None),
        "default": TRIALS[0].requested,
        "best": TRIALS[4].requested,
        "trials": TRIALS,
        "saved_against_default": 0.1,
        "best_static": BestStatic(setting={"gpu_clock": 1500.0, "power_limit": 400.0}, energy=0.95, source="a sweep"),
        "violations": 2,
        "search_energy_j": 12345.0,
        "made_utc": "2026-01-01T00:00:00+00:00",
    }
    return TuningResult(**{**fields, **changes})


def shown(width: int = 100, *, achieved: bool = True, verdict: Any = None, of: TuningResult | None = None) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    of = of or tuned()
    lines = TrialLines(of.knobs, console, achieved=achieved)
    lines.heading()
    for each in of.trials:
        lines.line(each)
    print_result(of, "the budget is used up", console, verdict)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_trial_is_one_line_with_all_that_is_asked_of_it() -> None:
    lines = shown().splitlines()
    flat = [" ".join(line.split()) for line in lines]
    assert flat[0] == "no. gpu_clock achieved power_limit achieved energy interference limit best"
    assert flat[1] == "1 1970 MHz 1965 MHz 700 W - 1.000 1.000 a kept *"
    assert flat[2] == "2 1960 MHz - 700 W - 0.800 1.300 a broken power cap, hot"
    assert lines[3].rstrip().endswith("broken     stopped early") and " - " in lines[3]
    assert lines[4].rstrip().endswith("disturbed, another process")
    assert "unlocked" in lines[6] and lines[6].rstrip().endswith("failed")
    columns = {line.rindex(word) for line, word in zip(lines[:3], ("limit", "kept", "broken"), strict=True)}
    assert len(columns) == 1, "the verdicts are not below each other"


def test_the_end_says_what_was_chosen_what_it_saves_and_what_it_cost() -> None:
    text = " ".join(shown().split())
    assert "6 measurements; the budget is used up" in text
    assert "default 1970 MHz 700 W 1.000 1.000 a" in text
    assert "chosen 1930 MHz 700 W 0.900 1.050 a" in text
    assert "best static 1500 MHz 400 W 0.950 -" in text and "best static: a sweep." in text
    assert "saves 10 % of the default's energy at 5 % more time of the slowest job." in text
    assert "search: 6 measurements, 12.3 kJ; 2 broke the limit (objective energy," in text


def test_nothing_feasible_is_an_answer() -> None:
    text = shown(of=tuned(best=None, saved_against_default=None, best_static=None))
    assert "chosen" in text and "nothing feasible was found: the default stays" in text


def test_hostile_words_stay_words_and_all_encodings_do() -> None:
    evil = trial(1, 1.0, 1.0, note="[red]x[/] \x1b[31m \u202e", reasons=("line\nbreak",))
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console = Console(file=stream, width=60, highlight=False)
    TrialLines(KNOBS, console, achieved=False).line(evil)
    print_result(tuned(trials=(evil,)), "x", console)
    stream.flush()
    text = stream.buffer.getvalue().decode()
    assert "[red]x[/]" in text and "\x1b" not in text


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> SearchReplay:
    path = write_table(tmp_path_factory.mktemp("table") / "t.csv", {"a": 0.3, "b": 0.6})
    table = read(path, [COLUMNS], ["network=b"])
    replay = SearchReplay(table, {"limit": 250.0, "batch": 64.0}, noise=0.02)
    list(replay.measurements())
    return replay


@pytest.mark.nightly
def test_a_replay_ends_with_the_numbers_of_the_table(replay: SearchReplay) -> None:
    verdict = replay.verdict()
    text = shown(achieved=False, of=replayed(replay, verdict), verdict=verdict)
    rows = {line.split("  ")[0]: line.split() for line in text.splitlines() if line}
    assert f"{verdict.optimum_judged.energy:.3f}" in rows["best of table"]
    assert verdict.static is not None and f"{verdict.static.here.energy:.3f}" in rows["best static"]
    assert "best on average of 1 other workload in the table" in text
    assert f"{verdict.violations} broke the limit" in text


@pytest.mark.nightly
@pytest.mark.parametrize("noise", [0.0, 0.02, 0.05])
def test_the_text_the_chart_and_the_page_of_a_replay_name_one_saving(tmp_path: Path, noise: float) -> None:
    """The end shows the table's own numbers, and beside them the noisy number of the measurements if it differs."""
    table = read(write_table(tmp_path / "t.csv", {"a": 0.3, "b": 0.6}), [COLUMNS], ["network=b"])
    replay = SearchReplay(table, {"limit": 250.0, "batch": 64.0}, noise=noise, seed=4)
    list(replay.measurements())
    verdict = replay.verdict()
    made, ground = replayed(replay, verdict), ground_of(replay, verdict)
    assert verdict.saved is not None and made.saved_against_default is not None
    true, measured = (f"{100 * part:.3g} %" for part in (verdict.saved, made.saved_against_default))
    text = shown(achieved=False, of=made, verdict=verdict)
    page = html.unescape(picture(".html", made, "t.csv", ground).decode())
    assert f"saves {true} of the default's energy" in text and f"saves {true} of the default's energy" in page
    assert f"chosen: {true} less energy" in "\n".join(texts(picture(".svg", made, "t.csv", ground).decode()))
    for shown_to_user in (text, page):
        assert (f"({measured} by its measurements, noise included)" in shown_to_user) == (noise > 0.0)
    assert replay.verdict().as_dict()["saved_against_default"] == verdict.saved


def test_the_chart_of_a_live_search_has_the_mean_of_all_trials_of_a_setting() -> None:
    """The text shows the mean, too: the last measurement alone would give 20 % here."""
    again = trial(7, 0.8, 1.07, requested=TRIALS[4].requested)
    of = tuned(trials=(*TRIALS, again), saved_against_default=0.15)
    assert "saves 15 % of the default's energy at 6 % more time" in shown(of=of)
    assert "chosen: 15 % less energy, 6 % slower" in frontier(of, "live").alt


def test_noise_that_hid_a_broken_limit_is_told(replay: SearchReplay) -> None:
    verdict = replay.verdict()
    over = dataclasses.replace(
        verdict, regret=None, chosen_judged=SettingScore(0.5, {"epoch_s": 1.155}, objective=0.5, feasible=False)
    )
    text = shown(achieved=False, of=replayed(replay, over), verdict=over)
    assert "without the noise the chosen setting is 5 % over the limit." in text
    assert "saves 50 % of the default's energy at 15.5 % more time" in text


def test_a_replay_is_kept_in_the_form_of_any_result(replay: SearchReplay) -> None:
    made = replayed(replay, replay.verdict())
    assert TuningResult.model_validate_json(made.model_dump_json()) == made
    assert made.search_energy_j == pytest.approx(sum(each.joules or 0.0 for each in made.trials))
    assert made.trials[0].best and made.trials[-1].number == len(made.trials)


@pytest.mark.nightly
def test_the_picture_shows_every_trial_and_the_table(replay: SearchReplay) -> None:
    verdict = replay.verdict()
    made = replayed(replay, verdict)
    drawing = picture(".svg", made, "t.csv", ground_of(replay, verdict))
    read = texts(drawing.decode())
    for each in made.trials:
        assert str(each.number) in read
    for words in ("tuning limit 1.1", "setting of the table", "frontier of the table", "best of the table", "chosen"):
        assert words in read
    assert drawing == picture(".svg", made, "t.csv", ground_of(replay, verdict)), "equal searches, other pictures"


def texts(drawing: str) -> list[str]:
    """Text in an SVG."""
    return ["".join(each.itertext()) for each in ElementTree.fromstring(drawing).iter() if each.tag.endswith("}text")]


def test_a_live_search_is_drawn_with_what_was_measured() -> None:
    chart = frontier(tuned(), "resnet + vae")
    assert chart.figure is not None and "Measurements without an energy, which are not drawn: 3." in chart.caption
    assert "10 % less energy, 5 % slower" in chart.alt


@pytest.mark.slow
def test_no_number_lies_on_another() -> None:
    crowd = tuple(trial(number, 0.9 + 0.001 * (number % 3), 1.05) for number in range(1, 21))
    chart = frontier(tuned(trials=crowd, best=crowd[3].requested, default=crowd[0].requested), "crowd")
    assert chart.figure is not None
    chart.figure.draw_without_rendering()
    numbers = [each for each in chart.figure.axes[0].texts if each.get_text().isdigit()]
    assert len(numbers) == 20
    boxes = [Text.get_window_extent(each) for each in numbers]  # the extent of an annotation includes its line
    for place, one in enumerate(boxes):
        for other in boxes[:place]:
            apart = math.hypot(one.x0 + one.x1 - other.x0 - other.x1, one.y0 + one.y1 - other.y0 - other.y1) / 2
            assert apart > 11.0 * chart.figure.dpi / 72.0, "circles of 12 points lie on each other"


def test_what_is_far_away_is_named_at_the_edge() -> None:
    far = tuned(trials=(*TRIALS[:2], trial(7, 9.0, 40.0)))
    read = texts(picture(".svg", far, "far").decode())
    assert "at 40.00, 9.00" in read and "7" in read


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"trials": (), "best": None},
        {"trials": (TRIALS[3],), "best": None},
        {"best": None, "saved_against_default": None},
        {"trials": (TRIALS[0],), "best": TRIALS[0].requested},
    ],
)
def test_searches_that_came_to_little_are_drawn_or_said(changes: dict[str, Any]) -> None:
    drawing = picture(".html", tuned(**changes), "x").decode()
    assert "<h1>x</h1>" in drawing
    assert ("nothing was measured" in drawing) == (not any(each.energy for each in tuned(**changes).trials))


def test_a_page_is_whole_in_itself_and_hostile_names_stay_text() -> None:
    page = picture(".html", tuned(), "<script>&\"'$x$").decode()
    assert "&lt;script&gt;" in page and "<script>" not in page
    assert page.count("<tr>") == 1 + len(TRIALS) and "stopped early" in page
    named = re.sub(r'xmlns(:\w+)?="[^"]*"', "", page)
    assert not re.search(r"//\w|href=\"[^#]", named), "something elsewhere is referred to"


@pytest.mark.slow
def test_a_png_is_one() -> None:
    ground = Ground(settings=[(1.0, 1.0), (1.2, 0.7)], optimum=(1.0, 1.0))
    assert picture(".png", tuned(), "x", ground).startswith(b"\x89PNG")


def test_names_of_pictures_are_checked_before_the_search(tmp_path: Path) -> None:
    check_picture(tmp_path / "a.SVG")
    for path, said in ((tmp_path / "a.jpg", "ends in .svg, .html or .png"), (tmp_path / "no" / "a.svg", "no folder")):
        with pytest.raises(UsageError, match=said):
            check_picture(path)
