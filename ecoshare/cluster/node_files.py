"""Files of a node that has a run folder of its own, on the side of the run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ecoshare.cluster.agent_messages import FilePart
from ecoshare.cluster.file_parts import file_parts, write_part
from ecoshare.cluster.shipped_jobs import placed
from ecoshare.core.commands import StartJob
from ecoshare.lane.files import keep_outputs
from ecoshare.lane.gang import folder_of, keep_outputs_beyond
from ecoshare.record.run_folder import RunFolder
from ecoshare.runtime.planning.node_job import NodeJob
from ecoshare.values.job_spec import GangPart
from ecoshare.values.service import ARRIVALS


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """Files that travel between a run and one node.

    Attributes:
        node: Name of the node.
        run: The run folder.
        shipped: The shipped folder, without links.
        copy: Path of its copy on the node.
        notes: Notes for the user; new ones are added.
    """

    node: str
    run: RunFolder
    shipped: Path
    copy: str
    notes: list[str]

    def placed(self, job: NodeJob) -> NodeJob:
        """A job with its paths on the node; see `shipped_jobs.placed`."""
        return placed(job, self.shipped, self.copy)

    def begin(self, command: StartJob, part: GangPart | None) -> Iterator[FilePart]:
        """Files that an attempt needs on the node. The outputs of the attempt before keep their content.

        Args:
            command: Command that starts the attempt.
            part: Ranks of a gang that run on the node; None for all of the job.
        """
        folder, first = self.run.job(command.job), part.first_rank if part is not None else 0
        if first == 0:
            keep_outputs_beyond(folder, part.world_size if part is not None else len(command.lanes), command.attempt)
        for rank in range(first, first + len(command.lanes)):
            keep_outputs(folder_of(folder, rank) if rank else folder, command.attempt)
        if (arrivals := folder / ARRIVALS).exists():
            yield from file_parts(arrivals, self.run.path)

    def write(self, part: FilePart) -> None:
        """Write a part of a file. A file that cannot be written is named in a note."""
        try:
            write_part(self.run.path, part)
        except (OSError, ValueError) as error:
            note = f"files of the node {self.node} cannot be written: {error}"
            if note not in self.notes:
                self.notes.append(note)
