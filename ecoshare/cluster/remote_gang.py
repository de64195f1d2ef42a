"""A gang with ranks on several nodes, as one attempt.

::

    StartJob ──► take_port ──► node of rank 0 ──► port_taken ──► StartJob with its own lanes ──► each node
    Done     ◄── when all have launched their ranks
    JobExited ◄── when all ranks have ended. The first node with ranks that failed ends those of the others at once:
                  they would wait in their collectives for ever.
    KillJob  ──►  node of rank 0, whose ranks end after the same iteration ──► all others, at once

Rank 0 saves the state of most scripts. If ranks of another node ended first, it would wait for them in a collective,
and not get to its boundary.

The ranks keep their lanes: turns never cross machines. Iterations, output and the exit record are those of rank 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from ecoshare.base.attempt import GangPart, Outcome, Usage
from ecoshare.core.commands import Command, KillJob, StartJob
from ecoshare.core.events import Done, Event, IterationsDone, JobExited, PhaseBegan, Refused
from ecoshare.runtime.nodes.run_node import AttemptReading, NodeRun


class GangNode(Protocol):
    """A node of a gang: `RemoteNode`."""

    @property
    def name(self) -> str:
        """Name of the node in the run."""
        ...

    @property
    def address(self) -> str:
        """Address of the node for the other ones."""
        ...

    def ask_port(self, command: int, gang: RemoteGang) -> None:
        """Ask for a port for the rendezvous; the answer is `port_taken`, `has_no_port` or `head_lost`."""
        ...

    def start(self, command: StartJob, part: GangPart, gang: RemoteGang) -> None:
        """Start the ranks of a gang in lanes of this node; events about them go to `told`."""
        ...

    def carry_out(self, command: Command) -> None:
        """Pass a command on to the agent."""
        ...

    def attempt(self, name: str) -> AttemptReading | None:
        """Last reading of a job in progress; None before the first, and after its end."""
        ...


class RemoteGang:
    """See the module."""

    def __init__(
        self,
        command: StartJob,
        parts: Sequence[tuple[GangNode, tuple[int, ...]]],
        run: NodeRun,
        over: Callable[[], None],
    ) -> None:
        """A gang that has not begun.

        Args:
            command: Command of the core.
            parts: The nodes, and the lanes of the gang on each. Rank 0 runs on the first one.
            run: The run.
            over: Called when the attempt is over, before the run is told.
        """
        self._command, self._parts, self._run, self._over = command, parts, run, over
        self._head = parts[0][0]
        self._asked: dict[int, set[GangNode]] = {command.id: {node for node, _ in parts}}  # nodes without an answer
        self._running: set[GangNode] = set()
        self._early: list[Command] = []  # commands that came before the ranks were started
        self._has_begun = False
        self._ends: dict[GangNode, JobExited] = {}
        self._culprit: GangNode | None = None
        self._is_stopping = False  # ranks that lose their fellows then have not failed
        self._refusal = ""
        self._last = AttemptReading(Usage(), (), ())

    def begin(self) -> None:
        """Start the ranks, as soon as there is a port for their rendezvous."""
        self._head.ask_port(self._command.id, self)

    def port_taken(self, port: int) -> None:
        """Start the ranks."""
        self._has_begun = True
        self._running = {node for node, _ in self._parts}
        first, world = 0, len(self._command.lanes)
        for number, (node, lanes) in enumerate(self._parts):
            part = GangPart(first, world, number, len(self._parts), self._head.address, port)
            node.start(replace(self._command, lanes=lanes), part, self)
            first += len(lanes)
        for command in self._early:
            self.carry_out(command)

    def has_no_port(self, error: str) -> None:
        """Give the attempt up: there is no port for its ranks."""
        self._over()
        self._run.tell(partial(Refused, command=self._command.id, error=error))

    def head_lost(self, reason: str) -> None:
        """End the attempt, which has not begun: the node of rank 0 is lost."""
        self._over()
        job, attempt, outcome = self._command.job, self._command.attempt, Outcome.DEVICE_FAILED
        self._pass_on(JobExited(0.0, job, attempt, outcome, None, reason, Usage()))

    # As a node of the job

    def attempt(self, _name: str) -> AttemptReading:
        """Reading of the whole attempt."""
        found = [reading for node, _ in self._parts if (reading := node.attempt(self._command.job)) is not None]
        if (head := self._head.attempt(self._command.job)) is not None:
            lanes, turns = (tuple(lane for each in found for lane in getattr(each, key)) for key in ("lanes", "turns"))
            self._last = AttemptReading(head.usage, lanes, turns, head.waits_s, head.silent_s)
        return self._last

    def carry_out(self, command: Command) -> None:
        """Pass a command about the job on to all nodes."""
        if not self._has_begun:
            self._early.append(command)
            return
        nodes = set(self._running)
        if isinstance(command, KillJob):
            self._is_stopping = True
            if not command.at_once and self._head in nodes:
                nodes = {self._head}
        self._asked[command.id] = nodes
        for node in [node for node, _ in self._parts if node in nodes]:
            node.carry_out(command)

    # Events

    def is_head(self, node: GangNode) -> bool:
        """Whether rank 0 runs on a node."""
        return node is self._head

    def has_asked(self, command: int | None) -> bool:
        """Whether nodes have been asked to carry out the command with this ID, and have not all answered."""
        return command in self._asked

    def told(self, node: GangNode, event: Event) -> None:
        """Take an event of one node about its ranks."""
        match event:
            case JobExited():
                self._ended(node, event)
            case Done(command=command):
                self._answered(node, command)
            case Refused(command=command, error=error) if command == self._command.id:
                self._refusal = self._refusal or error
                self._left(node)
            case Refused(command=command):
                if self._asked.pop(command, None) is not None:
                    self._pass_on(event)
            case IterationsDone() | PhaseBegan():
                if self.is_head(node):
                    self._pass_on(event)
            case _:
                self._pass_on(event)

    def _answered(self, node: GangNode, command: int) -> None:
        asked = self._asked.get(command)
        if asked is None:
            return
        asked.discard(node)
        if not asked:
            del self._asked[command]
            self._run.tell(partial(Done, command=command))

    def _ended(self, node: GangNode, event: JobExited) -> None:
        self._ends[node] = event
        has_failed = event.outcome is not Outcome.COMPLETED and not event.outcome.was_asked_for
        if has_failed and self._culprit is None and (not self._is_stopping or event.outcome is Outcome.DEVICE_FAILED):
            self._culprit = node
        self._left(node)

    def _left(self, node: GangNode) -> None:
        """Take note that no rank of the gang is left on a node."""
        self._running.discard(node)
        has_stopped = self._is_stopping and node is self._head
        if (self._culprit is not None or self._refusal or has_stopped) and self._running:
            words = f"ranks on {node.name} have ended"
            kill = KillJob(self._command.id, self._command.job, self._command.attempt, True, words, False)
            for each in self._running:
                each.carry_out(kill)
        if not self._running:
            self._finish()

    def _finish(self) -> None:
        self._over()
        is_started = self._asked.pop(self._command.id, None) is None
        if self._refusal:
            self._run.tell(partial(Refused, command=self._command.id, error=self._refusal))
            return
        if not is_started:
            self._run.tell(partial(Done, command=self._command.id))
        self._pass_on(self._whole())

    def _whole(self) -> JobExited:
        """End of the attempt: that of the node which ended the others, with the counters of rank 0.

        If none did, the attempt was stopped if the ranks of any node were, else it failed if those of any node did. It
        was not stopped if rank 0 had done all its work by then.
        """
        has_done_all = self._head in self._ends and self._ends[self._head].outcome is Outcome.COMPLETED

        def order(node: GangNode) -> tuple[bool, ...]:
            outcome, is_culprit = self._ends[node].outcome, node is self._culprit
            is_lost = outcome is Outcome.DEVICE_FAILED  # its fellows may fail before the run knows of it
            is_second = has_done_all and self._is_stopping and node is not self._head
            others = (not outcome.was_asked_for, outcome is Outcome.COMPLETED, node is not self._head)
            return not is_lost, not is_culprit, is_second, *others

        told = min(self._ends.items(), key=lambda end: order(end[0]))[1]
        head = self._ends[self._head].usage if self._head in self._ends else Usage()
        usages = [end.usage for end in self._ends.values()]
        usage = replace(
            head,
            cpu_s=sum(usage.cpu_s for usage in usages),
            peak_bytes=max(usage.peak_bytes for usage in usages),
        )
        return replace(told, usage=usage)

    def _pass_on(self, event: Event) -> None:
        self._run.tell(lambda at_s: replace(event, at_s=at_s))
