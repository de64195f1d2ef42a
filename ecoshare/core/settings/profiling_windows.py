"""Profiling windows: which jobs are measured alone in the middle of a run, and the memory demands found so far.

A window pauses the other jobs of its device. So none is opened beside a service, and none for a service.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection

from ecoshare.base.attempt import Usage
from ecoshare.base.class_profile import MemoryDemand
from ecoshare.base.device import Device
from ecoshare.core.events import Profiled
from ecoshare.core.records import Job, JobState, Lane

WARM_UP_ITERATIONS, WARM_UP_S = 10, 1.0
"""Iterations and turn time (s) that a job needs before its window.

The first iterations allocate memory, choose kernels and fill caches.
"""

SHORTEST_REST_S, ON_PROCESSORS_S, FEWEST_ITERATIONS = 5.0, 1.0, 25
"""Remaining turn time (s) and iterations with fewer of which a job gets no window, because it would end in it.

A window observes the memory of some iterations, lets some more pass, and then times at least ten. The counter of a GPU
needs three seconds of them. On processors a second does, and what was timed counts if the job ends before more is.
"""

MOST_WINDOWS, PAUSE_S = 3, 30.0
"""Windows for a class in one run, and the back-off (s) after a failed one, times the number of windows so far.

The cause of the failure, such as a neighbour that loads its data, must go away first.
"""


class Profiling:
    """Windows of a run: one at a time on a device, and one at a time for a class.

    Attributes:
        memory: Memory demand of each class that was measured in this run.
        windows: Jobs that are measured now, by the id of the `ProfileJob` command.
        others: Number of other runs that share the devices now: nothing is measured beside them.
    """

    def __init__(self, wanted: bool, on_processors: bool = False) -> None:
        """Profiling without measurements so far.

        Args:
            wanted: Whether jobs are measured in this run.
            on_processors: Whether the devices are processors.
        """
        self._asked, self._on_processors = wanted, on_processors
        self.others = 0
        self.memory: dict[str, MemoryDemand] = {}
        self.windows: dict[int, Job] = {}
        self._devices: dict[str, int] = {}
        self._measured_on: dict[str, Device] = {}
        self._classes: set[str] = set()  # measured, or in a window now
        self._tries: Counter[str] = Counter()
        self._not_before_s: dict[str, float] = {}

    @property
    def _wanted(self) -> bool:
        return self._asked and not self.others

    def wants(self, job: Job, at_s: float) -> bool:
        """Whether a window for this job should begin now."""
        return (
            self._wanted
            and job.state is JobState.RUNNING
            and not job.spec.profiled
            and len(job.lanes) == 1
            and job.spec.service is None
            and job.spec.job_class not in self._classes
            and self._tries[job.spec.job_class] < MOST_WINDOWS
            and at_s >= self._not_before_s.get(job.spec.job_class, 0.0)
            and _is_warm(job.usage)
            and not self.ends_soon(job, at_s)
            and not any(self.occupies(lane) for lane in job.lanes)
        )

    def will(self, job: Job) -> bool:
        """Whether a job that starts now may get a window: its class has no profile and was not given up."""
        name, spec = job.spec.job_class, job.spec
        known = spec.profiled or name in self._classes or self._tries[name] >= MOST_WINDOWS
        return self._wanted and not known and spec.gpus == 1 and spec.service is None

    def has_tried(self, job: Job) -> bool:
        """Whether the class of a job has had a window in this run, which may have failed."""
        return self._tries[job.spec.job_class] > 0

    def comes_up(self, job: Job, at_s: float) -> bool:
        """Whether a job that has just started has no iteration yet, so that it cannot be made to wait for a window.

        A job that has none for long may never have any, and does not put windows off.
        """
        has_begun = job.state is JobState.RUNNING and job.usage.done > 0
        return not has_begun and not job.state.is_leaving and at_s - job.history[-1].at_s < PAUSE_S

    def too_short(self, job: Job, at_s: float) -> bool:
        """Whether a running job will end before its class can be measured."""
        return self.will(job) and _is_warm(job.usage) and self.ends_soon(job, at_s)

    def ends_soon(self, job: Job, at_s: float) -> bool:
        """Whether a job would end before its window is over, as far as its remaining time is known."""
        rest_s, usage = job.remaining_s(at_s), job.usage
        if rest_s is None:
            return False
        iteration_s = usage.iteration_s or (job.spec.solo.iteration_s if job.spec.solo is not None else None)
        to_do = rest_s / iteration_s if iteration_s else math.inf
        done, held_s = min(usage.done, WARM_UP_ITERATIONS), min(usage.held_s, WARM_UP_S)
        return not is_long_enough(held_s + rest_s, done + to_do, self._on_processors)

    def settled(self, job: Job, beside_service: bool) -> bool:
        """Whether a running job is warm and will get no window any more, as none does beside a service."""
        if job.spec.service is not None:
            return job.usage.done >= WARM_UP_ITERATIONS
        name = job.spec.job_class
        measured = name in self._classes and all(each.spec.job_class != name for each in self.windows.values())
        given_up = self._tries[name] >= MOST_WINDOWS or len(job.lanes) > 1
        none_comes = not self._wanted or beside_service or job.spec.profiled or measured or given_up
        return _is_warm(job.usage) and none_comes

    def all_settled(self, jobs: Collection[Job]) -> bool:
        """Whether all running jobs of a device are settled."""
        serves = any(job.spec.service is not None for job in jobs)
        return all(self.settled(job, serves) for job in jobs)

    def begin(self, command: int, job: Job) -> None:
        """Note that a window for this job begins with this command."""
        self.windows[command] = job
        self._classes.add(job.spec.job_class)
        self._tries[job.spec.job_class] += 1
        self._measured_on[job.spec.job_class] = job.lanes[0].device
        self._devices.update({lane.device.name: command for lane in job.lanes})

    def devices_of(self, command: int) -> list[str]:
        """Devices of the window that began with this command."""
        return [device for device, begun in self._devices.items() if begun == command]

    def ended(self, event: Profiled) -> str:
        """Close a window and return its class.

        The device is free for other windows again. The class is known unless the window failed.
        """
        name = self.windows.pop(event.command).spec.job_class
        self._devices = {device: command for device, command in self._devices.items() if command != event.command}
        if event.error:
            self._classes.discard(name)
            self._not_before_s[name] = event.at_s + PAUSE_S * self._tries[name]
        elif event.memory is not None:
            self.memory[name] = event.memory
        return name

    def speed_where_measured(self, job_class: str) -> float:
        """Relative speed of a class on the device of its last window; 1 if it had none."""
        device = self._measured_on.get(job_class)
        return device.speed(job_class) if device is not None else 1.0

    def drop(self, device: str) -> list[int]:
        """Forget the window on a failed device, as if it had not begun. Returns its command."""
        command = self._devices.pop(device, None)
        if command is None:
            return []
        name = self.windows.pop(command).spec.job_class
        self._classes.discard(name)
        self._tries[name] -= 1
        return [command]

    def occupies(self, lane: Lane) -> bool:
        """Whether a window is open on the device of the lane. No job may start there meanwhile."""
        return lane.device.name in self._devices


def is_long_enough(turn_s: float, iterations: float, on_processors: bool) -> bool:
    """Whether a job with so much turn time (s) and so many iterations lasts until its window is over."""
    window_s = ON_PROCESSORS_S if on_processors else SHORTEST_REST_S
    return turn_s >= WARM_UP_S + window_s and iterations >= WARM_UP_ITERATIONS + FEWEST_ITERATIONS


def _is_warm(usage: Usage) -> bool:
    return usage.done >= WARM_UP_ITERATIONS and usage.held_s >= WARM_UP_S
