"""Stores how long an iteration of a gang takes on one machine and over several, beside the profiles: a file a class.

::

    profiles/gangs/
      train-0123456789ab.json      the last times of the class, by the number of machines that its ranks were on

The ratio tells what the network between the machines costs this class. `json_store.py` reads the files, replaces them,
and sets damaged ones aside, as it does for profiles. If two runs write a class at the same moment, the times of one of
them are lost.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from ecoshare.knowledge.calibration_store import MOST_TIMES, IterationTime
from ecoshare.knowledge.json_store import ClassFiles, OfClass, check_class_name
from ecoshare.knowledge.profiles_folder import GANGS

_DEEP = 4


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class TimesOverNodes(_Part):
    """Times of a gang with its ranks on so many machines, the newest last."""

    nodes: Annotated[int, Field(ge=1)]
    times: Annotated[tuple[IterationTime, ...], Field(min_length=1)]


class GangTimes(OfClass):
    """Times of one class of gangs, by the number of machines."""

    schema_version: Literal[1] = 1
    over: tuple[TimesOverNodes, ...]

    @property
    def slowdowns(self) -> dict[int, float]:
        """Time of an iteration over so many machines / that on one machine; empty without a time on one machine."""
        times_s = {each.nodes: median(time.seconds for time in each.times) for each in self.over}
        if 1 not in times_s:
            return {}
        return {nodes: each_s / times_s[1] for nodes, each_s in times_s.items() if nodes > 1}


SCHEMA_VERSION: int = GangTimes.model_fields["schema_version"].default


class GangTimeStore:
    """Store of the times of gangs, in the folder of the profiles. The folder need not exist yet."""

    def __init__(self, profiles: Path) -> None:
        damaged = "holds no times of gangs of its class"
        self._files = ClassFiles(profiles / GANGS, GangTimes, SCHEMA_VERSION, damaged, _DEEP)

    @property
    def notes(self) -> list[str]:
        """Reasons why files cannot be used, one line each, for the caller to show."""
        return self._files.notes

    def find(self, job_class: str) -> GangTimes | None:
        """Times of a class, always from the disk; None if there are none that this version can use."""
        return self._files.find(job_class)

    def add(self, job_class: str, nodes: int, time: IterationTime) -> None:
        """Add a time that one run measured. It replaces an earlier one of the same run.

        Args:
            job_class: Name of the class.
            nodes: Number of machines that the ranks were on.
            time: Time of an iteration.

        Raises:
            UnfitEnvironment: The file cannot be written: no room, or no permission.
            ValueError: The name of the class cannot be a file name here.
        """
        check_class_name(job_class)
        before = self.find(job_class)
        known = {each.nodes: each.times for each in before.over} if before is not None else {}
        others = [each for each in known.get(nodes, ()) if each.run != time.run]
        known[nodes] = (*others, time)[-MOST_TIMES:]
        over = tuple(TimesOverNodes(nodes=each, times=known[each]) for each in sorted(known))
        content = GangTimes(job_class=job_class, over=over)
        self._files.write(content)

    def forget(self, job_class: str) -> int:
        """Remove the times of a class; return their number.

        Raises:
            UnfitEnvironment: The file cannot be removed: no permission.
        """
        found = self._files.forget(job_class)
        return 0 if found is None else sum(len(each.times) for each in found.over)
