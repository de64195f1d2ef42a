"""Class of a job: changes that make a new class, and changes that do not, with real files."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from ecoshare.base.device import DeviceInfo
from ecoshare.jobs.load import load
from ecoshare.jobs.schema import JobConfig
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.runtime.planning.job_class import JobClass, JobClasses, torch_version
from tests.knowledge.classes import profile
from tests.planning import planned

DEVICE = DeviceInfo("cpu", "cpu", "cpu", "A processor", None, 1 << 40, 8)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Folder with a script, a local module, a module that the script does not import, and a package."""
    folder = tmp_path / "project"
    (folder / "pkg").mkdir(parents=True)
    (folder / "train.py").write_text("import model\n")
    (folder / "model.py").write_text("SIZE = 1\n")
    (folder / "other.py").write_text("")
    (folder / "pkg" / "__init__.py").write_text("")
    (folder / "pkg" / "train.py").write_text("from . import helper\n")
    (folder / "pkg" / "helper.py").write_text("")
    return folder


def class_of(folder: Path, device_model: str = "A processor", **changes: Any) -> JobClass:
    """Class of the job in a plan made now."""
    fields: dict[str, Any] = {"name": "j", "script": folder / "train.py", "args": ("--lr", "0.1"), "cwd": folder}
    fields |= changes
    if "module" in changes:
        del fields["script"]
    return JobClasses(device_model).of(JobConfig.model_validate(fields, by_name=True))


def packages_with_torch(prefix: Path, version: str) -> str:
    """Interpreter with torch, as far as can be seen without running it."""
    information = prefix / "lib" / "python3.12" / "site-packages" / f"torch-{version}.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
    return str(prefix / "bin" / "python")


def test_the_origin_says_all_that_the_name_stands_for(project: Path) -> None:
    """Else no message could say why a class is new, nor find the nearest one."""
    found = class_of(project)
    assert re.fullmatch(r"train-[0-9a-f]{12}", found.name)
    assert found.origin.script == str(project / "train.py")
    assert found.origin.sources == {
        name: hashlib.sha256((project / name).read_bytes()).hexdigest() for name in ("model.py", "train.py")
    }
    assert found.origin.args == ("--lr", "0.1")
    assert (found.origin.device_model, found.origin.torch) == ("A processor", metadata.version("torch"))
    assert found.origin.given is None


def test_a_moved_project_keeps_its_classes(project: Path) -> None:
    """Else renaming a folder would cost every profile."""
    before = class_of(project)
    moved = project.rename(project.with_name("moved"))
    after = class_of(moved, cwd=Path("/"), name="another")
    assert after.name == before.name
    assert after.origin.script == str(moved / "train.py")


@pytest.mark.parametrize(
    "changes",
    [
        {"args": ()},
        {"args": ("0.1", "--lr")},
        {"args": ("--lr 0.1",)},
        {"args": ("--lr", "0.1", "")},
        {"args": ('--lr", "0.1',)},
        {"device_model": "Another"},
        {"job_class": "train"},
        {"module": "train"},
    ],
    ids=lambda changes: str(changes),
)
def test_other_arguments_device_or_name_are_another_class(project: Path, changes: dict[str, Any]) -> None:
    """Else the memory and joules of one job would be taken for the other's."""
    assert class_of(project, **changes).name != class_of(project).name


@pytest.mark.parametrize(
    ("path", "is_new"), [("train.py", True), ("model.py", True), ("other.py", False), ("pkg/helper.py", False)]
)
def test_a_change_counts_where_the_script_imports_it(project: Path, path: str, is_new: bool) -> None:
    """Else a profile would outlive its code, or any file of the folder would invalidate it."""
    before = class_of(project)
    (project / path).write_text("import model  # changed\n")
    assert (class_of(project).name != before.name) == is_new


def test_the_classes_of_one_plan_see_a_script_once(project: Path) -> None:
    """Else jobs of one file could be of two classes because an editor saved the script meanwhile."""
    classes = JobClasses("A processor")
    job = JobConfig(name="j", script=project / "train.py")
    before = classes.of(job)
    (project / "train.py").write_text("changed")
    assert classes.of(job) == before
    assert JobClasses("A processor").of(job) != before


def test_a_given_class_joins_scripts_and_arguments_on_one_device_and_torch(project: Path, tmp_path: Path) -> None:
    """Else `class:` would not join jobs, or would carry one GPU's figures to another."""
    mine = class_of(project, job_class="resnet")
    assert re.fullmatch(r"resnet-[0-9a-f]{12}", mine.name)
    assert class_of(project, job_class="resnet", script=project / "other.py", args=()).name == mine.name
    assert class_of(project, job_class="resnet", module="pkg.train").name == mine.name
    assert class_of(project, job_class="resnet", device_model="Another").name != mine.name
    other_torch = packages_with_torch(tmp_path / "venv", "1.0")
    assert class_of(project, job_class="resnet", python=other_torch).name != mine.name
    assert mine.origin.given == "resnet"
    assert "train.py" in mine.origin.sources, "kept, to find the nearest"


def test_a_module_of_the_working_folder_counts_with_its_sources(project: Path) -> None:
    """Else `module:` would keep its profile after changes of the code; an installed module has only its name."""
    package, single, installed = (class_of(project, module=name) for name in ("pkg.train", "train", "json.tool"))
    assert package.name.startswith("pkg.train-")
    assert set(package.origin.sources) == {"pkg/__init__.py", "pkg/train.py", "pkg/helper.py"}
    assert set(single.origin.sources) == {"model.py", "train.py"}
    assert (installed.origin.script, installed.origin.sources) == ("json.tool", {})
    assert class_of(project, module="pkg.other").name != package.name
    assert class_of(project, module="json.other").name != installed.name
    (project / "pkg" / "helper.py").write_text("changed")
    (project / "model.py").write_text("changed")
    assert class_of(project, module="pkg.train").name != package.name
    assert class_of(project, module="train").name != single.name
    assert class_of(project, module="json.tool").name == installed.name


def test_torch_is_that_of_the_jobs_interpreter(project: Path, tmp_path: Path) -> None:
    """Else a build for another CUDA, or another environment, would pass for this one."""
    own = metadata.version("torch")
    assert torch_version(None) == torch_version(sys.executable) == own
    assert torch_version(packages_with_torch(tmp_path / "a", "2.13.0+cu126")) == "2.13.0+cu126"
    names = {
        class_of(project, python=python).name
        for python in (
            None,
            packages_with_torch(tmp_path / "b", "2.13.0+cu126x"),
            packages_with_torch(tmp_path / "c", "2.13.0+cu130x"),
            "/nowhere/bin/python",
            "/elsewhere/bin/python",
        )
    }
    assert len(names) == 5, "two unknown versions are not one"
    assert class_of(project, python=packages_with_torch(tmp_path / "d", own)).name == class_of(project).name


def test_an_environment_made_by_the_standard_library_is_looked_through(tmp_path: Path) -> None:
    """Else the assumed layout would not be the real one; the interpreter is a link, which must not be followed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    assert torch_version(str(python)) == f"unknown, of {python}"
    (folder,) = (tmp_path / "venv").glob("lib/python3*/site-packages")
    (folder / "torch-9.9+cpu.dist-info").mkdir()
    (folder / "torch-9.9+cpu.dist-info" / "METADATA").write_text("Name: torch\nVersion: 9.9+cpu\n")
    assert torch_version(str(python)) == "9.9+cpu"


@pytest.mark.slow
def test_finding_classes_loads_no_torch(project: Path) -> None:
    """Else `ecoshare run --dry-run` would take seconds."""
    code = (
        "import sys; from pathlib import Path; from ecoshare.jobs.schema import JobConfig\n"
        "from ecoshare.runtime.planning.job_class import JobClasses\n"
        f"JobClasses('m').of(JobConfig(name='j', script=Path({str(project / 'train.py')!r})))\n"
        "print('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"False\n"


def test_what_cannot_be_read_is_a_class_and_no_error(project: Path) -> None:
    """Else a plan would end in a traceback, though the start of the job names the mistake."""
    missing = class_of(project, script=project / "missing.py")
    assert missing.origin.sources == {"missing.py": f"unreadable: {project / 'missing.py'}"}
    assert class_of(project, script=project.parent / "missing.py").name != missing.name, "not known to be the same"
    (project / "model.py").unlink()
    (project / "model.py").mkdir()
    (project / "folder.py").mkdir()
    for script in ("train.py", "folder.py"):
        assert "unreadable" in "".join(class_of(project, script=project / script).origin.sources.values())
    assert class_of(project, module="gone", cwd=project / "gone").origin.sources == {}


@pytest.mark.parametrize(
    "name",
    ["a b.py", "-.py", "..py", ".hidden.py", "é.py", "a\nb.py", "x" * 240 + ".py", "$(rm).py", "\udcff.py", "\\.py"],
    ids=ascii,
)
def test_any_name_of_a_script_makes_a_name_that_can_be_kept(project: Path, tmp_path: Path, name: str) -> None:
    """Else a profile could not be saved, or would be in a place where no reader looks."""
    script = project / name
    try:
        script.write_text("import model\n")
    except OSError:
        pytest.skip("this file system has no such names")
    found = class_of(project, script=script)
    store = ProfileStore(tmp_path / "store")
    kept = profile(found.name).model_copy(update={"origin": found.origin})
    store.save(kept)
    assert store.find(found.name) == kept
    assert ProfileStore(tmp_path / "store").nearest(found.origin) == kept


@pytest.mark.parametrize("name", ["a", "_", "007", "a..b", "x" * 100, "CON", "a.json", "a.json.corrupt"])
def test_any_name_that_a_job_file_may_give_can_be_kept(project: Path, tmp_path: Path, name: str) -> None:
    """Else `class:` would accept names that the store refuses."""
    (project / "jobs.yaml").write_text(f"version: 1\njobs:\n- {{name: j, script: train.py, class: '{name}'}}\n")
    found = JobClasses("m").of(load(project / "jobs.yaml").jobs[0])
    store = ProfileStore(tmp_path / "store")
    store.save(profile(found.name))
    assert store.find(found.name) == profile(found.name)


@pytest.mark.nightly
def test_ten_thousand_jobs_of_one_script_are_planned_at_once(project: Path) -> None:
    """Else a sweep would wait for its plan: one reading of the script serves all trials."""
    for number in range(100):
        (project / f"m{number}.py").write_text(f"X = {number}\n" * 1000)
    (project / "train.py").write_text("".join(f"import m{number}\n" for number in range(100)))
    lines = (f"- {{name: j{number}, script: train.py, args: [--seed, {number}]}}\n" for number in range(10_000))
    (project / "jobs.yaml").write_text("version: 1\njobs:\n" + "".join(lines))
    loaded = load(project / "jobs.yaml")
    began_s = time.process_time()
    plan = planned(loaded, (DEVICE,), objective="makespan")
    assert time.process_time() - began_s < 5, "one reading takes tenths of a second, ten thousand take an hour"
    assert len({job.job_class.name for job in plan.jobs}) == 10_000
    assert all(job.spec.job_class == job.job_class.name for job in plan.jobs)
    assert plan.as_dict()["jobs"][7]["class"] == plan.jobs[7].job_class.name
    first, last = plan.jobs[0].job_class.origin, plan.jobs[-1].job_class.origin
    assert first.sources is last.sources, "ten thousand copies would take 100 MB"


def test_a_copied_project_finds_its_nearest_class(project: Path, tmp_path: Path) -> None:
    """Else a job on a copy of the code would lose the values that it begins with."""
    store = ProfileStore(tmp_path / "store")
    found = class_of(project)
    store.save(profile(found.name).model_copy(update={"origin": found.origin}))
    copy = Path(shutil.copytree(project, tmp_path / "copy"))
    (copy / "train.py").write_text("import model  # and more\n")
    changed = class_of(copy)
    assert store.find(changed.name) is None
    assert (nearest := store.nearest(changed.origin)) is not None
    assert nearest.job_class == found.name
