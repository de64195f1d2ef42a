"""A recorded run at any moment: the view that `ecoshare top` would have shown then.

The log gives states and lanes, the samples give power, clocks, memory and joules, and the traces give turns and exact
iterations. A value that was not recorded is None.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from ecoshare.queue.queue_documents import JobStatus, LaneStatus, ServiceStatus
from ecoshare.record.run_data import RunData, is_live, read
from ecoshare.record.run_folder import RunFolder
from ecoshare.record.run_view import LONG_WAIT_S
from ecoshare.record.samples import Sample, attempt_key
from ecoshare.top.recorded_devices import RecordedDevice
from ecoshare.top.recorded_energy import RecordedEnergy
from ecoshare.top.recorded_jobs import JobMoment, RecordedJobs, changes
from ecoshare.top.recorded_requests import RecordedRequests
from ecoshare.top.recorded_turns import AttemptTrace, RecordedTurns
from ecoshare.top.top_view import TopView, in_order
from ecoshare.values.attempt import Outcome
from ecoshare.values.joules import ATTRIBUTED, MEASURED, MODELLED

MOST_ENDED = 100
"""Most ended jobs that are listed."""


class RecordedRun:
    """A run at any moment of its record.

    Attributes:
        folder: Folder of the run.
        end_s: Time (s) of the last event or sample.
        goes_on: Whether the run was still in progress when it was read.
    """

    def __init__(self, folder: RunFolder) -> None:
        """Read the record of a run.

        Raises:
            UsageError: The folder is damaged.
        """
        self.folder = folder
        self.goes_on = is_live(folder)
        self._data = data = read(folder, packings=False)
        self.end_s = data.end_s()
        self._energy, self._turns = RecordedEnergy(data.energy), RecordedTurns(folder)
        self._jobs = RecordedJobs(changes([*data.history.entries, *data.history.unlogged], _ends(data)))
        by_lane: dict[str, list[int]] = defaultdict(list)
        for number, lane in sorted(data.history.lanes.items()):
            by_lane[lane.device].append(number)
        self._lanes = by_lane
        self._devices = [RecordedDevice(data, each, self._energy.devices) for each in data.summary.devices]
        self._is_measured = all(each.source == MEASURED for each in self._devices if each.source)
        self._services = {name: RecordedRequests(each) for name, each in data.requests.items()}

    def at(self, at_s: float) -> TopView:
        """The run at a time (s) since it was opened."""
        moments = self._jobs.at(at_s)
        samples = [each.sample(at_s) for each in self._devices]
        traces = {job.name: self._turns.of(job.name, job.attempt) for job in moments.values() if job.lanes}
        jobs = [self._job(job, at_s, samples, traces.get(job.name)) for job in self._listed(moments)]
        jobs += self._sweeps(moments)
        listed, waiting = in_order(jobs)
        return TopView(
            f"run {self.folder.path.name}",
            self._data.summary.policy,
            at_s,
            None,
            tuple(each.at(at_s, self._lane_statuses(each.name, moments, traces, at_s)) for each in self._devices),
            listed,
            waiting,
        )

    def _listed(self, moments: Mapping[str, JobMoment]) -> list[JobMoment]:
        """Jobs of the job file, without those that have ended long ago."""
        own = [job for job in moments.values() if not job.sweep]
        ended = sorted((job for job in own if job.ended_s is not None), key=lambda job: job.ended_s or 0.0)
        old = {job.name for job in ended[:-MOST_ENDED]}
        return [job for job in own if job.name not in old]

    def _job(
        self, job: JobMoment, at_s: float, samples: Iterable[Sample | None], trace: AttemptTrace | None
    ) -> JobStatus:
        trained, evaluated, rate = job.trained, job.evaluated, None
        key = attempt_key(job.name, job.attempt)
        for sample in samples if job.lanes else ():
            if sample is not None and (progress := sample.jobs.get(key)) is not None:
                trained, evaluated = max(trained, progress.iterations), max(evaluated, progress.eval_iterations)
        if trace is not None and job.state == "running":
            marked = trace.training(at_s)
            trained, evaluated = max(trained, marked), max(evaluated, trace.done(at_s) - marked)
            rate = trace.rate(at_s)
        waits_s, behind = self._wait(job, at_s)
        if waits_s:
            rate = None
        energy_j = self._energy.job(job.name, at_s)
        left = max(0, job.total - trained) if job.total is not None else None
        devices = self._data.history.devices_of(job.lanes) if len(self._devices) > 1 else ()
        service = self._service(job, at_s)
        return JobStatus(
            name=job.name,
            state=job.state,
            submitted_unix_s=job.arrived_s,
            started_unix_s=job.began_s,
            ended_unix_s=job.ended_s,
            exit_code=job.exit_code,
            reason=job.reason,
            priority=job.priority,
            attempts=job.attempt,
            iterations=trained or evaluated,
            of_iterations=job.total,
            by_steps=job.by_steps,
            iterations_per_s=None if service is not None else rate,
            turn_wait_s=waits_s,
            behind=list(behind),
            expected_end_unix_s=at_s + left / rate if left is not None and rate and service is None else None,
            energy_j=energy_j,
            energy_source="" if energy_j is None else ATTRIBUTED if self._is_measured else MODELLED,
            service=service,
            lanes=list(job.lanes),
            devices=list(devices),
            run=str(self.folder.path),
        )

    def _wait(self, job: JobMoment, at_s: float) -> tuple[float, tuple[str, ...]]:
        if self._data.account is None or job.state != "running":
            return 0.0, ()
        waits_s, behind = self._data.account.wait(job.name, at_s)
        return (waits_s, behind) if waits_s >= LONG_WAIT_S else (0.0, ())

    def _service(self, job: JobMoment, at_s: float) -> ServiceStatus | None:
        spec = self._data.history.of(job.name).spec
        if spec is None or spec.service is None:
            return None
        requests = self._services.get(job.name) or RecordedRequests(())
        return requests.at(at_s, spec.service.p99_s)

    def _sweeps(self, moments: Mapping[str, JobMoment]) -> list[JobStatus]:
        """A row for each sweep of which trials have arrived."""
        trials: dict[str, list[JobMoment]] = defaultdict(list)
        for job in moments.values():
            if job.sweep:
                trials[job.sweep].append(job)
        counts = {each.name: each.trials for each in self._data.summary.sweeps}
        rows = []
        for name, own in trials.items():
            ended = Counter(job.state for job in own if job.ended_s is not None)
            known = counts.get(name)
            count = known if known is not None else len(own)
            is_over = sum(ended.values()) >= count
            began = [job.began_s for job in own if job.began_s is not None]
            rows.append(
                JobStatus(
                    name=name,
                    state=("completed" if ended["completed"] else "failed") if is_over else "running",
                    submitted_unix_s=min(job.arrived_s for job in own),
                    started_unix_s=min(began, default=None),
                    ended_unix_s=max(job.ended_s or 0.0 for job in own) if is_over else None,
                    trials=count,
                    ended_trials=dict(ended),
                    run=str(self.folder.path),
                )
            )
        return rows

    def _lane_statuses(
        self, device: str, moments: Mapping[str, JobMoment], traces: Mapping[str, AttemptTrace], at_s: float
    ) -> list[LaneStatus]:
        inside: dict[int, list[str]] = {number: [] for number in self._lanes[device]}
        for job in moments.values():
            for lane in job.lanes:
                if lane in inside:
                    inside[lane].append(job.name)
        return [
            LaneStatus(number=number, jobs=jobs, holder=next((job for job in jobs if traces[job].holds(at_s)), ""))
            for number, jobs in inside.items()
        ]


def _ends(data: RunData) -> dict[str, str]:
    """State of each job at the end of the record. A job that was preempted in a run that goes on waits."""
    ends = {job.name: job.state for job in data.summary.jobs}
    history = data.history
    if data.summary.state != "running" or history.is_stopped:
        return ends
    for name in ends:
        told = history.of(name)
        is_stopped = told.exit is not None and told.exit.outcome is Outcome.STOPPED
        if is_stopped and not told.is_pruned and name not in history.cancelled:
            ends[name] = "queued"
    return ends
