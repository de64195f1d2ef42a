"""Figures of the documentation have the output that they come from: a file in docs/measurements/."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PAGES
from tests.warm import ROOT

FOLDER = DOCS / "measurements"
FILES = sorted(FOLDER.glob("*.json"))
_NAMED = re.compile(r"\b20\d\d-\d\d-\d\d-[\w-]+\.json")


def measured_without_file(text: str) -> list[str]:
    """First words of the sections `**Measured...**`, up to the next bold heading, that name no file."""
    parts = re.split(r"^(?=\*\*)", text, flags=re.MULTILINE)
    return [part[:60] for part in parts if part.startswith("**Measured") and not _NAMED.search(part)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_named_measurement_is_there(page: Path) -> None:
    """If it failed, a reader could not look up the figures that a page quotes."""
    text = page.read_text(encoding="utf-8")
    assert [name for name in _NAMED.findall(text) if not (FOLDER / name).exists()] == []
    assert measured_without_file(text) == [], "measured, and no file of docs/measurements/ is named"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_measurement_is_listed_and_whole(path: Path) -> None:
    """If it failed, a file would be of an unknown command, or of a short run that the docs quote as a full one."""
    assert path.name in (FOLDER / "README.md").read_text()
    assert json.loads(path.read_text()).get("quick") is not True


def test_a_section_without_a_file_is_told() -> None:
    """If it failed, the test above would see no section at all."""
    text = "# 1\n\n**Measured** 3 s.\n\n| a |\n\n**Why.** x\n\n**Measured again** (2026-11-24-joint.json): 3 s.\n"
    assert measured_without_file(text) == ["**Measured** 3 s.\n\n| a |\n\n"]
