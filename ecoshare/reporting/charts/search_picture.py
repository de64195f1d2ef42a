"""Draws the measurements of a search, energy against slowdown, into a file."""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ecoshare.errors import UnfitEnvironment, UsageError
from ecoshare.knowledge.tuning_store import TuningResult
from ecoshare.reporting.figures import UNKNOWN, printable
from ecoshare.reporting.search_text import STATUS_WORDS, as_measured, ratio, saves, setting_words, slowest

if TYPE_CHECKING:
    from ecoshare.knowledge.advisers.search_replay import SearchReplay, Verdict
    from ecoshare.knowledge.advisers.setting_search import SettingScore
    from ecoshare.reporting.charts import Chart
    from ecoshare.reporting.charts.frontier_chart import ChosenSetting, Ground


FORMS = (".svg", ".html", ".png")


def ground_of(replay: SearchReplay, verdict: Verdict) -> Ground:
    """Settings and optimum of the replayed table, which the picture shows beside the measurements."""
    from ecoshare.reporting.charts.frontier_chart import Ground

    def spot(judged: SettingScore) -> tuple[float, float]:
        return max(judged.interference.values()), judged.energy

    return Ground(
        settings=[spot(judged) for _, judged in replay.truth()],
        tried=[spot(judged) for judged in verdict.tried],
        optimum=spot(verdict.optimum_judged),
    )


def check_picture(path: Path) -> None:
    """Check that `draw` can write a file with this path.

    Raises:
        UsageError: If its ending is not in `FORMS`, or its folder does not exist.
    """
    if path.suffix.lower() not in FORMS:
        raise UsageError(f"--plot {path}: expected a name that ends in {', '.join(FORMS[:-1])} or {FORMS[-1]}")
    if not path.parent.is_dir():
        raise UsageError(f"--plot {path}: there is no folder {path.parent}")


def draw(path: Path, tuned: TuningResult, words: str, ground: Ground | None = None) -> None:
    """Write the picture of a search as SVG, PNG or HTML; the ending of the path decides. HTML needs no other file.

    Args:
        words: Title, which names the searched table or jobs.

    Raises:
        UnfitEnvironment: If the file cannot be written.
    """
    content = picture(path.suffix.lower(), tuned, words, ground)
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UnfitEnvironment(f"cannot write {path}: {error.strerror or error}") from error


def picture(form: str, tuned: TuningResult, words: str, ground: Ground | None = None) -> bytes:
    """The content of a file with the ending `form`, one of `FORMS`. Equal searches give equal content."""
    from ecoshare.reporting import charts  # matplotlib takes half a second to import
    from ecoshare.reporting.charts.frontier_chart import frontier, outcome

    content = io.BytesIO()
    with charts.settings("frontier"), warnings.catch_warnings():
        # Letters that matplotlib's own font lacks are in the fonts of the viewer.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        chart = frontier(tuned, printable(words), ground)
        if chart.figure is not None:
            svg = form != ".png"
            metadata = {"Title": printable(words), "Date": None, "Creator": None} if svg else {"Software": None}
            chart.figure.savefig(content, format="svg" if svg else "png", dpi=200, facecolor="white", metadata=metadata)
    if form == ".png":
        return content.getvalue()
    # Document type and metadata name addresses on other machines.
    drawn = re.sub(r"<!DOCTYPE[^>]*>\s*|<metadata>.*?</metadata>\s*", "", content.getvalue().decode(), flags=re.DOTALL)
    return (drawn if form == ".svg" else _page(tuned, words, chart, drawn, outcome(tuned, ground))).encode(
        errors="backslashreplace"
    )


def _page(tuned: TuningResult, words: str, chart: Chart, drawing: str, outcome: ChosenSetting | None) -> str:
    """An HTML page around the drawing, with the measurements as a table."""

    def row(cells: Sequence[str], tag: str = "td") -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(printable(cell))}</{tag}>" for cell in cells) + "</tr>"

    rows = [
        row(
            [
                str(record.number),
                setting_words(record.requested, tuned.knobs),
                ratio(record.energy, 3),
                slowest(record.interference),
                {True: "kept", False: "broken", None: UNKNOWN}[record.feasible],
                "best so far" if record.best else "",
                STATUS_WORDS.get(record.status, ""),
            ]
        )
        for record in tuned.trials
    ]
    heading = row(["no.", "setting", "energy", "interference", "limit", "", ""], "th")
    drawing = drawing[max(drawing.find("<svg"), 0) :]
    chosen, measured = setting_words(tuned.best, tuned.knobs), tuned.saved_against_default
    saved = "" if outcome is None else f", which {saves(outcome.saved)}{as_measured(outcome.saved, measured)}"
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{html.escape(printable(words))}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
body {{ margin: 2rem auto; max-width: 60rem; padding: 0 1rem; font: 1rem/1.5 system-ui, sans-serif; color: #1b1f23;
  background: #fff; }}
svg {{ width: 100%; height: auto; }} table {{ border-collapse: collapse; font-size: 0.9rem; }}
th, td {{ padding: 0.25rem 0.8rem 0.25rem 0; text-align: left; border-bottom: 1px solid #d5dae0; }}
</style></head><body>
<h1>{html.escape(printable(words))}</h1>
<p>Chosen: {html.escape(printable(chosen + saved))}. {html.escape(chart.caption)}</p>
{drawing}
<table><thead>{heading}</thead><tbody>
{chr(10).join(rows)}
</tbody></table>
</body></html>
"""
