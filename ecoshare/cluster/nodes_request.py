"""Nodes of a cluster that a run asks for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ecoshare.base.device import NODE_TIMEOUT_S
from ecoshare.errors import UnfitEnvironment


@dataclass(frozen=True, slots=True)
class NodesRequest:
    """Nodes that a run asks for.

    Attributes:
        nodes: Number of nodes; None for all that have a device for the run.
        gpus_per_node: Number of GPUs of each node; None for all that the run gets there.
        device: Names of the devices of each node; see `find_all`. None for its GPUs, or its processors without any.
        timeout_s: Time (s) without a message after which a node counts as lost.
        share_device: Whether to run beside a run that uses a device.
        ship: Folder that is shipped to the nodes, without links; None if they share the file system of the run.
        idle_s: Time (s) without a job after which a node is given back to its engine; None to keep all.
    """

    nodes: int | None = None
    gpus_per_node: int | None = None
    device: str | None = None
    timeout_s: float = NODE_TIMEOUT_S
    share_device: bool = False
    ship: Path | None = None
    idle_s: float | None = None

    def agent_options(self, devices: int | None) -> list[str]:
        """Options of `ecoshare agent` on a node.

        Args:
            devices: Number of devices; None for all that `device` names.
        """
        return [
            *(["--device", self.device] if self.device is not None else []),
            *(["--devices", str(devices)] if devices is not None else []),
            *(["--share-device"] if self.share_device else []),
        ]


def check_ray() -> None:
    """Check that Ray can be loaded, before a module is that needs it.

    Raises:
        UnfitEnvironment: It is not installed, or does not load here.
    """
    try:
        import ray  # noqa: F401
    except ModuleNotFoundError as error:
        raise UnfitEnvironment(f"Ray is not installed ({error})", "pip install 'ecoshare[ray]'") from None
    except KeyError as error:  # docs/decisions/0019
        raise UnfitEnvironment(
            f"this version of Ray does not load beside amdsmi ({error} is missing)", "pip install 'ray[tune]<2.56'"
        ) from None
