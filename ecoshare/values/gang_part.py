"""Part of a gang with ranks on several nodes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GangPart:
    """Ranks of a gang on one of its nodes.

    Attributes:
        first_rank: Number of the first of these ranks in the gang.
        world_size: Number of ranks of the gang.
        node: Number of this node among those of the gang; rank 0 is on node 0.
        nodes: Number of nodes of the gang.
        address: Address of node 0.
        port: Port at which rank 0 opens the store of the rendezvous.
    """

    first_rank: int
    world_size: int
    node: int
    nodes: int
    address: str
    port: int
