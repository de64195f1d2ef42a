"""The faults: each replaces a piece of text in one file, and names the tests that are to fail."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault.

    Attributes:
        name: The fault, in a few words.
        file: File, from the root of the repository.
        old: Text that occurs there once.
        new: Text in its place.
        tests: Tests that CI runs and that are to fail: paths of files or folders.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


_RUNS = ("tests/runtime/test_virtual_runs.py",)
_QUEUE = ("tests/queue/test_virtual_queue.py",)
_NODES = ("tests/cluster/test_virtual_nodes.py", "tests/cluster/test_remote_node.py")

DRIVER_AND_NODE = (
    Fault(
        "an attempt that could not be launched keeps its slot",
        "ecoshare/runtime/nodes/attempt_messages.py",
        "                self.attempts.give_up(message.command)\n",
        "",
        _RUNS,
    ),
    Fault(
        "slots of a dead server's jobs are not freed",
        "ecoshare/runtime/nodes/attempt_messages.py",
        "            self.attempts.free(own)\n            outcome",
        "            outcome",
        _RUNS,
    ),
    Fault(
        "a refused start has no answer",
        "ecoshare/runtime/nodes/attempt_messages.py",
        "                self.tell(partial(Refused, command=message.command, error=message.error))\n",
        "",
        _RUNS,
    ),
    Fault(
        "a run ends before its last job has arrived",
        "ecoshare/runtime/driver.py",
        "core.open_sweeps or (run.arrivals.to_come and not core.stopping)",
        "core.open_sweeps",
        _RUNS,
    ),
    Fault(
        "no time limit on a server that does not answer a stop",
        "ecoshare/runtime/driver.py",
        "            asyncio.get_running_loop().call_later(within_s, self.run.node.end_silent_server)\n",
        "",
        _RUNS,
    ),
)

RESUME_AND_LOG = (
    Fault(
        "a job that has completed runs again",
        "ecoshare/runtime/planning/resume.py",
        "is_over = outcomes[Outcome.COMPLETED] or outcomes[Outcome.PRUNED]",
        "is_over = outcomes[Outcome.PRUNED]",
        _RUNS,
    ),
    Fault(
        "attempts count from one again after a resume",
        "ecoshare/runtime/planning/resume.py",
        "attempts = max([job.spec.earlier_attempts.attempts, *caps, *ends])",
        "attempts = 0",
        _RUNS,
    ),
    Fault(
        "commands are carried out before the log has them",
        "ecoshare/runtime/driver.py",
        """        commands = self.run.core.handle(event)
        try:
            self.run.log.write(event, commands, self.run.core)
        except OSError as error:
            await self._write_held(error)
        self._progress.event(event, commands)
        self._drive.carry_out(event, commands)
        return commands
""",
        """        commands = self.run.core.handle(event)
        self._drive.carry_out(event, commands)
        try:
            self.run.log.write(event, commands, self.run.core)
        except OSError as error:
            await self._write_held(error)
        self._progress.event(event, commands)
        return commands
""",
        _RUNS,
    ),
    Fault(
        "the exit record of a job whose server died is not read",
        "ecoshare/runtime/nodes/attempt_messages.py",
        "            self.end(recorded or lost)",
        "            self.end(lost)",
        _RUNS,
    ),
    Fault(
        "a last line that was cut off ends a resume",
        "ecoshare/record/kept_file.py",
        '        self._file.truncate(self._content().rfind(b"\\n") + 1)\n',
        "",
        ("tests/record",),
    ),
)

QUEUE = (
    Fault(
        "a submission is acknowledged before the store has it",
        "ecoshare/queue/live_queue.py",
        "            await asyncio.to_thread(keep)\n",
        "            asyncio.get_running_loop().call_later(1.0, keep)\n",
        _QUEUE,
    ),
    Fault(
        "a submission that is sent twice is taken twice",
        "ecoshare/queue/live_queue.py",
        "if before := await asyncio.to_thread(self.store.of_submission, submission.id):",
        "if before := ():",
        _QUEUE,
    ),
    Fault(
        "ends are forgotten if the store was busy",
        "ecoshare/queue/live_queue.py",
        "        ends = list(self._ends)\n",
        "        ends, self._ends = list(self._ends), []\n",
        _QUEUE,
    ),
    Fault(
        "held jobs start after the queue was opened again",
        "ecoshare/queue/submission_plan.py",
        "held=frozenset(row.name for row in rows if row.held)",
        "held=frozenset()",
        _QUEUE,
    ),
    Fault(
        "clients that wait are not woken at an end",
        "ecoshare/queue/live_queue.py",
        "            self._changed.notify_all()\n",
        "",
        _QUEUE,
    ),
)

CLUSTER = (
    Fault(
        "jobs of a lost node begin elsewhere at once",
        "ecoshare/cluster/remote_node.py",
        "over_s = self._sent_s + self._setup.lease_s + _ENDS_WITHIN_S",
        "over_s = self._run.now_s()",
        _NODES,
    ),
    Fault(
        "a silent node is not lost",
        "ecoshare/cluster/remote_node.py",
        "            if silent_s > self._setup.timeout_s:",
        "            if silent_s > 1e9:",
        _NODES,
    ),
    Fault(
        "the loss of a node is not told to the core",
        "ecoshare/cluster/remote_node.py",
        "                self._run.tell(partial(DeviceFailed, device=device, reason=self._why_lost()))\n",
        "                pass\n",
        _NODES,
    ),
    Fault(
        "an agent goes on when its run is silent",
        "ecoshare/cluster/node_agent.py",
        "        while (left_s := self._heard_s + lease_s - self._clock.monotonic_s()) > 0.0:",
        "        while (left_s := 1.0 + lease_s) > 0.0:",
        _NODES,
    ),
    Fault(
        "an idle node hears nothing of its run",
        "ecoshare/cluster/remote_node.py",
        "            self._call(AgentCalls.beat, self._run.stopping, self._run.live_jobs)\n",
        "",
        _NODES,
    ),
)

ALL = (*DRIVER_AND_NODE, *RESUME_AND_LOG, *QUEUE, *CLUSTER)
