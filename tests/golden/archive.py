"""Archives of recorded runs: packing, unpacking, and the outputs of the commands."""

from __future__ import annotations

import hashlib
import html.parser
import io
import lzma
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from contextlib import chdir, redirect_stdout
from functools import cache
from pathlib import Path
from unittest.mock import patch

import typer.main

from ecoshare.cli.app import app

FOLDER = Path(__file__).parent / "runs"
NAMES = sorted(each.name.removesuffix(".tar.xz") for each in FOLDER.glob("*.tar.xz"))

RUN = "runs/20260101-120000-golden"
"""Path of each run folder, relative to the folder in which the commands are given."""

SURROUNDINGS = {"COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1"}


def run_folder(name: str, below: Path) -> Path:
    """Unpack the run of an archive at its place below this folder."""
    with _opened(name) as archive:
        members = [each for each in archive if each.name.startswith("run/")]
        for each in members:
            each.name = each.name.removeprefix("run/")
        archive.extractall(below / RUN, members, filter="data")
    return below / RUN


def told(name: str) -> Mapping[str, str]:
    """Outputs that were recorded, by their names."""
    with _opened(name) as archive:
        found = [(each.name, archive.extractfile(each)) for each in archive if each.name.startswith("told/")]
        return {path.removeprefix("told/"): file.read().decode() for path, file in found if file is not None}


def _opened(name: str) -> tarfile.TarFile:
    return tarfile.open(FOLDER / f"{name}.tar.xz")


OUTPUTS = {
    "summary.json": ("export", "--format", "json"),
    "jobs.csv": ("export", "--format", "csv"),
    "explained.txt": ("explain",),
    "explained.json": ("explain", "--json"),
    "metrics.txt": ("export", "--format", "prometheus"),
    "report.txt": ("export", "--format", "html"),
    "trace.sha256": ("export", "--format", "perfetto"),
}
"""Words of the command that tells each output; the run comes after the first."""


def tell(output: str) -> str:
    """Words of a command about the run at `RUN`, below the current folder."""
    command, *options = OUTPUTS[output]
    printed = io.BytesIO()
    text = io.TextIOWrapper(printed, "utf-8", write_through=True)
    with redirect_stdout(text), patch.dict(os.environ, SURROUNDINGS):
        _ecoshare()([command, RUN, *options], standalone_mode=False)
    if output == "trace.sha256":
        return f"{hashlib.sha256(printed.getvalue()).hexdigest()}\n"
    told = printed.getvalue().decode()
    return _visible(told) if output == "report.txt" else told


@cache
def _ecoshare() -> Callable[..., object]:
    """The command line, which takes a while to be put together."""
    return typer.main.get_command(app)


class _Words(html.parser.HTMLParser):
    """Visible text of a page, without its charts, which follow the version of the library that draws them."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._hidden += tag in ("svg", "style", "script")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("svg", "style", "script")

    def handle_data(self, data: str) -> None:
        if not self._hidden and data.strip():
            self.words.append(" ".join(data.split()))


def _visible(text: str) -> str:
    page = _Words()
    page.feed(text)
    return "\n".join(page.words) + "\n"


def _pack(name: str, run: Path, outputs: Mapping[str, str]) -> None:
    """Write an archive: equal content gives equal bytes."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for path in sorted(run.rglob("*")):
            if path.is_symlink() or path.is_file():
                _put(archive, f"run/{path.relative_to(run)}", path.read_bytes())
        for output, text in sorted(outputs.items()):
            _put(archive, f"told/{output}", text.encode())
    (FOLDER / f"{name}.tar.xz").write_bytes(lzma.compress(content.getvalue(), preset=9))


def _put(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o644
    archive.addfile(entry, io.BytesIO(content))


def _add(name: str, run: Path) -> None:
    """Write the archive of a run folder, with what is told of it now."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(run, Path(folder) / RUN, symlinks=True)
        with chdir(folder):
            outputs = {output: tell(output) for output in OUTPUTS}
        _pack(name, Path(folder) / RUN, outputs)


def main(command: str, *words: str) -> None:
    """`add NAME RUN`, or `tell [NAME ...]`."""
    match command, words:
        case "add", (name, run):
            _add(name, Path(run))
        case "tell", _:
            for name in words or NAMES:
                with tempfile.TemporaryDirectory() as folder:
                    _add(name, run_folder(name, Path(folder)))
        case _:
            raise SystemExit("expected: add NAME RUN, or tell [NAME ...]")


if __name__ == "__main__":
    main(*sys.argv[1:])
