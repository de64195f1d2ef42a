"""Questions of the core to slow advisers, each asked in a thread beside the driver's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from ecoshare.core.commands import AskInterference, AskPlanner, AskPower, AskSetting
from ecoshare.core.events import Event, InterferencePredicted, Planned, PowerPredicted, StopRequested
from ecoshare.core.placement.colocation_estimates import GPU_GUESS, PROCESSORS_GUESS
from ecoshare.runtime.profiler import Profiler
from ecoshare.runtime.run_searches import RunSearches


@dataclass(slots=True)
class LiveQuestions:
    """Asks the advisers of a run.

    Attributes:
        searches: Searches for settings.
        stops_after_search: Whether the run is for one search only, and stops after it.
        profiler: Stores the co-location measurements that a question brings.
        on_processors: Whether the jobs run on the processors.
        tell: Reports an event to the core.
        begin: Begins work beside the driver's loop; the end of the run cancels it.
    """

    searches: RunSearches
    stops_after_search: bool
    profiler: Profiler
    on_processors: bool
    tell: Callable[[Callable[..., Event]], None]
    begin: Callable[[Coroutine[Any, Any, None]], None]

    def ask(self, command: AskSetting | AskInterference | AskPlanner | AskPower) -> None:
        """Ask the adviser that a command names."""
        match command:
            case AskSetting():
                self.begin(self._search(command))
            case AskInterference():
                self.begin(self._predict(command))
            case AskPlanner():
                self.begin(self._plan(command))
            case AskPower():
                self.begin(self._respond(command))

    async def _search(self, command: AskSetting) -> None:
        """Ask for the next setting of a search."""
        advice = await asyncio.to_thread(self.searches.answer, command)
        self.tell(advice.told(command.id))
        if advice.over and self.stops_after_search:
            self.tell(partial(StopRequested, at_once=False))

    async def _respond(self, command: AskPower) -> None:
        """Ask for the response of a packing to power limits."""
        from ecoshare.advisers.power_adviser import respond

        self.tell(partial(PowerPredicted, command=command.id, response=await asyncio.to_thread(respond, command)))

    async def _plan(self, command: AskPlanner) -> None:
        """Ask a planner for the shares of a round."""
        from ecoshare.advisers.planners import shares

        self.tell(partial(Planned, command=command.id, shares=await asyncio.to_thread(shares, command)))

    async def _predict(self, command: AskInterference) -> None:
        """Predict the speeds of co-located jobs."""
        from ecoshare.advisers.interference_adviser import foresee

        self.profiler.keep_seen(command.colocations)
        guess = PROCESSORS_GUESS if self.on_processors else GPU_GUESS
        pairs, prices = await asyncio.to_thread(foresee, command, guess)
        self.tell(partial(InterferencePredicted, command=command.id, pairs=pairs, prices=prices))
