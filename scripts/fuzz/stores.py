"""Damaged profiles, measurements of neighbours and iteration counts, and damaged journals of settings.

A damaged file is reported and set aside, or left alone. Good files beside it are used, and stay as they are.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from ecoshare.cli.devices import devices
from ecoshare.cli.profiles import list_profiles, rm, show
from ecoshare.cli.restore import restore
from ecoshare.devices.control.journal import Journal
from ecoshare.devices.registry import find
from ecoshare.jobs.load import load
from ecoshare.knowledge.colocation_store import ColocationStore
from ecoshare.knowledge.iteration_store import IterationCount, IterationStore, JobArguments
from ecoshare.knowledge.profile_store import ProfileStore
from ecoshare.knowledge.tuning_store import TuningStore
from scripts.fuzz.commands import called, is_json, judge
from scripts.fuzz.damage import damage_bytes, damage_json, damage_place, dumped
from scripts.fuzz.rounds import Lost, Play, Round, main, within
from tests.knowledge.test_tuning_store import tuned
from tests.planning import planned
from tests.reporting.profiles import PROFILE
from tests.runtime.running import job_file, slow_steps

LIMIT_S = 8.0
GOOD, OTHER = "good-0123456789ab", "other-0123456789ab"
_GPU = "GPU-00000000-1111-2222-3333-444444444444"


def prepare(folder: Path) -> Play:
    """Make a store with profiles of the jobs of a file, and others."""
    device = find("cpu")
    jobs = job_file(folder, slow_steps("a", 40, 4), slow_steps("b", 50, 4))
    stored = folder / "stored"
    made = sorted({job.spec.job_class for job in planned(load(jobs), (device,)).jobs})
    store = ProfileStore(stored)
    for job_class in (*made, GOOD, OTHER):
        store.save(PROFILE.model_copy(update={"job_class": job_class}))
    ColocationStore(stored).save((GOOD, made[0]), (0.7, 0.8), None)
    ColocationStore(stored).save((made[0], made[0]), (0.6, 0.6), 12.0)
    count = JobArguments.of(PROFILE.origin, ""), IterationCount(iterations=40, run="a-run", job="a")
    for job_class in made:
        IterationStore(stored).add(job_class, PROFILE.origin, [count])
    TuningStore(stored).save(tuned(packing=((GOOD,), (made[0],))))
    state = folder / "state"
    Journal.new(_GPU, "gpu", "NVIDIA H200").noting("power_limit", (700.0,), ((400.0,),)).write(state / f"{_GPU}.json")

    def play(one: Round) -> None:
        if one.dice.random() < 0.25:
            _journals(one, state)
            return
        profiles = one.folder / "profiles"
        shutil.copytree(stored, profiles)
        files = [path for path in sorted(profiles.rglob("*.json")) if path.stem != GOOD]
        damaged = one.dice.sample(files, one.dice.choice([1, 1, 2, 3]))
        for path in damaged:
            _damage(one, path)
        good = (profiles / f"{GOOD}.json").read_bytes()
        commands: dict[str, Callable[[], object]] = {
            "list": lambda: list_profiles(profiles, True),
            "table": lambda: list_profiles(profiles, False),
            "show": lambda: show(GOOD, profiles, True),
            "plan": lambda: planned(load(jobs), (device,), store=ProfileStore(profiles)).as_dict(),
            "rm": lambda: rm([OTHER], profiles),
        }
        one.kind = one.dice.choice(list(commands))
        with within(LIMIT_S):
            done = called(f"profiles {one.kind}", commands[one.kind])
        judge(done, named=[str(profiles), OTHER])
        if (profiles / f"{GOOD}.json").read_bytes() != good:
            raise Lost("a good profile was changed")
        if one.kind in ("list", "show"):
            if done.code:
                raise Lost("good profiles are not shown beside a damaged one", done.stderr[:500])
            is_json(done)
        if one.kind in ("list", "table") and GOOD not in done.stdout:
            raise Lost("a good profile is not listed", done.stderr[:500])
        _check_again(profiles)

    return play


def _damage(one: Round, path: Path) -> None:
    way = one.dice.choices(["values", "bytes", "place"], [6, 3, 1])[0]
    data = path.read_bytes()
    if way == "place":
        what = damage_place(one.dice, path)
    elif way == "values":
        changed, what = damage_json(one.dice, json.loads(data))
        path.write_bytes(dumped(changed).encode(errors="surrogatepass"))
    else:
        data, what = damage_bytes(one.dice, data)
        path.write_bytes(data)
    one.story.append(f"{path.parent.name}/{path.name}: {what}")


def _check_again(profiles: Path) -> None:
    """Check that a file that was set aside is not reported again."""
    notes = []
    for _ in range(2):
        store = ProfileStore(profiles)
        with within(LIMIT_S):
            store.all()
        notes.append([note for note in store.notes if "renamed" in note])
    if notes[1]:
        raise Lost("a file that was set aside is told again", "\n".join(notes[1]))


def _journals(one: Round, state: Path) -> None:
    """Damage a journal of settings of a GPU that is not here, and ask for the remaining settings."""
    one.kind = "journal"
    own = one.folder / "state"
    shutil.copytree(state, own)
    (path,) = own.glob("*.json")
    _damage(one, path)
    before = os.environ.get("ECOSHARE_STATE")
    os.environ["ECOSHARE_STATE"] = str(own)
    try:
        for words_, command in (
            ("restore", lambda: restore(False, False)),
            ("restore --json", lambda: restore(False, True)),
            ("devices", lambda: devices(True)),
        ):
            with within(LIMIT_S):
                done = called(words_, command)
            judge(done)
            if done.code == 0 and "json" in words_:
                is_json(done)
    finally:
        os.environ.pop("ECOSHARE_STATE")
        if before is not None:
            os.environ["ECOSHARE_STATE"] = before


if __name__ == "__main__":
    main("stores", __doc__, prepare)
