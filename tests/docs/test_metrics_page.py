"""The page of metrics and the dashboard name what there is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ecoshare.metrics.families import FAMILIES, MetricFamily, MetricType
from tests.warm import ROOT

DASHBOARD = json.loads((ROOT / "docs/grafana/ecoshare.json").read_text())
SAMPLES = {
    name: each
    for each in FAMILIES
    for name in (
        [f"{each.name}_{part}" for part in ("bucket", "sum", "count")]
        if each.type is MetricType.HISTOGRAM
        else [each.name]
    )
}
"""Metrics by the names of their samples."""

_NAME = re.compile(r"\becoshare_\w+")
_SELECTOR = re.compile(r"(ecoshare_\w+)\{([^}]*)\}")
_GROUPED = re.compile(r"\b(?:by|without|on) \(([^)]*)\)")


def labels_of(family: MetricFamily) -> set[str]:
    more = {"le"} if family.type is MetricType.HISTOGRAM else set()
    return {"queue", *family.labels, *more}


def targets() -> Iterator[tuple[str, dict[str, Any]]]:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target


def test_the_table_is_the_list_of_metrics() -> None:
    section = (ROOT / "docs/queue.md").read_text().split("| labels | metrics |")[1]
    rows = re.findall(r"^\| (.*) \| (`ecoshare_.*) \|$", section, re.MULTILINE)
    found = {
        name: tuple(re.findall(r"`(\w+)`", labels)) for labels, names in rows for name in re.findall(r"`(\w+)`", names)
    }
    assert found == {each.name: each.labels for each in FAMILIES}


def test_the_text_names_no_other_metric() -> None:
    for page in ("docs/reports.md", "docs/queue.md"):
        for name in _NAME.findall((ROOT / page).read_text()):
            assert name in SAMPLES or name in {each.name for each in FAMILIES}, f"{page}: {name}"


@pytest.mark.parametrize(("title", "target"), list(targets()), ids=lambda each: each if isinstance(each, str) else "")
def test_a_panel_asks_for_metrics_and_labels_that_exist(title: str, target: dict[str, Any]) -> None:
    expression, legend = target["expr"], target["legendFormat"]
    names = _NAME.findall(expression)
    assert names and all(name in SAMPLES for name in names), expression
    selectors = _SELECTOR.findall(expression)
    assert len(selectors) == len(names), "each metric is chosen by its queue"
    for name, matchers in selectors:
        chosen = set(re.findall(r"(\w+)\s*=~?", matchers))
        assert chosen <= labels_of(SAMPLES[name]) and "queue" in chosen, f"{title}: {expression}"
    kept = set.intersection(*(labels_of(SAMPLES[name]) for name in names))
    for group in _GROUPED.findall(expression):
        named = set(re.split(r",\s*", group))
        assert named <= kept, f"{title}: {expression}"
        kept = named if " without " not in expression else kept
    assert set(re.findall(r"{{(\w+)}}", legend)) <= kept, f"{title}: {legend}"


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool, of Prometheus, is not installed")
def test_prometheus_understands_each_expression(tmp_path: Path) -> None:
    """Each one passes as a rule, of the dashboard and of the page."""
    expressions = [target["expr"] for _, target in targets()]
    expressions += re.findall(r"^\| [A-Z][^|]* \| `([^`]+)` \|$", (ROOT / "docs/queue.md").read_text(), re.MULTILINE)
    assert len(expressions) > len(list(targets()))
    filled = [re.sub(r"\$__rate_interval|\$__range", "5m", each) for each in expressions]
    rules = [{"record": f"panel:{number}", "expr": each} for number, each in enumerate(filled)]
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run(["promtool", "check", "rules", path], capture_output=True, text=True)
    assert done.returncode == 0 and f"{len(rules)} rules found" in done.stdout, done.stdout + done.stderr


def test_counters_are_shown_as_rates_or_sums_of_them() -> None:
    """If it failed, a panel would show a number that grows for ever and falls at each restart of the queue."""
    absolute = {"Energy", "Jobs with most energy"}
    for title, target in targets():
        for name in _NAME.findall(target["expr"]):
            grows = SAMPLES[name].type in (MetricType.COUNTER, MetricType.HISTOGRAM)
            if grows and title not in absolute:
                assert re.search(rf"(rate|increase)\({name}", target["expr"]), f"{title}: {target['expr']}"


def test_the_dashboard_shows_each_metric_or_there_is_a_reason() -> None:
    shown = {SAMPLES[name].name for _, target in targets() for name in _NAME.findall(target["expr"])}
    queries = " ".join(str(each.get("definition", "")) for each in DASHBOARD["templating"]["list"])
    shown |= set(_NAME.findall(queries))
    left_out = {
        "ecoshare_queue_opened_timestamp_seconds",  # says when counters began
        "ecoshare_open_sweeps",
        "ecoshare_attempts_ended_total",  # restarts and ends of jobs tell more
        "ecoshare_parks_total",
        "ecoshare_job_turn_wait_seconds_total",  # percentiles of waits tell more
        "ecoshare_job_attempt",
    }
    assert {each.name for each in FAMILIES if each.is_live} - shown == left_out


def test_names_keep_the_conventions_of_prometheus() -> None:
    assert len({each.name for each in FAMILIES}) == len(FAMILIES)
    for each in FAMILIES:
        assert re.fullmatch(r"ecoshare(_[a-z0-9]+)+", each.name)
        assert (each.type is MetricType.COUNTER) == each.name.endswith("_total")
        assert (each.type is MetricType.INFO) == each.name.endswith("_info")
        assert not {"job", "instance", "le", "quantile", "queue", "run"} & set(each.labels)
        assert not re.search(r"_(ms|mj|mhz|kwh|percent|count|sum|bucket)$", each.base), each.name
        assert each.help.endswith(".") or each.help[-1].isalnum()
