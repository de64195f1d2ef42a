"""Says in words why the profile of one class does not serve another."""

from __future__ import annotations

import re
from collections import Counter

from ecoshare.profiling.profile import Profile, ProfileOrigin

_OPTION = re.compile(r"--?[^\W\d]")


def why_new(origin: ProfileOrigin, profile: Profile) -> str:
    """Reason in one line why a profile does not serve jobs of `origin`; empty if it serves them."""
    then = profile.origin
    parts = []
    if origin.given != then.given:
        parts.append(f"class: {origin.given or 'none'} in the job file, and {then.given or 'none'} then")
    if origin.given is None:
        changed = sorted({shown(name) for name, _ in origin.sources.items() ^ then.sources.items()})
        if changed:
            verb = "has" if len(changed) == 1 else "have"
            parts.append(f"{_listed(changed, ' and ')} {verb} changed since the profile of {_day(profile)}")
        if origin.args != then.args:
            parts.append(f"other arguments: {_other_arguments(origin.args, then.args)}")
    if origin.torch != then.torch:
        parts.append(f"torch {shown(origin.torch)}, and {shown(then.torch)} then")
    if origin.device_model != then.device_model:
        parts.append(f"another device: {shown(origin.device_model)}, and {shown(then.device_model)} then")
    return "; ".join(parts)


def _day(profile: Profile) -> str:
    return shown(profile.made_utc.partition("T")[0])


def options(args: tuple[str, ...]) -> dict[str, str]:
    """Values by option, roughly: words after an option are its value, and words before any option get a number.

    `--batch=32` equals `--batch 32`, and `-1` is a value. A file name after a flag becomes the flag's value, which does
    no harm here.
    """
    found: dict[str, str] = {}
    seen: Counter[str] = Counter()
    option = ""
    for number, arg in enumerate(args, start=1):
        if _OPTION.match(arg):
            option, _, value = arg.partition("=")
            seen[option] += 1
            option += f" ({seen[option]})" if seen[option] > 1 else ""
            found[option] = value
        elif option:
            found[option] = f"{found[option]} {arg}".lstrip()
        else:
            found[f"argument {number}"] = arg
    return found


def _other_arguments(args: tuple[str, ...], then_args: tuple[str, ...]) -> str:
    now, then = options(args), options(then_args)
    parts = [
        f"{shown(name)} {shown(value)}".rstrip()
        + (f" (was {shown(then[name]) or 'without a value'})" if name in then else " (new)")
        for name, value in now.items()
        if then.get(name) != value
    ]
    parts += [f"without {shown(name)} {shown(then[name])}".rstrip() for name in then if name not in now]
    return _listed(parts, ", ") or "the same, written in another way"


def _listed(words: list[str], last: str, most: int = 4) -> str:
    if len(words) > most:
        words, last = [*words[:most], f"{len(words) - most} more"], " and "
    return last.join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def shown(text: str, most: int = 60) -> str:
    """Text of a file in one printable line of at most `most` characters; the cut end becomes `...`."""
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= most else text[: most - 3] + "..."
