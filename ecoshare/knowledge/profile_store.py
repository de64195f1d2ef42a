"""Stores profiles: one readable file for each class, in a folder that many runs share.

::

    profiles/
      train-0123456789ab.json             a class; replaced at once: a reader sees the new or the old profile
      .train-0123456789ab-x1y2z3.new      being written, or left by a killed writer
      train-0123456789ab.json.corrupt     was no profile; set aside for the user to look at

`json_store.py` reads the files, replaces them, and sets damaged ones aside.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ecoshare.knowledge.json_store import CLASS_NAME, KeptFiles
from ecoshare.knowledge.profile import Profile, ProfileOrigin, options, shown

SCHEMA_VERSION: int = Profile.model_fields["schema_version"].default

_DEEP = 3
"""Number of parts of a mistake's place in a profile that a note shows: enough to find it."""

_INNERMOST_LIST = re.compile(r"\[\n\s+([^\[\]{}]*?)\n\s+\]")
_LINE_BREAK = re.compile(r"\s*\n\s*")
_EMPTY = hashlib.sha256(b"").hexdigest()


class ProfileStore:
    """Store of profiles in a folder, which need not exist yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._kept = KeptFiles(folder, SCHEMA_VERSION, "is not a profile of its class", _DEEP)
        self._folder_stamp: int | None = None
        self._files: dict[str, tuple[tuple[int, ...], _Candidate | None]] = {}
        self._related: dict[tuple[str, str], list[_Candidate]] = {}

    @property
    def notes(self) -> list[str]:
        """Reasons why files cannot be used, one line each, for the caller to show."""
        return self._kept.notes

    def find(self, job_class: str) -> Profile | None:
        """Profile of a class, always from the disk; None if there is none that this version can use."""
        return self._read(self.file(job_class)) if CLASS_NAME.fullmatch(job_class) else None

    def make(self) -> None:
        """Make the folder before a measurement begins, so that the result can be saved.

        Raises:
            UnfitEnvironment: The folder cannot be made, or cannot be written to.
        """
        self._kept.make()

    def save(self, profile: Profile) -> Path:
        """Write or replace the profile of a class; return its file.

        A file from a newer version of ecoshare stays as it is, and `notes` says so.

        Raises:
            UnfitEnvironment: The file cannot be written: no room, or no permission.
            ValueError: The name of the class cannot be a file name here.
        """
        if not CLASS_NAME.fullmatch(profile.job_class):
            raise ValueError(f"not the name of a class: {profile.job_class!r}")
        path = self.file(profile.job_class)
        self._kept.write(path, _readable(profile))
        self._folder_stamp = None  # two changes may fall into one tick of the file system's clock
        return path

    def all(self) -> list[Profile]:
        """Profiles that this version can use, newest first."""
        try:
            paths = sorted(self.folder.glob("[!.]*.json"))
        except OSError as error:
            self._kept.note(f"{self.folder} cannot be read: {error.strerror or error}")
            return []
        found = [profile for path in paths if (profile := self._read(path)) is not None]
        return sorted(found, key=lambda each: (each.made_utc, each.job_class), reverse=True)

    def file(self, job_class: str) -> Path:
        """Path of the file of a class, which need not exist."""
        return self.folder / f"{job_class}.json"

    def forget(self, job_class: str) -> bool:
        """Remove the profile of a class and its drawing; return whether there was a profile.

        Raises:
            UnfitEnvironment: A file cannot be removed: no permission.
        """
        if not CLASS_NAME.fullmatch(job_class):
            return False
        self._kept.remove(self.file(job_class).with_name(f"{job_class}.svg"))
        self._folder_stamp = None
        return self._kept.remove(self.file(job_class))

    def nearest(self, origin: ProfileOrigin) -> Profile | None:
        """Profile that is most like `origin`, as a start for a new class; None if there is none.

        Candidates have the same script or given class. If there are none, they have a script of the same name and share
        a source, as in a copied project. The order among candidates: same device, same torch, most equal arguments,
        newest.
        """
        self._refresh()
        groups = [self._related.get(key, []) for key in _keys(origin)]
        digests = set(origin.sources.values()) - {_EMPTY}  # every project has an empty `__init__.py`
        candidates = [each for group in groups for each in group] or [
            each
            for each in self._related.get(("name", Path(origin.script).name), [])
            if digests & set(each.origin.sources.values())
        ]
        arguments = set(options(origin.args).items())

        def likeness(each: _Candidate) -> tuple[bool, bool, int, str, str]:
            there = each.origin
            same_device, same_torch = there.device_model == origin.device_model, there.torch == origin.torch
            return same_device, same_torch, len(arguments & each.arguments), each.made_utc, each.job_class

        while candidates:
            best = max(candidates, key=likeness)
            if (profile := self.find(best.job_class)) is not None:
                return profile
            candidates = [each for each in candidates if each is not best]  # removed meanwhile
        return None

    def _refresh(self) -> None:
        """Read the origins of new and changed files. Mostly the folder's time shows at one look that there are none."""
        try:
            stamp = self.folder.stat().st_mtime_ns
            if stamp == self._folder_stamp:
                return
            found = {path: path.stat() for path in self.folder.glob("[!.]*.json")}
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                self._kept.note(f"{self.folder} cannot be read: {error.strerror or error}")
            return
        files: dict[str, tuple[tuple[int, ...], _Candidate | None]] = {}
        related: dict[tuple[str, str], list[_Candidate]] = defaultdict(list)
        for path, status in found.items():
            file_stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            known_stamp, candidate = self._files.get(path.name, (None, None))
            if file_stamp != known_stamp:
                profile = self._read(path)
                candidate = _Candidate.of(profile) if profile is not None else None
            files[path.name] = file_stamp, candidate
            if candidate is not None:
                for key in [*_keys(candidate.origin), ("name", Path(candidate.origin.script).name)]:
                    related[key].append(candidate)
        self._folder_stamp, self._files, self._related = stamp, files, related

    def _read(self, path: Path) -> Profile | None:
        return self._kept.read(path, lambda data: _of_class(Profile.model_validate_json(data), path.stem))


def _of_class(profile: Profile, job_class: str) -> Profile:
    if profile.job_class != job_class:
        raise ValueError(f"it is that of {shown(profile.job_class)}")
    return profile


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Facts about a file, kept so that it can be ranked without reading it again."""

    job_class: str
    origin: ProfileOrigin
    arguments: frozenset[tuple[str, str]]
    made_utc: str

    @classmethod
    def of(cls, profile: Profile) -> _Candidate:
        arguments = frozenset(options(profile.origin.args).items())
        return cls(profile.job_class, profile.origin, arguments, profile.made_utc)


def _keys(origin: ProfileOrigin) -> Iterator[tuple[str, str]]:
    """Keys under which a profile of the same script or given class is found."""
    # Two projects may have local modules of one name, so that name is no key. Installed modules have no sources here.
    if Path(origin.script).is_absolute() or not origin.sources:
        yield "script", origin.script
    if origin.given is not None:
        yield "given", origin.given


def _readable(profile: Profile) -> str:
    """JSON with one line for each value and for each pair of the timeline. No JSON string contains a raw line break."""
    text = profile.model_dump_json(indent=2) + "\n"
    return _INNERMOST_LIST.sub(lambda found: f"[{_LINE_BREAK.sub(' ', found[1])}]", text)
