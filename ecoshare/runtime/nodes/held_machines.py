"""The machines that a run holds: their devices, and the way to open its node on them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ecoshare.base.device import DeviceInfo
from ecoshare.devices import registry
from ecoshare.devices.meter import PowerModel, gpu_power_model
from ecoshare.devices.occupancy import DeviceAdmission, Occupancy, occupied
from ecoshare.record.run_folder import unwritable
from ecoshare.runtime.nodes.run_host import LocalHost, RunHost
from ecoshare.runtime.planning.planned_limits import ParkingHost, PlannedMachines, device_limits_w, parking_host
from ecoshare.runtime.signals import StopSignals

if TYPE_CHECKING:
    from ecoshare.runtime.measuring.run_claims import OneSearch
    from ecoshare.runtime.nodes.node_opening import OpenedNode
    from ecoshare.runtime.run import Run


FindDevices = Callable[[], tuple[DeviceInfo, ...]]
"""Finds devices of this machine."""


class HeldMachines(PlannedMachines, Protocol):
    """Machines that a run holds until it ends."""

    @property
    def is_shared(self) -> bool:
        """Whether another run uses one of the devices."""
        ...

    def tell(self, run: Path) -> None:
        """Name the run folder to runs that wait for a device or are refused it."""
        ...

    def host(self, token: str, log: Path, signals: StopSignals) -> AbstractContextManager[RunHost]:
        """Context manager: host of the run, in this process.

        Args:
            token: Token that marks the processes of the run.
            log: File for the stderr of a server of lanes.
            signals: Signals of this process.

        Raises:
            UnfitEnvironment: A process cannot be created.
        """
        ...

    def open_node(self, run: Run) -> AbstractContextManager[OpenedNode]:
        """Context manager with the node of a run. The end of it undoes all that was opened.

        Args:
            run: The run, with a plan that may ask for more than the machines can do.

        Raises:
            UnfitEnvironment: The node can no longer run the plan.
        """
        ...


HoldMachines = Callable[[FindDevices, str | None], AbstractContextManager[HeldMachines]]
"""Holds machines for a run.

A run on this machine finds its devices with the function. Other machines get the names of the devices of each; see
`find_all`.
"""


class FoundDevices:
    """Devices of this machine that no run holds; see `PlannedMachines`."""

    def __init__(self, devices: tuple[DeviceInfo, ...]) -> None:
        self._devices = devices

    @property
    def devices(self) -> tuple[DeviceInfo, ...]:
        return self._devices

    def power_models(self, devices: Sequence[DeviceInfo]) -> Mapping[str, PowerModel | None]:
        return registry.power_models(devices)

    def power_limits_w(self) -> Mapping[str, tuple[float, ...]]:
        return {each.name: device_limits_w(each) for each in self.devices}

    def parking_hosts(self) -> Mapping[str, ParkingHost]:
        return {self.devices[0].node: parking_host(self.devices)}


class ThisMachine(FoundDevices):
    """This machine, for one run; see `HeldMachines`."""

    def __init__(self, occupancy: Occupancy | None = None, search: OneSearch | None = None) -> None:
        """Hold devices of this machine.

        Args:
            occupancy: Use of the devices; None if no other run can use them.
            search: The search, if the run is for one only; otherwise None.
        """
        super().__init__(occupancy.devices if occupancy is not None else ())
        self._occupancy, self._search = occupancy, search

    @property
    def is_shared(self) -> bool:
        return self._occupancy is not None and self._occupancy.is_shared

    def power_models(self, devices: Sequence[DeviceInfo]) -> Mapping[str, PowerModel | None]:
        """See `PlannedMachines`. A GPU that another run uses is not at rest now."""
        found = dict(super().power_models(devices))
        for name, claim in self._occupancy.claims.items() if self._occupancy is not None else ():
            if (model := found.get(name)) is not None:
                found[name] = gpu_power_model(claim.idle_w(model.idle_w), model.busy_w)
        return found

    def tell(self, run: Path) -> None:
        if self._occupancy is not None:
            self._occupancy.tell(run)

    @contextlib.contextmanager
    def host(self, token: str, log: Path, signals: StopSignals) -> Iterator[RunHost]:
        """See `HeldMachines`. The server of the lanes begins to load torch now."""
        with contextlib.ExitStack() as undo:
            with signals.delayed():  # an exception in a handler would leave the server running
                try:
                    own = LocalHost(token, log, signals)
                except OSError as error:
                    raise unwritable(log.parent, error) from error
                undo.callback(own.close)
            yield own

    def open_node(self, run: Run) -> AbstractContextManager[OpenedNode]:
        from ecoshare.runtime.nodes.node_opening import open_this_machine  # late: the server loads meanwhile

        return open_this_machine(run, self._search, self._occupancy)


@contextlib.contextmanager
def this_machine(
    find: FindDevices,
    _names: str | None,
    admission: DeviceAdmission,
    say: Callable[[str], None],
    takes_turns: bool = False,
) -> Iterator[ThisMachine]:
    """Context manager: hold devices of this machine; see `occupied`."""
    with occupied(find, admission, say, takes_turns) as occupancy:
        yield ThisMachine(occupancy)
