"""Reader of the links, pictures, headings and lists of the documentation's pages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.warm import ROOT

DOCS = ROOT / "docs"
PAGES = (*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md")), *sorted(DOCS.rglob("*.md")))


@dataclass(frozen=True, slots=True)
class Page:
    """Links, anchors and lists of one page.

    Attributes:
        links: Targets of links and pictures, as written.
        anchors: Names of the headings that a link can jump to.
        crowded: Lines in which a list begins right below a paragraph.
    """

    links: tuple[str, ...]
    anchors: frozenset[str]
    crowded: tuple[int, ...]


def parse(text: str) -> Page:
    """Links, anchors and lists of the page. Text in code is none of them."""
    tokens = MarkdownIt().enable("table").parse(text)
    links = [str(target) for token in _all(tokens) if (target := token.attrs.get("href") or token.attrs.get("src"))]
    headings = [after for token, after in pairwise(tokens) if token.type == "heading_open"]
    anchors = frozenset(_anchors(_text(heading) for heading in headings))
    return Page(tuple(links), anchors, tuple(_crowded(tokens, text.splitlines())))


@cache
def read(page: Path) -> Page:
    """Content of this file, which does not change."""
    return parse(page.read_text(encoding="utf-8"))


def broken(page: Path, root: Path = ROOT) -> list[str]:
    """Relative links of a page without a target: a missing file, a missing heading, or a place outside the root."""
    links = read(page).links
    return [link for link in links if not re.match(r"[a-z]+:", link) and not _leads_somewhere(page, link, root)]


def _leads_somewhere(page: Path, link: str, root: Path) -> bool:
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    if not target.is_relative_to(root) or not target.exists():
        return False
    return not anchor or (target.suffix == ".md" and anchor in read(target).anchors)


def _crowded(tokens: list[Token], lines: list[str]) -> Iterator[int]:
    for token, after in pairwise(tokens):
        if token.type == "paragraph_close" and after.type in ("bullet_list_open", "ordered_list_open"):
            assert after.map is not None
            if not after.level and lines[after.map[0] - 1].strip():
                yield after.map[0] + 1


def _all(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from token.children or ()


def _text(heading: Token) -> str:
    return "".join(each.content for each in heading.children or () if each.type in ("text", "code_inline"))


def _anchors(titles: Iterator[str]) -> Iterator[str]:
    """Anchor names of GitHub. Those of the site are equal while no title has a dash between spaces."""
    seen: Counter[str] = Counter()
    for title in titles:
        name = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        yield f"{name}-{seen[name]}" if seen[name] else name
        seen[name] += 1
