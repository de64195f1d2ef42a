"""Questions and answers of a setting adviser. The module is light: a run without a search loads no optimizer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ecoshare.base.measurement import Setting
from ecoshare.core.events import SettingAdvised


@dataclass(frozen=True, slots=True)
class Advice:
    """Answer of a setting adviser: the next setting to measure, or the end of the search.

    Attributes:
        setting: Setting to measure. If the search is over: the best one, or the default if none is feasible.
        over: Whether the search is over.
        note: Reason why it is over, in words.
        slower: Largest time of an iteration of any job at the best setting / time at the default setting, at least 1.
    """

    setting: Setting
    over: bool = False
    note: str = ""
    slower: float = 1.0

    def told(self, command: int) -> Callable[..., SettingAdvised]:
        """Event that answers a question of the core; the caller adds the time.

        Args:
            command: Id of the question.
        """
        return partial(
            SettingAdvised, command=command, setting=self.setting, over=self.over, note=self.note, slower=self.slower
        )
