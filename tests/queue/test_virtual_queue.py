"""A queue in virtual time: what clients were told holds, whatever jobs, servers and the controller do."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.base.attempt import Outcome
from ecoshare.core.events import JobExited
from ecoshare.core.records import JobState
from ecoshare.errors import EcoshareError, UnfitEnvironment
from ecoshare.queue import old_jobs
from ecoshare.queue.job_store import JobStore
from ecoshare.queue.live_queue import LiveQueue
from ecoshare.record import event_log
from ecoshare.record.run_view import SweepView
from ecoshare.runtime import log_turnover
from ecoshare.runtime.run_lifecycle import FinishedRun
from tests.virtual.clock import UNIX_S, VirtualClock
from tests.virtual.lanes import Fate
from tests.virtual.queue import NAME, BusyStore, serve, submission
from tests.virtual.run import World, check, run_in


def test_jobs_are_taken_run_and_told(tmp_path: Path) -> None:
    told = {}

    async def client(queue: LiveQueue) -> None:
        answer = await queue.submit(submission(1, {"name": "a"}, {"name": "b", "after": ["a"]}, folder=tmp_path))
        assert answer.jobs == ["a", "b"]
        await queue.wait("b", 600.0)
        told["b"] = (await queue.row("b")).state
        queue.end("drain")

    world = World(tmp_path)
    check(serve(world, client))
    assert told == {"b": "completed"}
    assert world.completed == [("a", 1), ("b", 1)]


def test_a_queue_that_goes_down_keeps_what_it_was_given(tmp_path: Path) -> None:
    """A drained queue starts no more jobs; its next session does."""

    async def first(queue: LiveQueue) -> None:
        await queue.submit(submission(1, *({"name": name} for name in "abcdef"), folder=tmp_path))
        await asyncio.sleep(5.0)
        queue.end("drain")

    async def second(queue: LiveQueue) -> None:
        for name in "abcdef":
            await queue.wait(name, 600.0)
        queue.end("drain")

    world = World(tmp_path)
    check(serve(world, first))
    done = [job for job, _ in world.completed]
    assert 0 < len(done) < 6
    check(serve(world, second))
    assert sorted(job for job, _ in world.completed) == list("abcdef")


def test_a_client_is_woken_by_the_end_of_its_job(tmp_path: Path) -> None:
    """A job takes ten seconds, and its client waits for up to ten minutes."""
    waited_s = []

    async def client(queue: LiveQueue) -> None:
        await queue.submit(submission(1, {"name": "a"}, folder=tmp_path))
        from_s = asyncio.get_running_loop().time()
        await queue.wait("a", 600.0)
        waited_s.append(asyncio.get_running_loop().time() - from_s)
        queue.end("drain")

    serve(World(tmp_path), client)
    assert waited_s[0] < 20.0


def test_ends_are_kept_while_the_store_is_locked(tmp_path: Path) -> None:
    async def client(queue: LiveQueue) -> None:
        await queue.submit(submission(1, {"name": "a"}, {"name": "b"}, folder=tmp_path))
        store = queue.store
        assert isinstance(store, BusyStore)
        while not world.completed:
            store.busy = 1
            await asyncio.sleep(0.1)
        store.busy = 60
        await asyncio.sleep(3.0)
        ended = min({job for job, _ in world.completed} & {row.name for row in store.left()})
        await queue.wait(ended, 600.0)
        assert store.busy, "the client was told before the store has the end"
        assert (await queue.row(ended)).state == "completed"
        (warning,) = queue.driver.views.warnings().values()
        assert "the store is locked" in warning
        with pytest.raises(UnfitEnvironment, match="the store is locked"):
            await queue.retry([ended])
        for name in "ab":
            await queue.wait(name, 600.0)
            assert (await queue.row(name)).state == "completed"
        store.busy = 0
        await asyncio.sleep(3.0)
        assert not store.left() and not queue.driver.views.warnings()
        queue.end("drain")

    world = World(tmp_path)
    check(serve(world, client))
    assert sorted(world.completed) == [("a", 1), ("b", 1)]


@pytest.mark.slow
def test_a_queue_on_a_full_disk_takes_no_more_and_says_why(tmp_path: Path) -> None:
    """A job that runs goes on, and what the queue has taken runs later."""

    async def client(queue: LiveQueue) -> None:
        await queue.submit(submission(1, {"name": "a"}, {"name": "b", "after": ["a"]}, folder=tmp_path))
        await asyncio.sleep(60.0)
        assert world.completed == [("a", 1)]
        (warning,) = queue.driver.views.warnings().values()
        assert "no space is left for" in warning
        with pytest.raises(UnfitEnvironment, match="no space is left for"):
            await queue.submit(submission(2, {"name": "c"}, folder=tmp_path))
        with pytest.raises(UnfitEnvironment, match="no space is left for"):
            await queue.cancel(["b"], at_once=False)
        await queue.wait("b", 600.0)
        assert not queue.driver.views.warnings()
        assert (await queue.submit(submission(3, {"name": "d"}, folder=tmp_path))).jobs == ["d"]
        await queue.wait("d", 600.0)
        queue.end("drain")

    world = World(tmp_path, full_s=[(1004.5, 1100.0)])
    check(serve(world, client))
    assert world.completed == [("a", 1), ("b", 1), ("d", 1)]


def test_a_clock_that_was_set_ahead_makes_no_job_older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data are kept for an hour. The clock is set ahead by two while the queue is down."""
    before_s = []

    def remove_old(*args: Any) -> int:
        before_s.append(args[2])
        return 0

    async def client(queue: LiveQueue) -> None:
        await asyncio.sleep(5.0)
        queue.end("drain")

    monkeypatch.setattr(old_jobs, "remove_old", remove_old)
    world = World(tmp_path)
    assert isinstance(world.clock, VirtualClock)
    for ahead_s in (0.0, 7200.0, 7200.0):
        world.clock.ahead_s = ahead_s
        serve(world, client, keep_s=3600.0)
    assert len(before_s) == 3 and max(before_s) <= UNIX_S + world.clock.monotonic_s() - 3600.0


def test_a_turn_that_is_held_without_an_iteration_is_told_with_what_ends_it(tmp_path: Path) -> None:
    async def client(queue: LiveQueue) -> None:
        await queue.submit(submission(1, {"name": "hangs"}, {"name": "b"}, folder=tmp_path))
        await asyncio.sleep(8.0)
        assert not queue.driver.views.warnings(), "it still has iterations, and b has the turn in between"
        await asyncio.sleep(20.0)
        (warning,) = queue.driver.views.warnings().values()
        assert "hangs has had its turn for" in warning and "b waits" in warning
        assert f"`ecoshare cancel hangs --now --queue {NAME}`" in warning
        await queue.cancel(["hangs"], at_once=True)
        await queue.wait("b", 600.0)
        assert not queue.driver.views.warnings()
        queue.end("drain")

    world = World(tmp_path, {("hangs", 1): Fate(iterations=10, hangs=True)})
    check(serve(world, client))
    assert world.completed == [("b", 1)]


def test_a_log_begins_anew_while_a_sweep_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a queue that always has an open sweep would grow for ever, and forget no job."""
    monkeypatch.setattr(log_turnover, "SEGMENT_BYTES", 2000)
    sweep = {"name": "s", "sweep": {"grid": {"x": list(range(24))}}}
    kept, begun = [], []

    async def client(queue: LiveQueue) -> None:
        await queue.submit(submission(1, sweep, folder=tmp_path))
        while queue.store.left():
            kept.append(len(queue.run.core.jobs))
            begun.append(len(event_log.segments(queue.run.folder.events)))
            await asyncio.sleep(1.0)
        queue.end("drain")

    world = World(tmp_path)
    finished = serve(world, client)
    check(finished)
    assert begun[-1] >= 3 and max(kept) < 16, "the core has forgotten trials that had ended"
    assert len(world.completed) == 24
    assert finished.data.summary.sweeps[0].states == {"completed": 24}


@pytest.mark.parametrize("ends", ["resumed", "cancelled", "dead"])
def test_a_parked_job_goes_on_in_another_segment(ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log begins anew while it is parked. Before, it had to wait, and the queue forgot no job meanwhile."""
    monkeypatch.setattr(log_turnover, "SEGMENT_BYTES", 300)

    async def client(queue: LiveQueue) -> None:
        await queue.submit(submission(1, {"name": "long"}, folder=tmp_path))
        await asyncio.sleep(10.0)
        await queue.submit(submission(2, {"name": "urgent", "priority": 9}, folder=tmp_path))
        await asyncio.sleep(30.0)
        job = queue.run.core.jobs["long"]
        assert job.state is JobState.PARKED and job.history == [], "it is the record of another segment"
        if ends == "cancelled":
            await queue.cancel(["long"], at_once=False)
        for name in ("urgent", "long"):
            await queue.wait(name, 3600.0)
        queue.end("drain")

    fates = {("long", 1): Fate(iterations=600), ("urgent", 1): Fate(iterations=300)}
    dies_s = (1045.0,) if ends == "dead" else ()
    world = World(tmp_path, fates, memory_bytes=2 << 30, server_dies_s=dies_s)
    options = {"lanes": 1, "jobs_per_lane": 1, "host_memory": 8 << 30}
    finished = serve(world, client, policy="priority", **options)
    check(finished)
    states = {job.name: job.state for job in finished.data.summary.jobs}
    assert states == {"long": "cancelled" if ends == "cancelled" else "completed", "urgent": "completed"}
    assert Counter(job for job, _ in world.started)["long"] == (2 if ends == "dead" else 1)


@pytest.mark.nightly
def test_jobs_of_a_backlog_with_different_arguments_write_little(tmp_path: Path) -> None:
    """Before, each end wrote a line about all pairs of forty-eight classes: some hundred kilobytes a job."""
    names = [f"job-{number}" for number in range(48)]

    async def client(queue: LiveQueue) -> None:
        await queue.submit(submission(1, *({"name": each, "args": [each]} for each in names), folder=tmp_path))
        for each in names:
            await queue.wait(each, 3600.0)
        queue.end("drain")

    world = World(tmp_path)
    finished = serve(world, client, policy="energy")
    check(finished)
    lines = (finished.folder.path / "events.jsonl").read_bytes().splitlines()
    assert sum(map(len, lines)) < 10_000 * len(names)
    assert max(map(len, lines)) < 10_000


def test_a_submission_that_is_sent_twice_is_taken_once(tmp_path: Path) -> None:
    """A client that got no answer sends it again."""

    async def client(queue: LiveQueue) -> None:
        given = submission(1, {"name": "a"}, folder=tmp_path)
        assert (await queue.submit(given)).jobs == (await queue.submit(given)).jobs == ["a"]
        queue.end("drain")

    world = World(tmp_path)
    check(serve(world, client))
    assert world.started in ([], [("a", 1)])


def test_held_jobs_stay_held_when_the_queue_is_opened_again(tmp_path: Path) -> None:
    async def first(queue: LiveQueue) -> None:
        await queue.submit(submission(1, {"name": "held"}, folder=tmp_path, held=True))
        queue.end("drain")

    async def second(queue: LiveQueue) -> None:
        await asyncio.sleep(30.0)
        assert not world.started, "it has no release yet"
        await queue.release("held")
        await queue.wait("held", 600.0)
        queue.end("drain")

    world = World(tmp_path)
    check(serve(world, first))
    check(serve(world, second))
    assert world.completed == [("held", 1)]


actions = st.lists(
    st.tuples(
        st.floats(0.0, 12.0),
        st.sampled_from(["submit", "submit", "submit", "cancel", "kill", "hold", "release", "priority", "retry"]),
        st.integers(0, 5),
    ),
    max_size=10,
)


@pytest.mark.slow
@given(
    clients=st.lists(actions, min_size=1, max_size=3),
    fails=st.sets(st.integers(0, 5)),
    deaths=st.lists(st.floats(1000.5, 1040.0), max_size=2),
    image_s=st.none() | st.floats(1000.0, 1040.0),
    parks=st.booleans(),
    bytes_of_segment=st.sampled_from([300, 3000, 1 << 20]),
)
def test_no_acknowledged_job_is_lost_or_done_twice(
    tmp_path_factory: pytest.TempPathFactory,
    clients: list[list[tuple[float, str, int]]],
    fails: set[int],
    deaths: list[float],
    image_s: float | None,
    parks: bool,
    bytes_of_segment: int,
) -> None:
    """Each job that a client was told of has one end. If a controller dies, another one goes on from its disk.

    If jobs are parked, later ones are more urgent. The log begins anew at any size.
    """
    folder = tmp_path_factory.mktemp("world")
    length = 100 if parks else 20
    fates = {(f"j{number}", attempt): Fate(iterations=length) for number in range(6) for attempt in range(1, 9)}
    fates |= {(f"j{number}", 1): Fate(iterations=length // 2, outcome="failed") for number in fails}
    world = World(folder, fates, server_dies_s=deaths, image_s=image_s, memory_bytes=(2 if parks else 24) << 30)
    acknowledged: dict[str, float] = {}
    options: dict[str, Any] = {}
    if parks:
        options = {"policy": "priority", "lanes": 1, "jobs_per_lane": 1, "host_memory": 8 << 30}

    async def act(queue: LiveQueue, number: int, plan: list[tuple[float, str, int]]) -> None:
        for turn, (wait_s, what, job) in enumerate(plan):
            await asyncio.sleep(wait_s)
            name = f"j{job}"
            try:
                match what:
                    case "submit":
                        given = submission(100 * number + turn, {"name": name, "priority": turn}, folder=folder)
                        for each in (await queue.submit(given)).jobs:
                            acknowledged[each] = asyncio.get_running_loop().time()
                    case "cancel" | "kill":
                        await queue.cancel([name], at_once=what == "kill")
                    case "hold":
                        await queue.hold(name)
                    case "release":
                        await queue.release(name)
                    case "priority":
                        await queue.prioritise(name, job)
                    case _:
                        await queue.retry([name])
            except EcoshareError:
                pass  # there is no such job, or it has ended: a client is told so

    async def client(queue: LiveQueue) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number, plan in enumerate(clients):
                tasks.create_task(act(queue, number, plan))
        await to_the_end(queue)

    async def to_the_end(queue: LiveQueue) -> None:
        for row in queue.store.left():
            if row.held:
                await queue.release(row.name)
        for row in queue.store.left():
            await queue.wait(row.name, 3600.0)
        queue.end("drain")

    with patch.object(log_turnover, "SEGMENT_BYTES", bytes_of_segment):
        check(serve(world, client, **options))
        _check_ends(world, set(acknowledged))
        if world.image is not None and (world.image / "runs").is_dir():
            again = World(folder / "again", fates, memory_bytes=world.memory_bytes)
            again.folder.mkdir()
            world.image.rename(again.disk)
            check(serve(again, to_the_end, **options))
            _check_ends(again, {name for name, told_s in acknowledged.items() if told_s < (image_s or 0.0)})


losses = st.lists(st.sampled_from([1.0, 2.0, 3.0]), max_size=8)


@pytest.mark.slow
@given(
    stop=st.sampled_from([None, "asha", "median", "halving"]),
    trials=st.lists(st.tuples(st.sampled_from(["completed", "completed", "failed"]), losses), min_size=2, max_size=12),
    others=st.lists(st.floats(0.0, 30.0), max_size=4),
    deaths=st.lists(st.floats(1000.5, 1040.0), max_size=2),
    image_s=st.none() | st.floats(1000.0, 1060.0),
    bytes_of_segment=st.sampled_from([300, 2000, 6000]),
)
def test_a_sweep_goes_on_over_segments_and_deaths(
    tmp_path_factory: pytest.TempPathFactory,
    stop: str | None,
    trials: list[tuple[str, list[float]]],
    others: list[float],
    deaths: list[float],
    image_s: float | None,
    bytes_of_segment: int,
) -> None:
    """Each trial is drawn once, and has one end, wherever a segment begins and a controller dies."""
    folder = tmp_path_factory.mktemp("world")
    fates = {
        (f"s.{number:04d}", attempt): Fate(0.5, 8, 0.2, outcome, losses=tuple(own))
        for number, (outcome, own) in enumerate(trials)
        for attempt in range(1, 9)
    }
    keys = {"preemptible": True, "resume_args": ["--resume"]} if stop == "halving" else {}
    grid = {"grid": {"x": list(range(len(trials)))}, "metric": "loss", "parallel": 3}
    sweep = {"name": "s", "sweep": grid if stop is None else {**grid, "stop": stop}, "retries": 1, **keys}
    world = World(folder, fates, server_dies_s=deaths, image_s=image_s)
    acknowledged: dict[str, float] = {}

    async def client(queue: LiveQueue) -> None:
        for number, wait_s in enumerate([0.0, *others]):
            await asyncio.sleep(wait_s)
            given = sweep if not number else {"name": f"j{number}"}
            for each in (await queue.submit(submission(number, given, folder=folder))).jobs:
                acknowledged[each] = asyncio.get_running_loop().time()
        await to_the_end(queue)

    async def to_the_end(queue: LiveQueue) -> None:
        views: list[SweepView | None] = [None]
        while "s" in {row.name for row in queue.store.left()}:
            views.append(queue.driver.views.sweep("s"))
            await asyncio.sleep(0.1)
        assert views[-1] is None or sum(views[-1].ended.values()) >= len(trials) - 1, "it has forgotten some"
        for row in queue.store.left():
            await queue.wait(row.name, 3600.0)
        queue.end("drain")

    with patch.object(log_turnover, "SEGMENT_BYTES", bytes_of_segment):
        _check_trials(serve(world, client), len(trials))
        _check_ends(world, set(acknowledged))
        if world.image is not None and (world.image / "runs").is_dir():
            again = World(folder / "again", fates)
            again.folder.mkdir()
            world.image.rename(again.disk)
            log = event_log.read(run_in(again.disk / "runs") / "events.jsonl")
            over = {each.job for each in log if isinstance(each, JobExited) and each.outcome is Outcome.COMPLETED}
            finished = serve(again, to_the_end)
            taken = {name for name, told_s in acknowledged.items() if told_s < (image_s or 0.0)}
            _check_ends(again, taken)
            assert not over & {job for job, _ in again.started}, "a trial that had ended was run again"
            if "s" in taken:
                _check_trials(finished, len(trials))


def _check_trials(finished: FinishedRun, trials: int) -> None:
    check(finished)
    (sweep,) = finished.data.summary.sweeps
    assert sum(sweep.states.values()) == trials and sweep.states.keys() <= {"completed", "failed", "pruned"}


def _check_ends(world: World, acknowledged: set[str]) -> None:
    store = JobStore(world.disk / "queue.db")
    names = store.names()
    assert acknowledged <= set(names), "an acknowledged job is lost"
    assert not store.left(), "a job has no end"
    store.close()
    assert len(world.started) == len(set(world.started)), "an attempt began twice"
