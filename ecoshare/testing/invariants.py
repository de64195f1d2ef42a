"""What must hold after each event of a run, whatever its policy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from ecoshare.base.device import Device
from ecoshare.core.memory import lane_bytes
from ecoshare.core.placement.limits import clash
from ecoshare.core.records import JobState, LaneState
from ecoshare.core.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Invariants:
    """Checks of the core; each raises `AssertionError`.

    Attributes:
        core: The core.
        devices: Devices of the run so far.
        failed: Names of those that have failed.
    """

    core: Scheduler
    devices: Sequence[Device]
    failed: Collection[str]

    def check_memory(self, lanes: Iterable[int]) -> None:
        """Check that the devices of these lanes have memory for all of their jobs, those that leave included."""
        for lane in lanes:
            device = self.core.lanes[lane].device
            assert self._needed_bytes(device, leaving=True) <= device.memory_bytes, "started without room"

    def check_start(self, name: str) -> None:
        """Check that the lanes of a job that starts had places, and no service there is kept from its known target."""
        job = self.core.jobs[name]
        assert all(len(lane.jobs) <= lane.places for lane in job.lanes), "started without a place"
        beside = [each for lane in job.lanes for each in lane.jobs.values() if each is not job]
        assert not any(clash(job, each) for each in beside), "started beside a service that cannot keep its target"

    def _needed_bytes(self, device: Device, leaving: bool) -> int:
        """Memory (bytes) that the jobs of a device are granted, with or without the jobs that leave."""
        lanes = [lane for lane in self.core.lanes.values() if lane.device.name == device.name]
        jobs = [[job for job in lane.jobs.values() if leaving or not job.state.is_leaving] for lane in lanes]
        return sum(lane_bytes(job.demand for job in each) for each in jobs)

    def check(self) -> None:
        """Check the safety condition, that gangs are placed all or nothing, and that no device has too many jobs.

        Jobs that have outgrown the memory of a device leave it. Until then they take more than there is, so the safety
        condition counts them only when a job starts. On processors their grants may grow to more than there is.
        """
        for device in self.devices:
            assert device.memory_is_watched or self._needed_bytes(device, leaving=False) <= device.memory_bytes
            lanes = [lane for lane in self.core.lanes.values() if lane.device.name == device.name]
            assert sum(len(lane.jobs) for lane in lanes) <= sum(lane.places for lane in lanes)
        packs = self.core.view.placement.groups is not None  # jobs behind a group may be more than the places of a lane
        for lane in self.core.lanes.values():
            assert packs or len(lane.jobs) + len(lane.coming) <= lane.places
            if lane.device.name in self.failed:
                assert lane.state is LaneState.CLOSED
                assert all(job.state is JobState.STOPPING for job in lane.jobs.values()), "a job on a failed device"
            gangs = [job for job in lane.jobs.values() if job.spec.has_lanes_alone]
            assert not gangs or len(lane.jobs) == 1
        for job in self.core.jobs.values():
            placed = [lane for lane in self.core.lanes.values() if job.spec.name in lane.jobs]
            active = bool(job.lanes) if job.state is JobState.STOPPING else not _is_without_place(job.state)
            fewest, most = (job.spec.gpus, max(job.spec.gpus, job.spec.widest)) if active else (0, 0)
            assert fewest <= len(placed) <= most, (job.spec.name, job.state)
            assert len({lane.device.name for lane in placed}) == len(placed)
            nodes = len({lane.device.node for lane in placed})
            assert job.spec.nodes is None or nodes <= job.spec.nodes, (job.spec.name, nodes)
        assert self.core.live_jobs == sum(not job.state.ended for job in self.core.jobs.values())


def _is_without_place(state: JobState) -> bool:
    """Whether a job in this state has no place in a lane."""
    return state.ended or state.waits or state in (JobState.PAUSED, JobState.HELD)
