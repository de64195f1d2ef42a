"""Makes a project known to Python as pip leaves it in a folder."""

from __future__ import annotations

import tomllib
from pathlib import Path


def install(folder: Path) -> None:
    """Write what tells its entry points, beside the modules of the project whose pyproject.toml is in the folder."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    name, version = project["name"], project["version"]
    told = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    told.mkdir()
    (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    groups = project["entry-points"].items()
    lines = [f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in each.items()) for group, each in groups]
    (told / "entry_points.txt").write_text("\n".join(lines))
