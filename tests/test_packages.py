"""The wheel and the source distribution install in an environment without ecoshare, and run there."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.warm import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with both, built from the files that git tracks."""
    folder = tmp_path_factory.mktemp("built")
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            target = folder / "source" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target)
    line = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(folder / "source")]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.nightly
@pytest.mark.parametrize("form", ["*.whl", "*.tar.gz"])
def test_it_installs_into_an_empty_environment_and_runs(built: Path, tmp_path: Path, form: str) -> None:
    """If it failed, an install would lack a module, a template or the mark that it is typed."""
    (package,) = built.glob(form)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    # Requirements take gigabytes, so they come from the environment of the tests, in which ecoshare is only a link.
    paths = {"base": str(tmp_path / "venv"), "platbase": str(tmp_path / "venv")}
    site = Path(sysconfig.get_path("purelib", vars=paths))
    (site / "required.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(tmp_path / "venv" / "bin" / "python")]
    line = [*pip, "install", "--quiet", "--no-deps", "--no-build-isolation", str(package)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (site / "ecoshare" / "py.typed").exists() and (site / "tuner" / "py.typed").exists()
    files = (ROOT / "ecoshare").rglob("*")
    templates = {path.relative_to(ROOT) for path in files if path.suffix in (".j2", ".tcss")}
    assert templates and all((site / each).exists() for each in templates)
    pages = {path.relative_to(ROOT) for path in (ROOT / "ecoshare/queue/page").iterdir()}
    assert pages and all((site / each).exists() for each in pages)
    assert not (site / "tests").exists() and not (site / "scripts").exists()

    def ecoshare(*words: str) -> str:
        command = tmp_path / "venv" / "bin" / "ecoshare"
        ran = subprocess.run([command, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    assert "run" in ecoshare("--help") and "simulate" in ecoshare("--help")
    ecoshare("init", "--example")
    ecoshare("run", "jobs.yaml", "--dry-run")
    ecoshare("run", "classify_images.py", "--device", "cpu", "--no-profiles", "--", "--epochs", "1")
    assert (tmp_path / "ecoshare-runs" / "latest" / "report.html").stat().st_size
