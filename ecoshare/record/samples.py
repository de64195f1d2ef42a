"""The record of a run's meters: `samples.jsonl`, one line a second at first, fewer as the run gets longer.

::

    {"session": {...}}                   a meter was opened: its joules start at 0 here (again, after `--resume`)
    {"at_s": 4.0, "energy_j": 61.2, ...  joules since then, the device's state, and the progress of each attempt there
    {"idle": {"at_s": 4.5, ...           power of the device while every job waited
    {"at_s": 5.0, ...

Each line names its device, and the lines of a device are in the order of their times. All numbers of jobs are totals
since their attempt began, so a lost line costs resolution but no joules. An attempt that has ended appears in one more
line, with its final totals.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter

from ecoshare.base import documents
from ecoshare.errors import UsageError
from ecoshare.record.kept_file import KeptFile, lacks_room

SCHEMA_VERSION = 1

_SHORTEST_S = 1.0
_LEAST_PERIODS = 5


class AttemptProgress(NamedTuple):
    """Progress of an attempt of a job so far.

    Attributes:
        lane: Lane in which the attempt runs.
        held_s: Time (s) during which the attempt held the turn.
        iterations: Number of training iterations.
        eval_iterations: Number of inference iterations.
        cpu_s: Processor time (s) of the attempt's processes.
        memory_bytes: Memory (bytes) in use on the device now; None if not known.
    """

    lane: int
    held_s: float
    iterations: int
    eval_iterations: int
    cpu_s: float
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """Session of a meter, from its opening at `at_s`.

    Attributes:
        device: Name of the device in this run.
        meter: Name of the meter.
        source: `measured` or `modelled`.
        scope: `gpu` or `cpu`.
        about: One line for the user.
        period_s: Time (s) between updates of the meter's counter.
        idle_w: Power (W) of the device at rest; None if not known yet.
        cores: Number of processors of the device; 0 for a GPU.
        looks: Part of each period in which the counter looks at the power.
    """

    at_s: float
    device: str
    meter: str
    source: str
    scope: str
    about: str
    period_s: float
    idle_w: float | None
    cores: int = 0
    schema_version: int = SCHEMA_VERSION
    looks: float = 1.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The device and its jobs at one moment.

    Attributes:
        energy_j: Joules since the session began; None if the meter gave no number.
        fault: Reason why the meter gave no number.
        power_w: Present power (W). Each field from here to `others_s` is None if the device does not report it.
        gpu_clock_mhz: Clock (MHz) of the multiprocessors.
        memory_clock_mhz: Clock (MHz) of the memory.
        temperature_c: Temperature (°C) of the chip.
        busy: Part of the last moments during which anything ran on the device, 0 to 1.
        memory_busy: Part of them during which the device's memory was read or written, 0 to 1.
        memory_bytes: Memory (bytes) in use on the device, by all processes.
        others_s: Processor time (s) that other programs have taken on these processors since ecoshare looks at it.
        away_s: Time (s) for which other runs have had the device so far, in slices; None if none shared it.
        idle_of_others_s: Part of the time (s) so far of which other runs count the idle joules; None as above.
        jobs: Progress of each attempt, by name and attempt: `name#1`.
        device: Name of the device in this run.
    """

    at_s: float
    energy_j: float | None
    fault: str = ""
    power_w: float | None = None
    gpu_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    busy: float | None = None
    memory_busy: float | None = None
    memory_bytes: int | None = None
    others_s: float | None = None
    away_s: float | None = None
    idle_of_others_s: float | None = None
    jobs: dict[str, AttemptProgress] = field(default_factory=dict)
    device: str = ""

    @property
    def in_use_bytes(self) -> int | None:
        """Memory (bytes) in use on the device: by all processes, or by the jobs if it does not report that."""
        if self.memory_bytes is not None:
            return self.memory_bytes
        known = [each.memory_bytes for each in self.jobs.values() if each.memory_bytes is not None]
        return sum(known) if known or not self.jobs else None


@dataclass(frozen=True, slots=True)
class Idle:
    """Idle power of the device, watched while no job ran but the jobs' contexts were on it.

    Attributes:
        power_w: Mean power (W) over the time that ended at `at_s`.
        standard_error_w: Standard error (W) from the counter's coarseness in time.
        device: Name of the device in this run.
    """

    at_s: float
    power_w: float
    standard_error_w: float
    device: str = ""


Line = Session | Sample | Idle


def shortest_s(period_s: float) -> float:
    """Shortest time (s) between two regular samples: one second, or five updates of the meter.

    Args:
        period_s: Time (s) between two updates of the meter's counter.
    """
    return max(_SHORTEST_S, _LEAST_PERIODS * period_s)


def attempt_key(job: str, attempt: int) -> str:
    """Name of an attempt in a sample, such as `name#1`."""
    return f"{job}#{attempt}"


def job_of(key: str) -> str:
    """Name of the job in an attempt key."""
    return key.rpartition("#")[0]


def encode(line: Line) -> str:
    """Encode one line, with its newline; a sample leaves out values that are not known."""
    if isinstance(line, Session):
        return json.dumps({"session": asdict(line)}) + "\n"
    if isinstance(line, Idle):
        return json.dumps({"idle": asdict(line)}) + "\n"
    fields = {
        name: value for name, value in asdict(line).items() if (value is not None and value != "") or name == "energy_j"
    }
    return json.dumps(fields) + "\n"


def read(path: Path) -> Iterator[Line]:
    """Yield the lines of a file; none if it does not exist. Damaged lines are left out, as is a cut last line.

    Joules around a damaged line are not known, so the next sample has none.

    Raises:
        UsageError: The file cannot be read.
    """
    try:
        with documents.open_regular(path) as file:
            yield from decode(file)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", "the run folder is damaged") from error


def decode(lines: Iterable[str | bytes]) -> Iterator[Line]:
    """Decode text lines; see `read`."""
    broken: dict[str, str] = {}  # fault of each device: a damaged line may have been any device's
    last_s: dict[str, float] = {}
    for number, text in enumerate(lines, start=1):
        try:
            line = _decode(text)
            if not isinstance(line, Session):
                # Before a run could have several devices, only the session named it.
                line = line if line.device else replace(line, device=next(iter(last_s), ""))
                if line.device not in last_s:
                    raise ValueError("no session of its device stands above it")
            if line.at_s < last_s.get(line.device, 0.0):
                raise ValueError("its time is before that of a line above it")
        except ValueError:
            broken = dict.fromkeys(last_s, f"line {number} of samples.jsonl is damaged")
            continue
        last_s[line.device] = line.at_s
        if isinstance(line, Sample) and line.device in broken:
            line = replace(line, energy_j=None, fault=broken.pop(line.device))
        yield line


def of_device(lines: Iterable[Line], device: str) -> list[Line]:
    """Lines of one device, in order."""
    return [line for line in lines if line.device == device]


class OthersLoad:
    """Load of the processors of a run by other programs, from its samples."""

    def __init__(self, lines: Iterable[Line]) -> None:
        """Add up the times between samples once: a run has many jobs, and may have many samples."""
        import numpy as np

        before, cores = dict[str, Sample](), dict[str, int]()
        spans = []
        for line in lines:
            if isinstance(line, Session):
                cores[line.device] = line.cores
                before.pop(line.device, None)
            if not isinstance(line, Sample) or line.others_s is None:
                continue
            earlier = before.get(line.device)
            before[line.device] = line
            if earlier is not None and earlier.others_s is not None:
                taken_s = max(0.0, line.others_s - earlier.others_s)
                spans.append((earlier.at_s, line.at_s, taken_s, (line.at_s - earlier.at_s) * cores[line.device]))
        # Begin, end, time that other programs took, and time of all processors (s), of shape (n, 4).
        self._spans = np.array(spans).reshape(-1, 4)

    def busy(self, from_s: float, to_s: float) -> float:
        """Part of the processors that other programs kept busy between two times, 0 to 1; 0 if it is not known.

        Times between two samples count whole.
        """
        begins_s, ends_s = self._spans[:, 0], self._spans[:, 1]
        taken_s, whole_s = self._spans[(ends_s > from_s) & (begins_s < to_s), 2:].sum(axis=0)
        return min(1.0, float(taken_s / whole_s)) if whole_s > 0.0 else 0.0


def _decode(text: str | bytes) -> Line:
    fields = documents.parse(text)
    if not isinstance(fields, dict):
        raise ValueError("it is no object")
    line: Line
    if "session" in fields:
        line = _SESSION.validate_python(fields["session"])
    elif "idle" in fields:
        line = _IDLE.validate_python(fields["idle"])
    else:
        line = _SAMPLE.validate_python(fields)
        if any(number < 0 for each in line.jobs.values() for number in each if number is not None):
            raise ValueError("a job has done less than nothing")
    if not 0.0 <= line.at_s <= documents.LONGEST_S:
        raise ValueError("its time cannot be")
    return line


_SESSION = TypeAdapter(Session)
_IDLE = TypeAdapter(Idle)
_SAMPLE = TypeAdapter(Sample)


_MOST_HELD_BYTES = 16 << 20
"""Most bytes of samples to keep in memory while the disk is full: many hours of them."""


class SampleFile:
    """`samples.jsonl` of a run that goes on. It is made with its first line: a run without any meter has none."""

    def __init__(self, path: Path, hear: Callable[[Line], None] = lambda _line: None) -> None:
        """Prepare to append to a file.

        Args:
            path: The file, which may exist.
            hear: Gets each line after it was written.
        """
        self._path, self._hear = path, hear
        self._file: KeptFile | None = None
        self._held = b""  # lines for which the disk has no room

    def write(self, line: Line) -> None:
        """Append a line. If the disk is full, it is written with a later one.

        Raises:
            OSError: The run folder cannot be made again, or the disk has been full for very long.
        """
        self._held += encode(line).encode()
        try:
            if self._file is None:
                self._file = KeptFile(self._path)
            self._file.append(self._held)
            self._held = b""
        except OSError as error:
            if not lacks_room(error) or len(self._held) > _MOST_HELD_BYTES:
                raise
        self._hear(line)

    def close(self) -> None:
        """Close the file. No more lines follow, and what the disk has no room for is lost."""
        if self._file is not None:
            if self._held:
                with contextlib.suppress(OSError):
                    self._file.append(self._held)
            self._file.close()
