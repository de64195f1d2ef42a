"""Jobs from valid job files."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ecoshare.errors import InvalidJobFile, UsageError
from ecoshare.jobs.fields import Isolation
from ecoshare.jobs.load import LoadedJobs, load

JOB = "version: 1\njobs:\n- name: a\n  script: train.py\n"


def _load(text: str) -> LoadedJobs:
    Path("jobs.yaml").write_text(text)
    return load(Path("jobs.yaml"))


def test_every_key(folder: Path) -> None:
    """If it failed, a key of the file would not reach the job, or with another unit."""
    job = _load(
        "version: 1\n"
        "jobs:\n"
        "- {name: a.B_c-1, script: train.py, args: [x], cwd: folder, env: {K: v}, class: k, arrival: 2 min,\n"
        "   priority: -3, iterations: 1_000, gpus: 2, slowdown: 1.5, isolation: fresh, retries: 100,\n"
        "   resume_args: [--resume], timeout: 1.5 h, startup_timeout: 250 ms}\n"
    ).jobs[0]
    assert (job.name, job.script, job.module, job.args) == ("a.B_c-1", folder / "train.py", None, ("x",))
    assert (job.cwd, job.env, job.python, job.job_class) == (folder / "folder", {"K": "v"}, None, "k")
    assert (job.arrival_s, job.timeout_s, job.startup_timeout_s) == (120.0, 5400.0, 0.25)
    assert (job.priority, job.iterations, job.gpus, job.slowdown_limit) == (-3, 1000, 2, 1.5)
    assert (job.isolation, job.retries, job.resume_args) == (Isolation.FRESH, 100, ("--resume",))


def test_words_arrive_as_written(folder: Path) -> None:
    """If it failed, a script would see 0.001 for 1e-3, 7 for 007 or True for yes."""
    words = ["1e-3", "007", "0x1F", "1_000", "yes", "~", "null", "12:30", "2024-01-01", ".5", "--", "1.10", "TRUE"]
    job = _load(
        JOB + f"  args: [{', '.join(words)}, '', \" a  b \", 'it''s', \"\\u00e9\\t\"]\n"
        "  resume_args:\n  - |\n    two\n    lines\n  - null\n"
        "  env: {A: 1e-3, B: null, C: yes, D: '', 1: 2}\n"
    ).jobs[0]
    assert job.args == (*words, "", " a  b ", "it's", "é\t")
    assert job.resume_args == ("two\nlines\n", "null")
    assert job.env == {"A": "1e-3", "B": "null", "C": "yes", "D": "", "1": "2"}


def test_names_may_look_like_numbers(folder: Path) -> None:
    """If it failed, a job named 1.0 would have to be quoted, or would be renamed."""
    job = _load("version: 1\njobs:\n- {name: 1.0, class: 007, script: train.py}\n").jobs[0]
    assert (job.name, job.job_class) == ("1.0", "007")


def test_nothing_is_the_default(folder: Path) -> None:
    """If it failed, a key with commented-out lines would be a mistake."""
    empty = "  # retries: 1\n  env:\n  args:\n  resume_args: ~\n  class: null\n  timeout:\n  cwd:\n"
    job = _load("defaults:\n  # retries: 1\n" + JOB + empty).jobs[0]
    assert job == _load(JOB).jobs[0]
    assert job.cwd == folder


def test_defaults(folder: Path) -> None:
    """If it failed, a job would miss a default, or a default would win over the job's own value."""
    first, second = _load(
        "version: 1\n"
        "defaults: {retries: 2, timeout: 1 min, cwd: folder, env: {A: 1, B: 1}, resume_args: [-r]}\n"
        "jobs:\n"
        "- {name: a, script: train.py}\n"
        "- {name: b, script: train.py, retries: 0, timeout: null, cwd: ., env: {B: 2}, resume_args: []}\n"
    ).jobs
    assert (first.retries, first.timeout_s, first.cwd, first.resume_args) == (2, 60.0, folder / "folder", ("-r",))
    assert (second.retries, second.timeout_s, second.cwd, second.resume_args) == (0, None, folder, ())
    assert (first.env, second.env) == ({"A": "1", "B": "1"}, {"A": "1", "B": "2"})


def test_aliases_and_merge_keys(folder: Path) -> None:
    """If it failed, a merged key would win over the job's own, or the first of several merges would lose."""
    first, second = _load(
        "version: 1\n"
        "jobs:\n"
        "- &first {name: a, script: train.py, args: &args [x, &x y], retries: 1, priority: 1}\n"
        "- {retries: 2, <<: [{gpus: 3, class: k}, *first, {gpus: 4}], name: b, resume_args: *args, class: *x}\n"
    ).jobs
    assert (second.name, second.args, second.resume_args) == ("b", ("x", "y"), ("x", "y"))
    assert (second.retries, second.priority, second.gpus, second.job_class) == (2, 1, 3, "y")
    assert (first.retries, first.gpus) == (1, 1)


def test_paths_start_at_the_job_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it failed, a job file would mean different scripts in different folders."""
    (folder / "jobs.yaml").write_text(JOB)
    monkeypatch.chdir(folder / "folder")
    job = load(Path("../jobs.yaml")).jobs[0]
    assert job.script is not None and job.script.is_absolute() and job.script.samefile(folder / "train.py")
    assert job.cwd.is_absolute() and job.cwd.samefile(folder)


def test_a_module_has_no_path(folder: Path) -> None:
    """If it failed, a module would be looked for as a file."""
    job = _load("version: 1\njobs:\n- {name: a, module: pkg.train}\n").jobs[0]
    assert (job.module, job.script) == ("pkg.train", None)


def test_interpreters(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it failed, a virtual environment would be left through its link, or ./python taken from the PATH."""
    (folder / "bin").mkdir()
    for link in ("bin/python", "python", "folder/python"):
        (folder / link).symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(folder / "folder"), prepend=os.pathsep)
    jobs = _load(
        "version: 1\n"
        "defaults: {python: bin/python}\n"
        "jobs:\n"
        "- {name: a, script: train.py}\n"
        "- {name: b, script: train.py, python: python}\n"
        "- {name: c, script: train.py, python: ./python}\n"
        "- {name: d, script: train.py, python: null}\n"
    ).jobs
    wanted = ["bin/python", "folder/python", "python"]
    assert [job.python for job in jobs] == [*(str(folder / link) for link in wanted), None]


def test_the_digest_is_of_the_bytes(folder: Path) -> None:
    """If it failed, two files that differ in a comment or a line break would count as the same run."""
    for data in (JOB.encode(), JOB.replace("\n", "\r\n").encode(), b"\xef\xbb\xbf" + JOB.encode()):
        Path("jobs.yaml").write_bytes(data)
        loaded = load(Path("jobs.yaml"))
        assert loaded.digest == hashlib.sha256(data).hexdigest()
        assert loaded.path == Path("jobs.yaml")
        assert loaded.text == data.decode("utf-8-sig")
        assert [job.name for job in loaded.jobs] == ["a"]


def test_no_secret_in_what_is_printed(folder: Path) -> None:
    """If it failed, printing what was loaded would show a password."""
    assert "hunter2" not in repr(_load(JOB + "  env: {TOKEN: hunter2}\n"))


def test_files_that_cannot_be_read(folder: Path) -> None:
    """If it failed, a mistyped file name would end in a traceback."""
    Path("loop").symlink_to("loop")
    reasons = {"gone.yaml": "no job file", "folder": "is a folder", "loop": "symbolic links", "x" * 300: "too long"}
    for name, reason in {**reasons, "train.py/x": "cannot be read", "a\0b": "cannot be the name"}.items():
        with pytest.raises(UsageError, match=reason):
            load(Path(name))


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_file_without_permission(folder: Path) -> None:
    """If it failed, a file of another user would end in a traceback."""
    Path("jobs.yaml").write_text(JOB)
    Path("jobs.yaml").chmod(0)
    with pytest.raises(UsageError, match="permission denied"):
        load(Path("jobs.yaml"))


def test_a_script_and_an_interpreter_without_permission(folder: Path) -> None:
    """If it failed, a run would start with a job that cannot."""
    shutil.copy("train.py", "other.py")
    Path("other.py").chmod(0o600)
    with pytest.raises(InvalidJobFile, match=r"jobs\[0\].python: './other.py' is not executable for you"):
        _load(JOB + "  python: ./other.py\n")


def test_loading_needs_no_torch() -> None:
    """If it failed, `ecoshare run --dry-run` would take seconds, and a simulation a gigabyte."""
    code = (
        "import sys, ecoshare.jobs.load, ecoshare.jobs.load, ecoshare.jobs.from_values; print('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout == "False\n"
