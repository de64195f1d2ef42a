"""The pass over a log that all readers share: which command an answer belongs to, over sessions and segments."""

from __future__ import annotations

from pathlib import Path

import pytest

from ecoshare.base.job_spec import JobSpec
from ecoshare.core.commands import AskSetting, Command, StartJob, WakeAt
from ecoshare.core.events import Config, Done, IterationsDone, JobArrived, Refused, RunOpened, SettingAdvised
from ecoshare.record import event_log
from ecoshare.record.log_fold import LogEntry, LogFold
from ecoshare.record.run_folder import RunFolder
from tests.golden.archive import NAMES, run_folder

OPENED = RunOpened(0.0, 3, Config("fair"), ())


class Heard:
    """Writes down what the fold passes on."""

    def __init__(self, *entries: LogEntry) -> None:
        self.lines: list[tuple[object, ...]] = []
        self.fold = LogFold(self)
        for entry in entries:
            self.fold.take(entry)

    def on_start_job(self, command: StartJob, at_s: float) -> None:
        self.lines.append((command.job, at_s))

    def on_done(self, event: Done, command: Command | None) -> None:
        self.lines.append((event.at_s, command))

    def on_refused(self, event: Refused, command: Command | None) -> None:
        self.lines.append((event.error, command))


def test_an_answer_brings_its_command_along_once() -> None:
    start = StartJob(1, "a", 1, (0,), 0)
    heard = Heard(OPENED, JobArrived(2.0, JobSpec("a", "a")), start, Done(3.0, 1), Done(4.0, 1))
    assert heard.lines == [("a", 2.0), (3.0, start), (4.0, None)]


def test_a_session_numbers_its_commands_anew() -> None:
    heard = Heard(OPENED, StartJob(1, "a", 1, (0,), 0), RunOpened(5.0, 3, Config("fair"), ()), Refused(6.0, 1, "no"))
    assert heard.lines == [("a", 0.0), ("no", None)]


def test_the_time_is_that_of_the_last_event_not_one_that_a_command_names() -> None:
    heard = Heard(OPENED, WakeAt(1, 60.0), StartJob(2, "a", 1, (0,), 0))
    assert heard.lines == [("a", 0.0)]
    assert heard.fold.at_s == 0.0


def test_a_method_for_an_entry_that_does_not_exist_is_a_mistake() -> None:
    class Misspelt:
        def on_job_exit(self, event: object) -> None:
            """Never called."""

    with pytest.raises(TypeError, match=r"Misspelt\.on_job_exit: no entry of a log has this name"):
        LogFold(Misspelt())


def test_parts_hear_in_their_order() -> None:
    first, second = Heard(), Heard()
    second.lines = first.lines
    fold = LogFold(first, second)
    for entry in (OPENED, StartJob(1, "a", 1, (0,), 0), IterationsDone(1.0, "a", 1)):  # type: ignore[arg-type]
        fold.take(entry)
    assert first.lines == [("a", 0.0), ("a", 0.0)]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_each_answer_of_a_recorded_run_has_a_command_of_its_kind(name: str, last: bool, tmp_path: Path) -> None:
    class Answers:
        def on_setting_advised(self, event: SettingAdvised, command: Command | None) -> None:
            assert isinstance(command, AskSetting), event

        def on_done(self, event: Done, command: Command | None) -> None:
            assert command is not None, event

        on_refused = on_parked = on_resumed = on_profiled = on_exhausted = on_done

    fold, entries = LogFold(Answers()), list(event_log.read(RunFolder(run_folder(name, tmp_path)).events, last=last))
    for entry in entries:
        fold.take(entry)
    assert fold.at_s == max(each.at_s for each in entries if hasattr(each, "at_s") and not isinstance(each, Command))
