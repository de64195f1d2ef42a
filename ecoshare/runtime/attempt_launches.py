"""Makes the messages that start attempts: what each process sees of its devices, its lanes and its fellow ranks."""

from __future__ import annotations

from collections.abc import Sequence

from ecoshare.core.commands import StartJob
from ecoshare.devices.registry import vendor
from ecoshare.lane.messages import LaunchAttempt
from ecoshare.runtime.attempts import Attempts, LiveAttempt
from ecoshare.runtime.loopback_ports import LoopbackPorts
from ecoshare.runtime.node_parts import NodeParts


class AttemptLaunches:
    """Launches of a run."""

    def __init__(self, parts: NodeParts, attempts: Attempts) -> None:
        """No launch yet.

        Args:
            parts: Parts of the node.
            attempts: Attempts in progress, and the lanes' tables.
        """
        self._parts, self._attempts = parts, attempts
        self._devices = {each.device.name: each.device for each in parts.devices}
        self._ports = LoopbackPorts()
        self._environments: dict[tuple[str, ...], dict[str, str | None]] = {}  # key: names of devices

    def launch(self, command: StartJob, own: LiveAttempt, names: Sequence[str]) -> LaunchAttempt:
        """Message that starts an attempt.

        Args:
            command: Command of the core.
            own: The attempt, which has its slots.
            names: Names of its devices, in the order of the slots.

        Raises:
            OSError: No port is left for the rendezvous of ranks.
            UnfitEnvironment: The table of a gang cannot be written.
        """
        job = own.job
        return job.launch(
            command,
            [(self._attempts.tables[lane].path, slot) for lane, slot in own.places],
            self._parts.folder.job(command.job),
            [self._devices[name] for name in names],
            {**self._environment(tuple(names)), **self._behind(own)},
            self._parts.began_s,
            process_bytes=self._devices[names[0]].memory_bytes,
            machine_bytes=sum(each.memory_bytes for each in self._devices.values() if each.on_processors),
            context_bytes=self._parts.context_bytes(job.spec.job_class),
            master_port=self._ports.take() if job.has_ranks and job.part is None else 0,
            gang_table=self._attempts.gang_table(own) if job.has_ranks else "",
            measures_answers=self._parts.profiler.stops_the_run,
        )

    def take_port(self) -> int:
        """A port for the rendezvous of a gang that has its rank 0 here.

        Raises:
            OSError: No port is left.
        """
        return self._ports.take()

    def _behind(self, own: LiveAttempt) -> dict[str, str | None]:
        """Variables that let a job in another lane of the device give way to services."""
        return self._parts.sharing.behind if self._parts.plan.serves and own.job.spec.service is None else {}

    def close(self) -> None:
        """Give the ports back. No more launches follow."""
        self._ports.close()

    def _environment(self, names: tuple[str, ...]) -> dict[str, str | None]:
        """Changes to the environment of a job on these devices."""
        if names not in self._environments:
            devices = [self._devices[name] for name in names]
            shown = vendor(devices[0].vendor).environment(devices)
            self._environments[names] = {**shown, **self._parts.sharing.environment}
        return self._environments[names]
