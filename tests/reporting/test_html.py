"""The HTML report, parsed like in a browser."""

from __future__ import annotations

import math
import re
import time
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest

from ecoshare.lane.trace import Kind, Mark
from ecoshare.record.logs_and_metrics import JobCurve, JobOutput, LogEnd, MetricCurves
from ecoshare.record.results.baseline import Baseline
from ecoshare.record.results.job_summary import JobSummary
from ecoshare.record.results.run_summary import DeviceSummary, RunSummary
from ecoshare.record.run_data import RunData
from ecoshare.reporting import charts
from ecoshare.reporting.charts.run_charts import Curve
from ecoshare.reporting.html import energy_words, html
from ecoshare.reporting.time_columns import part_held
from tests.reporting.made_run import HOSTILE, run

VOID = {"meta", "link", "br", "img", "input", "hr", "col"}
KEYS = ["jct", "energy", "power", "memory", "timeline", "clocks"]


class Page(HTMLParser):
    """Tags, attributes and text of a page; a tag that another closes is an error."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(content)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip() and "style" not in self._open:
            self.text.append(data.strip())

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def without(data: RunData, **fields: Any) -> RunData:
    return replace(data, **fields)


def changed(data: RunData, **fields: Any) -> RunData:
    """The run with another summary."""
    return replace(data, summary=replace(data.summary, **fields))


@pytest.fixture(scope="module")
def data() -> RunData:
    return run()


@pytest.fixture(scope="module")
def content(data: RunData) -> str:
    return html(data)


@pytest.fixture(scope="module")
def page(content: str) -> Page:
    return Page(content)


@pytest.fixture(scope="module")
def whole() -> Page:
    """Run with known energy throughout."""
    return Page(html(run(gap=False)))


@pytest.mark.slow
def test_the_report_has_all_its_parts(page: Page) -> None:
    assert [each["id"] for each in page.named("section")] == [
        "lanes",
        "jobs",
        "errors",
        *KEYS,
        "decisions",
        "notes",
        "settings",
        "machine",
    ]
    assert "ecoshare: ecoshare-runs/20261121-053012-jobs" in page.text
    assert len(page.named("svg")) == len(KEYS) + 2


@pytest.mark.slow
def test_it_requests_nothing_from_elsewhere(content: str, page: Page) -> None:
    assert not re.search(r"(https?:)?//[a-z]", content), "an address of something elsewhere"
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in page.tags}
    for tag, attributes in page.tags:
        for name in ("src", "href", "data", "action"):
            assert (attributes.get(name) or "#").startswith("#"), f"{tag} {name}={attributes[name]}"
    assert not re.search(r"@import|url\((?!#)", content)


def test_the_packings_are_told_as_expected_as_measured_and_what_became_of_them(page: Page) -> None:
    begin = page.text.index("Decisions")
    told = page.text[begin : page.text.index("Notes")]
    rows = told[told.index("outcome") + 1 :]
    assert rows[:6] == ["job0", "5 s", "not known", "alone", "alone", "not foreseen"]
    pair = rows[rows.index("51.2 kJ measured") - 2 :]
    assert pair[:7] == ["job0", "5 s", "51.2 kJ measured", "0.93", "0.71", "310 W", "306 W measured"]
    assert pair[7:11] == ["7", "gpu_clock 1410", "87 % of that at the default", "undone"]
    assert pair[11:14] == ["train-resnet50.lr01", "0.88", "0.64"], "the second class has no line of its own"
    (chart,) = [each for each in page.named("svg") if "Speeds beside each other" in (each["aria-label"] or "")]
    assert "class1 beside class0: expected 0.88, measured 0.64" in (chart["aria-label"] or "")


@pytest.mark.nightly
def test_classes_of_one_script_are_told_apart_by_their_jobs(data: RunData) -> None:
    names = {f"class{index}": f"train-{index:012x}" for index in range(3)}
    jobs = tuple(replace(job, job_class=names[job.job_class]) for job in data.summary.jobs)
    packing = data.summary.packings[1]
    assert packing.predicted is not None and packing.measured is not None
    predicted, measured = (
        replace(each, speeds={names[name]: speed for name, speed in each.speeds.items()})
        for each in (packing.predicted, packing.measured)
    )
    classes = tuple(tuple(names[each] for each in lane) for lane in packing.classes)
    packing = replace(packing, predicted=predicted, measured=measured, classes=classes)
    page = Page(html(changed(data, jobs=jobs, packings=(packing,))))
    assert any("job0 beside train-resnet50.lr01: expected" in (svg["aria-label"] or "") for svg in page.named("svg"))


@pytest.mark.slow
def test_the_top_says_what_ran_how_long_on_what_joules_and_what_sharing_saved(whole: Page) -> None:
    text = whole.text
    top = text[: text.index("All jobs")]
    assert top[1:3] == ["ecoshare-runs/20261121-053012-jobs", "failed"]
    assert "4 jobs shared cuda:0 (NVIDIA H200) in 1 lane, policy fair, objective energy." in top
    assert any(words.startswith("Sharing saved") for words in top)
    assert {"makespan", "mean JCT", "energy", "Lanes"} <= set(top)
    assert any(re.search(r"\d k?J.* measured", words) for words in top)


@pytest.mark.slow
def test_a_comparison_that_is_missing_leaves_no_gap(data: RunData) -> None:
    page = Page(html(changed(data, baseline=Baseline())))
    assert sum(attributes.get("class") == "sharing" for attributes in page.named("p")) <= 1


@pytest.mark.nightly
def test_what_stands_between_backticks_is_code(data: RunData) -> None:
    page = Page(html(changed(data, notes=("`a<b` is not `c`",))))
    assert page.text[page.text.index("Notes") + 1 :][:3] == ["a<b", "is not", "c"]


@pytest.mark.slow
def test_joules_are_compared_only_where_nearly_all_are_known(page: Page, whole: Page) -> None:
    assert not any(text.startswith("sharing ") for text in page.text), "7 % of the time is not known: no saving is"
    assert any("too little of the run's energy is known" in text for text in page.text)
    assert any(text.startswith("Sharing saved ") and "(17 % ± " in text for text in whole.text)


@pytest.mark.slow
def test_the_page_opens_with_what_is_known_and_then_says_what_is_not_and_why(data: RunData) -> None:
    reasons = tuple(f"class{number} has no profile" for number in range(20))
    page = Page(html(changed(data, baseline=Baseline(unknown=reasons), makespan_s=None)))
    told = page.text[: page.text.index("Lanes")]
    figures, unknown = told.index("energy"), told.index("What sharing saved is not known:")
    assert figures < told.index("mean JCT") < told.index("jobs") < unknown
    assert "3 of 4 completed" in told and "1 failed" in told
    assert not any("not known" in words for words in told[:figures]), "the page opens with what is not known"
    assert told[unknown + 1] == reasons[0] and told[-1] == "and 12 more, which summary.json has"
    assert "makespan" not in told and "The makespan is not known: no job has finished." in told


def test_what_sharing_saved_stands_between_the_figures_and_what_is_not_known(whole: Page) -> None:
    told = whole.text[: whole.text.index("Lanes")]
    saved = next(place for place, words in enumerate(told) if words.startswith("Sharing saved"))
    assert told.index("jobs") < saved
    assert not any(words.startswith("What sharing saved") for words in told)


@pytest.mark.slow
def test_a_failed_job_is_shown_with_the_end_of_its_log(data: RunData) -> None:
    (failed,) = [job.name for job in data.summary.jobs if job.error]
    ends = [LogEnd("stderr.log", ("<b>loading</b>", HOSTILE), True), LogEnd("stdout.log", ("step 29",), False)]
    page = Page(html(without(data, output=JobOutput({failed: ends}))))
    errors = page.text[page.text.index("What did not complete, and why") :]
    assert errors[1:3] == [failed, "failed, exit code 1"]
    assert errors[4:8] == [
        f"All of stderr.log of {failed}",
        f"<b>loading</b>\n{HOSTILE}",
        f"End of stdout.log of {failed}",
        "step 29",
    ]
    assert not page.named("script") and not page.named("b")


@pytest.mark.slow
def test_metrics_are_curves_one_chart_each_with_a_line_for_each_job(data: RunData) -> None:
    names = [job.name for job in data.summary.jobs]
    hostile = "<script>$x^2$ & '"
    metrics = (
        MetricCurves("loss", tuple(JobCurve(name, (1, 2), (2.0, 0.5), 2) for name in names), 7),
        MetricCurves(hostile, (JobCurve(names[0], (1, 3, 900), (1.0, math.nan, 3.0), 900, is_cut=True),), 0),
        MetricCurves("f1", (JobCurve(names[0], (1,), (0.25,), 1),), 0),
        MetricCurves("nothing", (JobCurve(names[0], (1, 2), (math.inf, math.nan), 2),), 0),
    )
    page = Page(html(without(data, output=JobOutput(metrics=metrics, more_metrics=3))))
    told = page.text[page.text.index("Metrics") : page.text.index("Job completion times")]
    labels = [svg["aria-label"] or "" for svg in page.named("svg")]
    assert f"loss. Last values: {'; '.join(f'{name} 0.5' for name in names)}." in labels
    assert any("The lines are 4 of 11 jobs with this metric" in words for words in told)
    assert any("3 metrics that fewer jobs have are left out" in words for words in told)
    assert hostile in told and not page.named("script")
    (caption,) = [words for words in told if words.startswith("Very long lines keep each n-th value")]
    assert "has a gap" in caption and "1 job has reported more than is read here" in caption
    assert f"f1, one value of each job: {names[0]} 0.25." in told
    assert "nothing: Not known: no value is a finite number." in told


def test_what_a_job_prints_is_text(page: Page) -> None:
    assert HOSTILE in page.text, "the error is not shown as it was"
    assert not page.named("script")


@pytest.mark.slow
def test_a_hostile_name_is_text_in_tables_and_charts(data: RunData) -> None:
    name = '"><script>alert(2)</script>$\\frac{1}$'
    jobs = tuple(replace(job, name=name if job.name == "job0" else job.name) for job in data.summary.jobs)
    hostile = Page(html(changed(data, jobs=jobs, run=name, notes=(name,))))
    assert not hostile.named("script")
    assert sum(name in text for text in hostile.text) >= 5, "title, heading, table, note and charts should show it"


def test_charts_have_texts_for_screen_readers(page: Page) -> None:
    for svg in page.named("svg"):
        assert svg["role"] == "img" and len(svg["aria-label"] or "") > 40
    ids = [each["id"] for _, each in page.tags if "id" in each]
    assert len(ids) == len(set(ids)), "charts share ids: one would be drawn with the patterns of another"
    used = set(re.findall(r"url\(#([^)]+)\)", str(page.tags))) | {(a.get("href") or "#")[1:] for _, a in page.tags} - {
        ""
    }
    assert used and used <= set(ids), "a reference to what is not there"


def test_charts_take_the_colours_of_the_reader(content: str) -> None:
    for marker in (charts.INK, charts.GRID, charts.GROUND):
        assert marker not in content
    assert "prefers-color-scheme: dark" in content and "@media print" in content
    assert not re.search(r'(?:fill|stroke)="(?:var|currentColor)', content), "a variable has no effect there"


def test_joules_always_stand_with_their_source(page: Page) -> None:
    sources = re.compile("measured|attributed|modelled|predicted")
    svgs = {text for text in page.text if re.fullmatch(r"[\d.]+ (m|k)?J( ± [\d.]+ (m|k)?J)?", text)}
    assert len(svgs) == 5, "bars of four jobs and the idle part"
    assert any(re.fullmatch("kJ, attributed", text) for text in page.text), "the axis of those bars has no source"
    for text in page.text:
        if re.search(r"\d (m|k)?(J|Wh)\b", text) and text not in svgs:
            assert sources.search(text), text


@pytest.mark.parametrize(
    ("source", "expected", "absent"),
    [
        ("measured", ["GPU were measured", "attributed", "every 100 ms", "93.3 % of the time"], "modelled"),
        ("modelled", ["processors were modelled", "at every reading", "the driver did not answer"], "measured"),
    ],
)
def test_the_header_says_how_joules_are_known(source: str, expected: list[str], absent: str) -> None:
    words = " ".join(energy_words(run(source=source)))
    assert all(each in words for each in expected), words
    assert absent not in words


def test_full_coverage_is_said_and_nearly_full_is_not() -> None:
    whole = run(gap=False)
    assert "100 % of the time is covered." in energy_words(whole)
    assert whole.summary.energy is not None
    nearly = " ".join(energy_words(changed(whole, energy=replace(whole.summary.energy, covered=0.99999))))
    assert "99.9 %" in nearly and "100 %" not in nearly


def test_what_is_not_known_is_never_zero(data: RunData) -> None:
    summary = RunSummary("r", "energy", "fair", (DeviceSummary({"name": "cpu"}),), 1, "running")
    page = Page(html(RunData(replace(summary, jobs=(JobSummary("j", "c", "queued"),)))))
    assert not page.named("svg")
    assert "The energy of this run is not known." in page.text
    assert "Nothing is known of which jobs ran beside each other." in page.text
    assert page.text.count("not known") >= 15
    assert not any(re.match(r"0(\.0+)? ", text) for text in page.text)


def test_secrets_of_the_run_stay_out(data: RunData, content: str) -> None:
    assert data.environment["token"] not in content


@pytest.mark.nightly
@pytest.mark.parametrize("jobs", [1, *(pytest.param(each, marks=pytest.mark.nightly) for each in (40, 60))])
def test_any_number_of_jobs_can_be_read(jobs: int) -> None:
    data = run(jobs=jobs, lanes=1 if jobs == 1 else 2, failing=False, period_s=20.0)
    with charts.settings("x"):
        found = {chart.key: chart for chart in charts.charts(data)}
        for chart in found.values():
            assert chart.figure is not None
            chart.figure.savefig("/dev/null", format="svg")
            box = chart.figure.axes[0].get_position()
            assert box.width > 0.5 and box.height * chart.figure.get_figheight() > 0.15, f"{chart.key} has no room left"
    rows = jobs if jobs <= 40 else 16
    assert len(found["jct"].tips) == rows
    assert ("other jobs" in found["timeline"].alt) == (jobs > 40)


def test_a_job_has_one_colour_in_all_charts(data: RunData) -> None:
    with charts.settings("x"):
        found = {chart.key: chart for chart in charts.charts(data)}
    bars = {key: [p.get_facecolor()[:3] for p in found[key].figure.axes[0].patches] for key in ("jct", "energy")}  # type: ignore[union-attr]
    assert bars["jct"][1::2] == bars["energy"][:4], "queue parts are the even ones"
    assert len(set(bars["energy"][:4])) == 4
    stacked = [tuple(each.get_facecolor()[0][:3]) for each in found["power"].figure.axes[0].collections]  # type: ignore[union-attr, index]
    assert stacked[1:] == bars["energy"][:4], "the first area is the idle part"


def test_watts_drawn_are_the_joules_accounted(data: RunData) -> None:
    with charts.settings("x"):
        chart = next(chart for chart in charts.charts(data) if chart.key == "power")
    x, watts = chart.figure.axes[0].get_lines()[0].get_data()  # type: ignore[union-attr]
    drawn_j = np.nansum(np.diff(np.asarray(x, float)) * np.asarray(watts, float)[:-1])
    assert data.summary.energy is not None and drawn_j == pytest.approx(data.summary.energy.value_j)
    assert np.isnan(np.asarray(watts, float)).any(), "the line goes through a time of which nothing is known"


def test_a_spike_of_joules_told_late_is_not_drawn() -> None:
    """Half the last second's energy is reported 3 ms after a sample."""
    data = run(gap=False, source="modelled")
    account = data.energy.of(data.devices[0])
    last = account.intervals[-1]
    assert last.energy_j is not None
    half = replace(last, energy_j=last.energy_j / 2, idle_j=0.0, jobs_j={"job0": last.energy_j / 2})
    late = replace(half, from_s=last.to_s, to_s=last.to_s + 0.003)
    book = replace(account, intervals=[*account.intervals[:-1], half, late])
    curve = Curve.of(book.intervals, 1.0)
    watts = curve.watts([each.energy_j or 0.0 for each in curve.known])
    usual = [(each.energy_j or 0.0) / (each.to_s - each.from_s) for each in account.intervals]
    assert watts.max() <= max(usual) < (late.energy_j or 0.0) / 0.003
    drawn_j = float(np.sum(watts * np.diff(curve.edges)))
    assert drawn_j == pytest.approx(sum(each.energy_j or 0.0 for each in book.intervals))


@pytest.mark.nightly
def test_the_turns_of_a_huge_trace_are_merged(data: RunData) -> None:
    marks = []
    for turn in range(20_000):
        at_s = 10.0 + turn * 0.02
        marks += [Mark(Kind.TURN_BEGINS, at_s), Mark(Kind.TURN_ENDS, at_s + 0.005)]
    began_s = time.monotonic()
    content = html(without(data, traces={("job0", 1): marks}))
    assert len(content) < 300_000, "turns below a pixel are written one by one"
    assert time.monotonic() - began_s < 20.0


def test_the_part_held_is_kept_when_turns_are_merged() -> None:
    turns = np.array([(10.0 + 0.02 * index, 10.005 + 0.02 * index) for index in range(5000)])
    held = part_held(turns, np.linspace(0.0, 200.0, 201))
    assert held[50] == pytest.approx(0.25, abs=0.01) and held[5] == held[150] == 0.0


@pytest.mark.nightly
def test_the_same_run_gives_the_same_page_and_leaves_matplotlib_alone(data: RunData, content: str) -> None:
    before = dict(mpl.rcParams)
    assert html(data) == content
    assert dict(mpl.rcParams) == before


@pytest.mark.nightly
def test_a_page_of_very_many_jobs_shows_the_failed_and_the_longest_and_says_how_many_are_missing() -> None:
    data = run(jobs=4)
    jobs = data.summary.jobs
    short = [replace(jobs[0], name=f"short-{number}", jct_s=1.0) for number in range(600)]
    page = html(changed(data, jobs=(*short, *jobs)))
    assert "104 jobs with a shorter JCT are left out" in page
    assert all(f">{job.name}<" in page for job in jobs), "the failed job and the longest ones are shown"
    assert page.count('<th scope="row">short-') == 2 * 496, "a row in the table, and one in the details"
