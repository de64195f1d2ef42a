"""The store of profiles with real files, processes and kills; each case says what a failure would lose."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecoshare.errors import UnfitEnvironment
from ecoshare.knowledge import json_store
from ecoshare.knowledge.profile import (
    AchievedSetting,
    BatchAnswers,
    IterationEnergy,
    IterationTimes,
    Machine,
    MemoryProfile,
    Profile,
    ProfileOrigin,
    ProfileWindow,
    Use,
)
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.knowledge.profiles_folder import default_folder
from tests.knowledge.classes import NAME, origin, profile

WRITER = """
import sys
from pathlib import Path
from ecoshare.knowledge.profile import Profile
from ecoshare.knowledge.profile_store import ProfileStore

store = ProfileStore(Path(sys.argv[1]))
profile = Profile.model_validate_json(sys.stdin.read())
number = 0
while number < int(sys.argv[2]):
    number += 1
    store.save(profile.model_copy(update={"notes": (f"{sys.argv[3]}-{number}",) * 2000}))
    print(number, flush=True)
"""

Writer = Callable[[int, str], subprocess.Popen[str]]


amounts = st.floats(0, allow_infinity=False)
counts = st.integers(0, 2**70)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.floats(allow_nan=False, allow_infinity=False)
names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,112}", fullmatch=True)


def built(model: type, **own: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Strategy for all fields of a model; fields that are not given are amounts or null."""
    fields = {name: own.get(name, st.none() | amounts) for name in model.model_fields}  # type: ignore[attr-defined]
    return st.builds(model, **fields)


def all_of(strategy: st.SearchStrategy[Any], *fields: str) -> dict[str, st.SearchStrategy[Any]]:
    return dict.fromkeys(fields, strategy)


any_times = built(IterationTimes, count=counts, **all_of(amounts, "mean_s", "median_s", "p95_s"))
any_answers = built(
    BatchAnswers,
    size=st.integers(1, 1 << 70),
    count=st.integers(1, 1 << 70),
    **all_of(amounts, "mean_s", "median_s", "p95_s", "p99_s"),
)
any_profile = built(
    Profile,
    schema_version=st.just(1),
    job_class=names,
    made_utc=texts,
    origin=built(
        ProfileOrigin,
        sources=st.dictionaries(texts, texts, max_size=3),
        args=st.lists(texts, max_size=3).map(tuple),
        given=st.none() | names,
        **all_of(texts, "script", "device_model", "torch"),
    ),
    machine=built(
        Machine,
        cores=counts,
        intra_op_threads=st.none() | counts,
        **all_of(texts, "device", "kind", "uuid", "driver", "python", "platform", "ecoshare"),
    ),
    setting=built(AchievedSetting),
    memory=built(
        MemoryProfile,
        parts=st.dictionaries(texts, st.none() | counts, max_size=3),
        timeline=st.lists(st.tuples(numbers, counts), max_size=3).map(tuple),
        note=texts,
        **all_of(st.none() | counts, "persistent_bytes", "ephemeral_bytes", "model_bytes", "framework_bytes"),
        **all_of(st.none() | counts, "peak_bytes", "context_bytes", "seen_bytes"),
    ),
    train=st.none() | any_times,
    eval=st.none() | any_times,
    use=built(Use, bound_by=st.sampled_from([None, "compute", "memory", "host"])),
    batches=st.lists(any_answers, max_size=3).map(tuple),
    energy=st.none() | built(IterationEnergy, power_w=amounts, **all_of(texts, "source", "scope", "meter", "about")),
    window=built(
        ProfileWindow,
        **all_of(counts, "warm_up_iterations", "paused_jobs"),
        **all_of(amounts, "warm_up_s", "measured_s", "total_s", "productive_s"),
    ),
    steady=st.booleans(),
    doubt=texts,
    meter_failed=st.booleans(),
    notes=st.lists(texts, max_size=3).map(tuple),
)


@pytest.mark.nightly
@given(any_profile)
def test_what_was_saved_is_found_to_the_last_bit(tmp_path_factory: pytest.TempPathFactory, measured: Profile) -> None:
    """Else a figure would change in the store."""
    store = ProfileStore(tmp_path_factory.mktemp("store"))
    path = store.save(measured)
    assert store.find(measured.job_class) == measured
    assert path == store.folder / f"{measured.job_class}.json"
    assert [each.name for each in store.folder.iterdir()] == [path.name]
    assert store.notes == []


def test_other_users_may_not_read_the_arguments_of_jobs(tmp_path: Path) -> None:
    """Arguments may hold secrets, so only the owner may read the folder and its files."""
    path = ProfileStore(tmp_path / "data" / "profiles").save(profile())
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path.stat().st_mode & 0o777 == 0o600


def test_no_folder_is_an_empty_store_and_stays_none(tmp_path: Path) -> None:
    """A lookup must not create folders in the user's home, nor complain about a first run."""
    store = ProfileStore(tmp_path / "none")
    assert store.find(NAME) is None
    assert store.nearest(origin()) is None
    assert store.notes == []
    assert not store.folder.exists()


@pytest.mark.parametrize(
    "name", ["../up", "/etc/passwd", "a/b", "", ".", "..", ".hidden", "-x", "a\0b", "a\n", "x" * 201]
)
def test_a_name_that_leads_elsewhere_reads_and_writes_nothing(tmp_path: Path, name: str) -> None:
    """Else a class could be a path out of the store, or a file that the store itself overlooks."""
    (tmp_path / "up.json").write_text(profile("up").model_dump_json())
    store = ProfileStore(tmp_path / "store")
    assert store.find(name) is None
    with pytest.raises(ValueError, match="not the name of a class"):
        store.save(profile(name))
    assert [each.name for each in tmp_path.iterdir()] == ["up.json"]


def test_a_store_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    """Else the user would see a traceback at the end of the window that measured."""
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UnfitEnvironment, match="cannot write") as caught:
            ProfileStore(folder).save(profile())
        assert "--profiles" in caught.value.hint
    store = ProfileStore(tmp_path / "store")
    (store.folder / f"{NAME}.json" / "full").mkdir(parents=True)
    with pytest.raises(UnfitEnvironment, match="directory"):
        store.save(profile())
    assert store.find(NAME) is None
    assert "cannot be used" in store.notes[0]
    assert not list(store.folder.glob(".*")), "a failed writer leaves nothing behind"


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    """Function that starts processes that save one class repeatedly; none outlives its test."""
    with contextlib.ExitStack() as ending:

        def start(times: int, name: str) -> subprocess.Popen[str]:
            process = ending.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", WRITER, str(tmp_path), str(times), name],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            ending.callback(process.kill)
            assert process.stdin is not None
            process.stdin.write(profile().model_dump_json())
            process.stdin.close()
            return process

        yield start


@pytest.mark.slow
def test_concurrent_writers_never_show_half_a_profile(tmp_path: Path, writer: Writer) -> None:
    """Else a reader would set a good profile aside as corrupt, or mix two measurements."""
    writers = [writer(60, name) for name in "abcd"]
    store = ProfileStore(tmp_path)
    seen = set()
    while any(process.poll() is None for process in writers):
        found = store.find(NAME)
        if found is not None:
            assert len(found.notes) == 2000
            assert len(set(found.notes)) == 1
            seen.add(found.notes[0])
        else:
            assert not seen, "a profile that was there went away"
    for process in writers:
        assert process.stdout is not None
        assert process.stdout.read().split()[-1] == "60"
        assert process.wait() == 0
    assert len(seen) > 10, "the reader saw too little to prove anything"
    assert store.notes == []
    assert [path.name for path in tmp_path.iterdir()] == [f"{NAME}.json"]


def test_threads_of_one_process_write_without_harm(tmp_path: Path) -> None:
    """Else two devices' drivers in one process would spoil each other's file."""
    store = ProfileStore(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: store.save(profile(made_utc=str(number))), range(200)))
    assert store.find(NAME) is not None
    assert [path.name for path in tmp_path.iterdir()] == [f"{NAME}.json"]


@pytest.mark.nightly
def test_a_killed_writer_leaves_the_last_whole_profile(tmp_path: Path, writer: Writer) -> None:
    """Else kill -9 of a run could lose the profiles of all runs before; its leftovers are removed an hour later."""
    store = ProfileStore(tmp_path)
    leftovers, dice = 0, random.Random(0)
    for trial in range(60):
        if trial >= 4 and leftovers:
            break
        process = writer(100_000, "w")
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(dice.uniform(0.0, 0.02))  # at any moment of the writing
        process.send_signal(signal.SIGKILL)
        process.wait()
        found = store.find(NAME)
        assert found is not None
        assert len(found.notes) == 2000
        leftovers = len(list(tmp_path.glob(".*.new")))
    assert leftovers, "no kill fell into a writing: this test proved nothing"
    assert store.notes == []
    fresh = next(iter(tmp_path.glob(".*.new")))
    for path in set(tmp_path.glob(".*.new")) - {fresh}:
        os.utime(path, (time.time() - json_store.STALE_S - 1,) * 2)
    store.save(profile())
    assert list(tmp_path.glob(".*.new")) == [fresh], "a living writer's file must stay"


GOOD = profile().model_dump_json()
CORRUPT = {
    "empty": b"",
    "cut off": GOOD[: len(GOOD) // 2].encode(),
    "no JSON": b"\xff\xfe profile",
    "no object": b"[1]",
    "another field": GOOD.replace('"steady"', '"stead"').encode(),
    "a negative size": GOOD.replace('"persistent_bytes":1', '"persistent_bytes":-1').encode(),
    "not a number": GOOD.replace('"mean_s":0.1', '"mean_s":NaN').encode(),
    "deep": b"[" * 100_000,
    "no version that ever was": GOOD.replace('"schema_version":1', '"schema_version":0').encode(),
    "a version in words": GOOD.replace('"schema_version":1', '"schema_version":"2"').encode(),
    "of another class": GOOD.replace(NAME, "other-0123456789ab").encode(),
}


@pytest.mark.parametrize("content", CORRUPT.values(), ids=CORRUPT.keys())
def test_a_corrupt_file_is_named_and_set_aside(tmp_path: Path, content: bytes) -> None:
    """Else one bad file would end every run that needs it, or the evidence would be lost."""
    store = ProfileStore(tmp_path)
    path = tmp_path / f"{NAME}.json"
    for aside in (f"{NAME}.json.corrupt", f"{NAME}.json.corrupt-2", f"{NAME}.json.corrupt-3"):
        path.write_bytes(content)
        assert store.find(NAME) is None
        assert not path.exists()
        assert (tmp_path / aside).read_bytes() == content
        assert str(path) in store.notes[-1]
        assert store.notes[-1].endswith(f"renamed to {aside}")
        assert store.notes[-1].isprintable(), "one line"
    store.save(profile())
    assert store.find(NAME) == profile()
    assert len(store.notes) == 3


def test_a_corrupt_file_hides_no_good_neighbour(tmp_path: Path) -> None:
    """Else one bad file would make every class new."""
    store = ProfileStore(tmp_path)
    store.save(profile("good-1"))
    (tmp_path / "bad-1.json").write_text("{")
    assert store.nearest(origin()) == profile("good-1")
    assert store.nearest(origin()) == profile("good-1")
    assert len(store.notes) == 1
    assert "bad-1.json.corrupt" in store.notes[0]


@pytest.mark.parametrize("text", [GOOD, '{"shape": "unheard of"}'], ids=["same shape", "another shape"])
def test_a_file_of_a_newer_version_stays_where_it_is(tmp_path: Path, text: str) -> None:
    """Else a day with an older ecoshare would lose the measurements of the newer one."""
    newer = json.dumps(json.loads(text) | {"schema_version": 2})
    path = tmp_path / f"{NAME}.json"
    path.write_text(newer)
    store = ProfileStore(tmp_path)
    assert store.find(NAME) is None
    assert store.nearest(origin()) is None
    assert store.save(profile()) == path
    assert path.read_text() == newer
    assert len(store.notes) == 1, "said once"
    assert "newer version of ecoshare (schema 2)" in store.notes[0]


def _find(folder: str, barrier: Any, notes: Any) -> None:
    barrier.wait()
    store = ProfileStore(Path(folder))
    assert store.find(NAME) is None
    notes.put(store.notes)


@pytest.mark.slow
def test_one_of_many_finders_sets_a_corrupt_file_aside(tmp_path: Path) -> None:
    """Else two processes would rename over each other and lose the evidence, or the slower would fail."""
    context = multiprocessing.get_context("fork")
    for trial in range(3):
        (tmp_path / f"{NAME}.json").write_text(f"bad {trial}")
        barrier, notes = context.Barrier(4), context.Queue()
        readers = [context.Process(target=_find, args=(str(tmp_path), barrier, notes)) for _ in range(4)]
        for reader in readers:
            reader.start()
        said = [line for _ in readers for line in notes.get(timeout=60)]
        for reader in readers:
            reader.join()
            assert reader.exitcode == 0
        assert len(said) == 1
    kept = sorted(path.read_text() for path in tmp_path.iterdir())
    assert kept == ["bad 0", "bad 1", "bad 2"]


def test_a_profile_saved_while_its_corrupt_predecessor_is_set_aside_survives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a reader of the bad file would set the good file aside."""
    path = tmp_path / f"{NAME}.json"
    path.write_text("bad")
    store, other = ProfileStore(tmp_path), ProfileStore(tmp_path)
    touch = Path.touch

    def save_first(aside: Path, *args: Any, **options: Any) -> None:
        touch(aside, *args, **options)
        other.save(profile())

    monkeypatch.setattr(Path, "touch", save_first)
    assert store.find(NAME) is None
    assert store.find(NAME) == profile()
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"ECOSHARE_PROFILES": "/p", "XDG_DATA_HOME": "/x"}, "/p"),
        ({"ECOSHARE_PROFILES": "", "XDG_DATA_HOME": "/x"}, "/x/ecoshare/profiles"),
        ({"XDG_DATA_HOME": "relative"}, "/h/.local/share/ecoshare/profiles"),
        ({"XDG_DATA_HOME": ""}, "/h/.local/share/ecoshare/profiles"),
        ({}, "/h/.local/share/ecoshare/profiles"),
    ],
)
def test_the_folder_is_where_a_users_data_belong(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], folder: str
) -> None:
    """Else profiles would litter a home, or a folder that depends on where a run was started."""
    for name in ("ECOSHARE_PROFILES", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/h", **environment}.items():
        monkeypatch.setenv(name, value)
    assert default_folder() == Path(folder)
