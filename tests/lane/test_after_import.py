"""A function runs after the import of a module, and not before."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

import pytest

from ecoshare.lane.after_import import after_import


def test_a_look_for_the_module_is_not_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "heavy_library.py").write_text("loaded = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    seen: list[bool] = []
    after_import("heavy_library", lambda: seen.append(sys.modules["heavy_library"].loaded))
    assert importlib.util.find_spec("heavy_library") is not None  # like libraries with optional support for it
    assert seen == []
    importlib.import_module("heavy_library")
    assert seen == [True]
    importlib.reload(sys.modules["heavy_library"])
    assert seen == [True]
    monkeypatch.delitem(sys.modules, "heavy_library")


def test_a_module_that_is_there_already_counts_at_once() -> None:
    seen: list[str] = []
    after_import("json", lambda: seen.append("now"))
    assert seen == ["now"]
