"""Links of the documentation have targets, and its site has a place for every page."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import DOCS, PAGES, broken, parse, read
from tests.warm import ROOT

_DOCS_TOOLS = ("material", "mkdocstrings_handlers.python")


def test_every_link_has_a_target_and_every_list_an_empty_line_above() -> None:
    """Without the empty line GitHub shows a list, and the site one paragraph."""
    faults = {str(page.relative_to(ROOT)): (broken(page), read(page).crowded) for page in PAGES}
    assert {page: found for page, found in faults.items() if any(found)} == {}, "links, and lines of lists"


def test_links_are_found_and_broken_ones_told(tmp_path: Path) -> None:
    other = tmp_path / "other.md"
    other.write_text("# The `other` page\n\n## Twice\n\n## Twice\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n\n[a](other.md) [b](other.md#the-other-page) [c](#page) [d](other.md#twice-1) [e](https://x.org/#y)\n\n"
        "| t |\n|---|\n| [f](gone.md) |\n\n![g](gone.png) [h](other.md#gone) [i](#gone) [j](../out.md)\n\n"
        "`[k](code.md)`\n\n```\n[l](code.md)\n```\n"
    )
    assert broken(page, tmp_path) == ["gone.md", "gone.png", "other.md#gone", "#gone", "../out.md"]
    assert "other.md" in parse(page.read_text()).links


def test_every_page_has_a_place_in_the_site_and_the_site_has_no_other() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    named = list(_leaves(nav))
    assert len(named) == len(set(named)), "a page is named twice in mkdocs.yml"
    assert set(named) == {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}


def _leaves(nav: object) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for each in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from _leaves(each)


def test_lists_without_an_empty_line_are_found() -> None:
    page = parse("# Page\n\nText:\n- crowded\n- next\n\nText:\n\n- fine\n  text\n  - below\n\nMore:\n1. crowded\n")
    assert page.crowded == (4, 14)


@pytest.mark.parametrize(
    ("package", "page"), [("tuner", "tuner"), ("ecoshare/integrations/ray", "ray")], ids=["tuner", "ray"]
)
def test_every_exported_name_has_a_place_in_the_api_pages(package: str, page: str) -> None:
    tree = ast.parse((ROOT / package / "__init__.py").read_text())
    (exported,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    documented = re.findall(r"^::: (\S+)$", (DOCS / "api" / f"{page}.md").read_text(), re.MULTILINE)
    assert {name.rpartition(".")[2] for name in documented} == set(exported)


def test_the_readme_is_short_and_its_picture_small() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.split()) < 700
    picture = (ROOT / "docs" / "images" / "report.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) < 200_000


@pytest.mark.nightly
def test_the_site_builds_and_needs_no_other_host(tmp_path: Path) -> None:
    for module in _DOCS_TOOLS:
        try:
            found = importlib.util.find_spec(module)
        except ModuleNotFoundError:
            found = None
        if found is None:
            pytest.skip("the documentation's tools are not installed: pip install -e '.[docs]'")
    site = tmp_path / "site"
    done = subprocess.run(
        [ROOT / "scripts" / "docs", "--site-dir", site], capture_output=True, text=True, check=False, timeout=110
    )
    assert done.returncode == 0, done.stderr
    pages = list(site.rglob("*.html"))
    assert len(pages) >= len(list(DOCS.rglob("*.md")))
    loaded = re.compile(r"<(?:script|img|link)\b[^>]*(?:src|href)=\"?(https?:[^\" >]+)")
    assert [found for page in pages for found in loaded.findall(page.read_text())] == []
    tuner = (site / "api" / "tuner.html").read_text()
    assert 'id="tuner.ConstrainedTuner.ask"' in tuner, "the API page has no docstrings"
