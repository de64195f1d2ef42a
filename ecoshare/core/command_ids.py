"""Ids of commands: answers of the driver name a command by its id."""

from __future__ import annotations


class CommandIds:
    """Gives ids, in ascending order without gaps.

    Attributes:
        last: The last id that was given.
    """

    def __init__(self, last: int) -> None:
        """Ids that follow another one; the first id of a run is 1."""
        self.last = last

    def __call__(self) -> int:
        """The next id."""
        self.last += 1
        return self.last
