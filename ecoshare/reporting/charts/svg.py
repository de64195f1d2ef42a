"""Embeds charts into one HTML page, in the colours of the reader's theme."""

from __future__ import annotations

import io
import re
from xml.etree import ElementTree

from markupsafe import Markup

from ecoshare.reporting.charts.look import GRID, GROUND, INK, Chart, settings

_SVG, _XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
_COLOURS = {INK: "currentColor", GRID: "var(--grid)", GROUND: "var(--ground)"}
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_DECIMALS = re.compile(r"-?\d+\.\d{3,}")


def inline_svg(chart: Chart) -> Markup | None:
    """The chart as an SVG element with theme colours and ids that are unique in the page; None without a figure."""
    if chart.figure is None:
        return None
    text = io.StringIO()
    with settings(chart.key):
        chart.figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(text.getvalue())
    for child in list(root):
        if child.tag == f"{_SVG}metadata":
            root.remove(child)
    for parent in root.iter():
        for child in list(parent):
            if child.tag == f"{_SVG}style" or (child.tag == f"{_SVG}defs" and child.find(f"{_SVG}style") is not None):
                parent.remove(child)  # the style would apply to the whole page
    for element in root.iter():
        _settle(element, chart)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.set("role", "img")
    root.set("aria-label", f"{chart.title}. {chart.alt}")
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _settle(element: ElementTree.Element, chart: Chart) -> None:
    """Make ids, references and colours of an element fit a page with other charts."""
    element.tag = element.tag.removeprefix(_SVG)
    tip = chart.tips.get(element.get("id", ""))
    for name, value in list(element.attrib.items()):
        if name.startswith(_XLINK):
            del element.attrib[name]
            name = name.removeprefix(_XLINK)
        if name == "id":
            value = f"{chart.key}-{value}"
        elif name == "href":
            value = value.replace("#", f"#{chart.key}-", 1)
        elif name == "d":  # a precision of 0.01 pixels halves the size
            value = _DECIMALS.sub(lambda number: f"{float(number[0]):.2f}", value)
        else:
            value = _REFERENCE.sub(rf"url(#{chart.key}-\1)", value)
            for marker, colour in _COLOURS.items():
                value = value.replace(marker, colour)
        if value.startswith(("currentColor", "var(")):  # variables work in a style, not in an attribute
            element.attrib.pop(name, None)
            name, value = "style", f"{element.get('style', '')};{name}:{value}".lstrip(";")
        element.set(name, value)
    if tip is not None:
        title = ElementTree.Element("title")
        title.text = tip
        element.insert(0, title)
