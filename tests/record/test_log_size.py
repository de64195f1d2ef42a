"""Lines of the log are short and whole: questions and answers about interference, and a line that a kill has cut."""

from __future__ import annotations

import resource
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.base.measurement import ColocationMeasurement, PairSpeed
from ecoshare.core.commands import AskInterference
from ecoshare.core.events import SCHEMA, Config, InterferencePredicted, RunOpened, StopRequested
from ecoshare.core.placement.packer import MOST_CLASSES
from ecoshare.errors import UsageError
from ecoshare.record.event_log import EventLog, entry_of, line_of, read

MET = [ColocationMeasurement((f"a{number}", "b"), (0.5, 0.25 + number / 64), None) for number in range(8)]
OPENED = RunOpened(0.0, SCHEMA, Config("energy"), ())


def asked(number: int, met: list[ColocationMeasurement]) -> AskInterference:
    """Question about one class."""
    return AskInterference(number, (), tuple(met), (("a", 60.0),), 3)


def written(path: Path, *steps: tuple[Any, list[Any]]) -> list[Any]:
    """Entries of a log after these events with their commands were written."""
    log = EventLog(path)
    for event, commands in steps:
        log.write(event, commands)
    log.close()
    return list(read(path))


@given(st.lists(st.lists(st.sampled_from(MET), max_size=6), max_size=6), st.sets(st.integers(0, 5)))
def test_a_question_is_read_as_it_was_asked(
    tmp_path_factory: pytest.TempPathFactory, questions: list[list[ColocationMeasurement]], anew: set[int]
) -> None:
    """Whatever the question before has had, and wherever a session begins."""
    steps: list[tuple[Any, list[Any]]] = [(OPENED, [])]
    for number, met in enumerate(questions):
        if number in anew:
            steps.append((OPENED, []))
        steps.append((StopRequested(0.0, at_once=False), [asked(number, met)]))
    found = written(tmp_path_factory.mktemp("log") / "events.jsonl", *steps)
    assert found == [entry for event, commands in steps for entry in (event, *commands)]


def test_a_question_writes_what_was_measured_since_the_last_one(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    written(path, (OPENED, [asked(1, MET[:6]), asked(2, MET[:7]), asked(3, MET[1:])]))
    sizes = [len(line) for line in path.read_bytes().splitlines()[1:]]
    assert max(sizes[1:]) < sizes[0] / 2


@pytest.mark.parametrize("earlier", ["7", "-1", "true", '"x"'])
def test_a_damaged_number_of_earlier_measurements_is_a_mistake_of_its_line(earlier: str, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    written(path, (OPENED, [asked(1, MET[:2]), asked(2, MET[:3])]))
    path.write_text(path.read_text().replace('"earlier": 2', f'"earlier": {earlier}'))
    with pytest.raises(UsageError, match=r"events\.jsonl:3: .*AskInterference\.earlier: there are 2 co-locations"):
        list(read(path))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc"), st.floats(0.01, 1.0)), max_size=9))
def test_an_answer_is_read_as_it_was_given(pairs: list[tuple[str, str, float]]) -> None:
    """Also if it is not about all pairs of some classes."""
    answer = InterferencePredicted(1.0, 4, tuple(PairSpeed(*each, 0.125) for each in pairs), {"a": 2.0})
    assert entry_of(line_of(answer)) == answer


def test_the_longest_answer_is_a_short_line() -> None:
    names = [f"classify_images-{number:012x}" for number in range(MOST_CLASSES)]
    pairs = tuple(PairSpeed(one, other, 0.7654, 0.0321) for one in names for other in names)
    answer = InterferencePredicted(1.0, 4, pairs, dict.fromkeys(names, 123.456))
    line = line_of(answer)
    assert len(line) < 48_000 and entry_of(line) == answer


@pytest.mark.parametrize(
    "pairs", ['{"classes": ["a"], "speeds": [[0.5, 0.5]], "errors": [[0.1]]}', '{"classes": ["a"]}', '{"classes": 5}']
)
def test_a_damaged_table_of_pairs_is_told(pairs: str) -> None:
    line = f'{{"event": "InterferencePredicted", "at_s": 1.0, "command": 4, "pairs": {pairs}, "prices": {{}}}}\n'
    with pytest.raises(ValueError, match=r"InterferencePredicted\.pairs"):
        entry_of(line.encode())


def test_a_line_that_a_kill_has_cut_is_dropped_when_the_log_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    written(path, (OPENED, []))
    with path.open("ab") as file:
        file.write(b'{"event": "JobExi')
    stop = StopRequested(1.0, at_once=False)
    assert written(path, (stop, [])) == [OPENED, stop]


def test_a_line_for_which_there_is_no_room_leaves_no_part_of_itself(tmp_path: Path) -> None:
    """The file may grow by ten bytes only, and then without a limit."""
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    log.write(OPENED, [])
    stop = StopRequested(1.0, at_once=False)
    before, ignored = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            log.write(stop, [])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert log.holds and list(read(path)) == [OPENED]
    log.write_held()
    assert not log.holds and list(read(path)) == [OPENED, stop]
    log.close()
