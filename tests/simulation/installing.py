"""Installation of a project into a folder, as pip leaves it."""

from __future__ import annotations

import tomllib
from pathlib import Path


def install(folder: Path) -> None:
    """Write metadata with the entry points of the project in this folder, beside its modules."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    name, version = project["name"], project["version"]
    told = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    told.mkdir()
    (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    groups = project["entry-points"].items()
    lines = [f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in each.items()) for group, each in groups]
    (told / "entry_points.txt").write_text("\n".join(lines))
