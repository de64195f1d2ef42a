"""What an adviser is told and what it answers: light, so that a run without a search loads nothing for one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ecoshare.core.events import Setting, SettingAdvised

OBJECTIVES = ("energy", "edp", "jct", "makespan")
"""Of a search, and of a policy of that name, which chooses who runs beside whom."""

TUNING_LIMIT = 1.1
"""Most that an iteration may take at a setting, over the same at the default setting, where nobody says."""


@dataclass(frozen=True, slots=True)
class Alone:
    """A job class alone on its device at the default setting; None for what is not known."""

    power_w: float | None
    iteration_s: float | None


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do next.

    Attributes:
        setting: To be tried; the best one when the search is over, the default where nothing is feasible.
        over: Whether it is.
        note: Why, in words.
        slower: Of the best one: most that an iteration of any job takes, over the same at the default setting.
    """

    setting: Setting
    over: bool = False
    note: str = ""
    slower: float = 1.0

    def told(self, command: int) -> Callable[..., SettingAdvised]:
        """The answer to a question of the core, but for when."""
        return partial(
            SettingAdvised, command=command, setting=self.setting, over=self.over, note=self.note, slower=self.slower
        )
