"""Checks what this machine offers for sharing and measuring, with evidence and remedies."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from ecoshare.base import machine_memory
from ecoshare.base.disk import RUNS, SHARED_MEMORY, memory_folder
from ecoshare.base.plural import counted
from ecoshare.base.printable import last_line
from ecoshare.devices import registry
from ecoshare.devices.control.state_folder import STATE_HINT, StateFolder
from ecoshare.devices.knob_survey import survey
from ecoshare.devices.meter import processors_power_model
from ecoshare.devices.nvidia import cuda_checkpoint, mps
from ecoshare.devices.processor_load import LoadWatch
from ecoshare.devices.torch_build import TorchBuild
from ecoshare.errors import EcoshareError, UnfitEnvironment
from ecoshare.jobs.quantities import format_size
from ecoshare.knowledge.profiles_folder import default_folder
from ecoshare.lane.tables import shared_memory
from ecoshare.reporting.tables.text_table import TableColumn, print_columns

_WATCHED_S = 0.5
"""Time (s) for which the load of other programs is watched."""

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}
_TORCH = """
import json, torch
print(json.dumps({"version": torch.__version__, "threads": torch.get_num_threads(), "cuda": torch.version.cuda,
                  "hip": torch.version.hip, "available": torch.cuda.is_available(),
                  "architectures": getattr(torch._C, "_cuda_getArchFlags", str)()}))
"""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of one check.

    Attributes:
        verdict: `ok`; `warn` if a feature is missing or works worse; `fail` if no job can run.
        evidence: Observation, in words.
        remedy: Remedy or consequence, in words; empty if there is none.
    """

    subject: str
    verdict: str
    evidence: str
    remedy: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def examine() -> list[CheckResult]:
    """Results of all checks, in the order in which a run needs the features."""
    return [
        _system(),
        _torch(),
        *_gpus(),
        _processors(),
        _load(),
        _shared_memory(),
        _mps(),
        _parked_jobs(),
        _gpu_meter(),
        _processor_meter(),
        _control(),
        _search(),
        *_folders(),
    ]


def print_findings(findings: list[CheckResult], console: Console) -> None:
    """Print results as a table, each remedy below its evidence."""
    evidence = []
    for finding in findings:
        text = Text(finding.evidence)
        if finding.remedy:
            text.append(f"\n→ {finding.remedy}", style="italic")
        evidence.append(text)
    verdicts = [Text(finding.verdict, style=_COLOURS[finding.verdict]) for finding in findings]
    subjects = [Text(finding.subject) for finding in findings]
    print_columns(
        [TableColumn(None, verdicts), TableColumn(None, subjects), TableColumn(None, evidence, is_prose=True)], console
    )


def _system() -> CheckResult:
    evidence = f"{sys.platform}, Python {sys.version.split()[0]}"
    if not shared_memory.has_futex():
        return CheckResult("system", "fail", evidence, "sharing needs Linux on x86-64 or arm64")
    return CheckResult("system", "ok", evidence)


def _torch() -> CheckResult:
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _TORCH], capture_output=True, text=True, timeout=120, check=False
        )
    except subprocess.TimeoutExpired:
        return CheckResult("torch", "fail", "importing torch took over two minutes", "see whether the disk answers")
    if done.returncode:
        said = last_line(done.stderr) or "no reason given"
        return CheckResult("torch", "fail", f"cannot be imported: {said}", f"{sys.executable} -m pip install torch")
    seen = json.loads(done.stdout)
    evidence = f"torch {seen['version']}, {seen['threads']} intra-op threads, CUDA build {seen['cuda'] or 'none'}"
    try:
        if gpus := registry.preferred(registry.visible_gpus()):
            build = TorchBuild(seen["version"], seen["cuda"] or "", seen["hip"] or "", seen["architectures"] or "")
            registry.check_torch(gpus, build)
    except UnfitEnvironment as error:
        return CheckResult("torch", "warn", str(error), f"{error.hint}; jobs on the processors run")
    if seen["cuda"] and not seen["available"]:
        return CheckResult("torch", "warn", evidence + ", but no GPU that it can use", "see `nvidia-smi`; CPU jobs run")
    return CheckResult("torch", "ok", evidence)


def _gpus() -> list[CheckResult]:
    try:
        found = registry.visible_gpus()
    except EcoshareError as error:
        return [CheckResult("device", "warn", str(error), error.hint)]
    if not found:
        return [
            CheckResult("device", "warn", "no GPU: there is no driver of one, or it shows none", "jobs share the CPU")
        ]
    findings = []
    for gpu in found:
        evidence = f"{gpu.name} {gpu.model}, {format_size(gpu.free_bytes)} of {format_size(gpu.total_bytes)} free"
        evidence += f", {gpu.uuid}, driver {gpu.driver}" + (
            f", compute mode {gpu.compute_mode}" if gpu.compute_mode else ""
        )
        if gpu.unfit:
            findings.append(CheckResult("device", "warn", evidence, f"it {gpu.unfit}"))
        elif gpu.compute_mode == "exclusive_process":
            findings.append(CheckResult("device", "warn", evidence, "only one process may use it, unless MPS runs"))
        else:
            findings.append(CheckResult("device", "ok", evidence))
    return findings


def _processors() -> CheckResult:
    device = registry.processors()
    return CheckResult(
        "processors",
        "ok",
        f"{device.model}, {counted(device.cores, 'core')}, {format_size(device.memory_bytes)} for jobs",
    )


def _load() -> CheckResult:
    watch = LoadWatch.begin()
    time.sleep(_WATCHED_S)
    if words := watch.words():
        return CheckResult("other programs", "warn", words, "profiles that are made now are measured again later")
    return CheckResult("other programs", "ok", "leave the processors to jobs")


def _shared_memory() -> CheckResult:
    if memory_folder() != SHARED_MEMORY:
        evidence = f"{SHARED_MEMORY} cannot be written"
        return CheckResult("shared memory", "warn", evidence, "lane tables go to the temporary folder")
    free_bytes = shutil.disk_usage(SHARED_MEMORY).free
    small = free_bytes < 1 << 20
    remedy = "lane tables and DataLoader workers need it (docker: --shm-size)" if small else ""
    evidence = f"{SHARED_MEMORY} has {format_size(free_bytes)} free"
    return CheckResult("shared memory", "warn" if small else "ok", evidence, remedy)


def _mps() -> CheckResult:
    if (daemon := mps.running()) is not None:
        return CheckResult("MPS", "ok", f"a daemon answers at {daemon.pipes}")
    if shutil.which(mps.CONTROL) is not None:
        return CheckResult("MPS", "ok", "not running; a run with several lanes starts one of its own")
    return CheckResult(
        "MPS",
        "warn",
        f"{mps.CONTROL} is not installed",
        "lanes of one GPU alternate by the driver's time slices",
    )


def _parked_jobs() -> CheckResult:
    """Whether the memory of jobs that wait can leave the device: `ecoshare run --host-memory SIZE`."""
    subject = "parked jobs"
    try:
        found = registry.visible_gpus()
        if not found:
            return _swap(subject)
        registry.vendor(found[0].vendor).memory_transfer(found[0], os.environ)
    except EcoshareError as error:
        return CheckResult(subject, "warn", str(error), error.hint)
    evidence = f"`run --host-memory SIZE` moves memory of jobs that wait from {found[0].name} to the host"
    if risk := cuda_checkpoint.kernel_module_risk():
        return CheckResult(subject, "warn", f"{evidence}; {risk}", "the reports name the open module only")
    return CheckResult(subject, "ok", evidence)


def _swap(subject: str) -> CheckResult:
    free_bytes = machine_memory.free_swap_bytes()
    if free_bytes:
        evidence = f"`run --host-memory SIZE` moves memory of jobs that wait to swap ({format_size(free_bytes)} free)"
        return CheckResult(subject, "ok", evidence)
    remedy = "jobs that wait are only paused, and their memory counts as host memory; a swap file would take it"
    return CheckResult(subject, "warn", "there is no free swap", remedy)


def _gpu_meter() -> CheckResult:
    try:
        found = registry.visible_gpus()
        if not found:
            return CheckResult("GPU energy", "warn", "no GPU to meter", "joules are those of the processors")
        meter = registry.open_device(found[0]).open_meter()
    except EcoshareError as error:
        return CheckResult("GPU energy", "warn", str(error), error.hint or "joules are modelled from the power limit")
    return CheckResult("GPU energy", "ok", meter.info.about)


def _processor_meter() -> CheckResult:
    try:
        device = registry.processors()
        meter = registry.open_device(device).open_meter()
    except EcoshareError as error:
        remedy = f"joules are modelled from processor time: {processors_power_model(device.cores).source}"
        return CheckResult("CPU energy", "warn", str(error), f"{error.hint}; {remedy}" if error.hint else remedy)
    return CheckResult("CPU energy", "ok", meter.info.about)


def _control() -> CheckResult:
    """Knobs that `ecoshare tune` can set; `ecoshare devices` has the details."""
    subject = "clocks and power"
    try:
        found = survey(StateFolder.of_this_user())
    except EcoshareError as error:
        return CheckResult(subject, "warn", str(error), error.hint)
    if left := [device for device in found if device.left is not None and device.user is None]:
        return CheckResult(
            subject, "warn", f"a run that died has left settings on {left[0].name}", "`ecoshare restore`"
        )
    settable = [device for device in found if device.knobs]
    if not settable:
        return CheckResult(subject, "warn", "this machine offers no knobs", "jobs run and are metered all the same")
    device = settable[0]
    names = ", ".join(knob.spec.name for knob in device.knobs)
    if not device.access.allowed:
        evidence = f"{names} of {device.name} may not be set: {device.access.how}"
        return CheckResult(subject, "warn", evidence, device.access.remedy)
    return CheckResult(
        subject,
        "ok",
        f"{names} of {device.name} may be set {device.access.how}: by `tune`, and by `run` to what it has found",
    )


def _search() -> CheckResult:
    """Whether `run` searches settings. A run itself gives the reason against it only once."""
    from ecoshare.devices.registry import check_meter  # imports modules that only a run needs

    subject = "search"
    try:
        device = registry.find(None)
        check_meter(device)
    except EcoshareError as error:
        return CheckResult(subject, "warn", f"no setting is searched: {error}", "jobs run and share all the same")
    return CheckResult(subject, "ok", f"joules of {device.name} are measured: settings that may be set are searched")


def _folders() -> list[CheckResult]:
    """Folders that ecoshare writes to for this user, from the present folder and environment."""
    state = StateFolder.of_this_user()
    findings = [
        _folder("state", state.journals, "queues, journals of clocks and power", STATE_HINT),
        _folder("locks", state.locks, "devices in use, for all users", STATE_HINT),
    ]
    try:
        profiles, hint = default_folder(), "ECOSHARE_PROFILES or --profiles names another folder"
        findings.append(_folder("profiles", profiles, "what runs have learned of scripts", hint))
    except EcoshareError as error:
        findings.append(CheckResult("profiles", "warn", str(error), error.hint))
    findings.append(_folder("runs", RUNS.absolute(), "runs that begin here", "--runs names another folder"))
    return findings


def _folder(subject: str, path: Path, content: str, hint: str) -> CheckResult:
    existing = next(each for each in (path, *path.parents) if each.exists())
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        return CheckResult(subject, "ok", f"{path}: {content}")
    return CheckResult(subject, "warn", f"{existing} cannot be written", hint)
