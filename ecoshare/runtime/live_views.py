"""Present state of a run, for displays: its jobs, devices and services."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ecoshare.base.attempt import Usage
from ecoshare.base.device import DeviceInfo
from ecoshare.base.plural import listed
from ecoshare.core.records import Job, JobState, Step
from ecoshare.jobs.quantities import format_duration
from ecoshare.record.accounts.alone_time import by_counters
from ecoshare.record.run_view import (
    LONG_WAIT_S,
    SILENT_S,
    DeviceStatus,
    JobView,
    LaneStatus,
    RunView,
    SweepView,
)
from ecoshare.runtime.planning.planned_job import PlannedJob
from ecoshare.runtime.planning.planned_sweeps import PlannedSweep
from ecoshare.runtime.run import Run


class RunViews:
    """Reads the parts of a run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._unplaced: dict[str, tuple[Step | None, Usage, JobView]] = {}

    def run(self) -> RunView:
        """State of all jobs that were submitted, and of the trials that have not ended."""
        jobs = self._run.jobs
        # Trials of earlier sessions that run again are among them. Those that have ended may be forgotten.
        own = {job.spec.name: job for job in self._run.plan.jobs if job.spec.name in jobs}
        own |= {name: job for name, job in jobs.items() if not job.spec.sweep}
        trials = (jobs[name] for name in self._run.sweeping.live if name not in own)
        return RunView(
            at_s=self._run.now_s(),
            jobs=(*map(self._job, own.values()), *map(self._view, trials)),
            sweeps=tuple(self._sweep(sweep) for sweep in self._run.arrivals.sweeps.values()),
            stopping=self._run.core.stopping,
            warm=self._run.node.ready is not None,
            warnings=self.warnings(),
        )

    def warnings(self) -> dict[str, str]:
        """Present troubles in words, by subject: those of other parts, and turns that are held without an iteration."""
        found = dict(self._run.warnings)
        readings = {name: self._run.node.attempt(name) for name in self._run.node.in_progress}
        for name, held in readings.items():
            if held.silent_s < SILENT_S:
                continue
            lanes = set(held.turns)
            waiting = [each for each, own in readings.items() if own.waits_s >= SILENT_S and lanes & set(own.lanes)]
            if waiting:
                found[f"turn of {name}"] = self._held_turn(name, held.silent_s, waiting)
        return found

    def _held_turn(self, name: str, silent_s: float, waiting: Sequence[str]) -> str:
        planned = self._run.jobs.get(name)
        is_service = planned is not None and planned.spec.service is not None
        what = "in one call" if is_service else "without the end of an iteration"
        waits = f"{listed(waiting)} {'waits' if len(waiting) == 1 else 'wait'}"
        words = f"{name} has had its turn for {format_duration(round(silent_s))} {what}, and {waits}"
        if self._run.plan.queue:
            return f"{words}: `ecoshare cancel {name} --now --queue {self._run.plan.queue}` ends it"
        return f"{words}: `timeout:` in its job file would end it"

    def keep_only(self, names: Collection[str]) -> None:
        """Forget the views of all other jobs."""
        for name in self._unplaced.keys() - names:
            del self._unplaced[name]

    def job(self, name: str) -> JobView | None:
        """State of one job; None if there is none of this name."""
        planned = self._run.jobs.get(name)
        return None if planned is None else self._job(planned)

    def sweep(self, name: str) -> SweepView | None:
        """State of one sweep; None if there is none of this name."""
        sweep = self._run.arrivals.sweeps.get(name)
        return None if sweep is None else self._sweep(sweep)

    def _sweep(self, sweep: PlannedSweep) -> SweepView:
        ended = self._run.sweeping.ended_in[sweep.name]
        return SweepView(
            name=sweep.name,
            trials=sweep.options.count,
            ended={state.value: ended[state] for state in JobState if ended[state]},
            best=self._run.sweeping.best.get(sweep.name),
        )

    def _job(self, planned: PlannedJob) -> JobView:
        """View of a job of the file. Without a place, a job changes with a move only: its last view holds."""
        name = planned.spec.name
        job, known = self._run.core.jobs.get(name), self._unplaced.get(name)
        if name in self._run.arrivals.names_to_come:
            return self._view(planned)
        if job is None and known is not None and JobState(known[2].state).ended:
            return known[2]  # a segment of the log has begun since then
        if job is None or name in self._run.node.in_progress:
            return self._view(planned)
        step, usage = job.history[-1] if job.history else None, job.usage
        if known is None or known[0] is not step or known[1] is not usage:
            known = self._unplaced[name] = (step, usage, self._view(planned))
        return known[2]

    def _view(self, planned: PlannedJob) -> JobView:
        name, is_learned = planned.spec.name, planned.learned is not None
        job = self._run.core.jobs.get(name)
        if job is None:
            reason = self._run.arrivals.never.get(name, "")
            return JobView(
                name,
                JobState.CANCELLED.value if reason else "arriving",
                (),
                False,
                0,
                0,
                planned.spec.iterations,
                None,
                None,
                reason=reason,
                is_learned=is_learned,
                waits_for=self._run.arrivals.gate.waits_for(name),
            )
        reading = self._run.node.attempt(name) if name in self._run.node.in_progress else None
        service, usage = planned.spec.service, job.usage if reading is None else reading.usage
        done, total = usage.done, planned.spec.iterations
        iterations = job.earlier_iterations + int(job.counts_for * usage.iterations)
        alone = by_counters(usage, self._run.plan.lanes, None)
        is_known = done > 1 and usage.span_s > 0 and service is None
        waits_s = 0.0 if reading is None or reading.waits_s < LONG_WAIT_S else reading.waits_s
        rate = job.counts_for * (done - 1) / usage.span_s if is_known and not waits_s else None
        if is_learned and total is not None and iterations > total:
            total = None
        return JobView(
            name=name,
            state=JobState.QUEUED.value if job.resumable and self._run.plan.queue else job.state.value,
            lanes=tuple(lane.number for lane in job.lanes) if reading is not None else (),
            holding=reading is not None and reading.holding,
            iterations=iterations,
            eval_iterations=usage.eval_iterations,
            total=total,
            rate=rate,
            slowdown=alone.slowdown if alone is not None and service is None else None,
            reason=job.history[-1].cause if job.state is JobState.FAILED else "",
            is_learned=is_learned,
            devices=job.device_names if reading is not None and len(self._run.devices) > 1 else (),
            service=self._run.requests.view(name, service) if service is not None else None,
            metric=self._run.sweeping.metric_of(name),
            by_steps=usage.by_steps,
            by_time=usage.by_time and service is None,
            turn_wait_s=waits_s,
            behind=self._holders(job) if waits_s else (),
        )

    def _holders(self, job: Job) -> tuple[str, ...]:
        """Other jobs that have a turn on the devices of a job."""
        lanes = (lane for device in job.device_names for lane in self._run.node.device(device).lanes.values())
        return tuple(dict.fromkeys(lane.holder for lane in lanes if lane.holder and lane.holder != job.spec.name))

    def devices(self) -> tuple[DeviceStatus, ...]:
        """State of each device now, in the order of the plan."""
        return tuple(map(self._device, self._run.devices))

    def _device(self, device: DeviceInfo) -> DeviceStatus:
        now, reading = self._run.node.device(device.name), self._run.energy.device(device.name)
        sample = reading.sample if reading is not None else None
        lanes = [
            LaneStatus(number=number, jobs=list(self._run.core.lanes[number].jobs), holder=lane.holder)
            for number, lane in sorted(now.lanes.items())
            if number in self._run.core.lanes  # a segment of the log has no lanes of failed devices
        ]
        return DeviceStatus(
            name=device.name,
            described=device.described,
            lanes=lanes,
            memory_total_bytes=device.memory_bytes,
            failed=now.failed,
            setting=dict(now.setting),
            power_w=reading.power_w if reading is not None else None,
            energy_j=reading.energy_j if reading is not None else None,
            energy_source=reading.source if reading is not None else "",
            gpu_clock_mhz=sample.gpu_clock_mhz if sample is not None else None,
            memory_clock_mhz=sample.memory_clock_mhz if sample is not None else None,
            temperature_c=sample.temperature_c if sample is not None else None,
            busy=sample.busy if sample is not None else None,
            memory_bytes=sample.in_use_bytes if sample is not None else None,
        )
