"""Damage to files: to their bytes, their lines, the values in them, or their type."""

from __future__ import annotations

import copy
import json
import math
import os
import random
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

_DEEP, _LONG, _BIG, _INFINITE = "\u2603deep\u2603", "\u2603long\u2603", "\u2603big\u2603", "\u2603infinite\u2603"
_RAW = {
    _DEEP: "[" * 100_000 + "]" * 100_000,
    _LONG: '"' + "x" * 200_000 + '"',
    _BIG: "9" * 5_000,
    _INFINITE: "1e999",
}
"""Placeholders of values that `json.dumps` cannot write, and the text that takes their place."""

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 7, 1 << 31, -(1 << 31), 1 << 63, 10**30, -(10**30)),
    *(0.5, -0.0, 1e-320, 1e308, -1e308, math.nan, math.inf, -math.inf),
    *("", " ", "0", "-1", "1e3", "nan", "٣", "x" * 300, "a\0b", "\ud800", "\x1b[2J", "a\nb", "é😀", "..", "../../x"),
    *("/dev/zero", "/proc/self/mem", "/", "~", "a/b", "*", "%s%n", "{}", "[red]"),
    *([], {}, [[]], [None], [0, 0], [-1], ["x"], {"": 0}, {"x": {}}, {"name": "x"}, [{}], [[[[[[[[1]]]]]]]]),
    *(_DEEP, _LONG, _BIG, _INFINITE),
)
"""Values in place of others."""

Change = tuple[bytes, str]
"""Content of a file after the damage, and the damage in words."""


def value(dice: random.Random) -> Any:
    """Random hostile value."""
    return copy.deepcopy(dice.choice(VALUES))


def dumped(data: Any, indent: int | None = None) -> str:
    """JSON, or text like JSON: NaN, numbers of any size, any depth."""
    text = json.dumps(data, indent=indent)
    for placeholder, raw in _RAW.items():
        text = text.replace(json.dumps(placeholder), raw)
    return text


def damage_json(dice: random.Random, data: Any) -> tuple[Any, str]:
    """Copy of a document with one value, key or item changed, and the change in words."""
    data = copy.deepcopy(data)
    places = list(_places(data, ()))
    if not places or dice.random() < 0.03:
        whole = value(dice)
        return whole, f"all := {_words(whole)}"
    parent, key, path = dice.choice(places)
    where = "".join(f"[{each!r}]" for each in path)[:120]
    match dice.choice(["replace"] * 6 + ["drop"] * 3 + ["rename", "add", "repeat", "swap", "nudge"]):
        case "replace":
            parent[key] = value(dice)
            return data, f"{where} := {_words(parent[key])}"
        case "nudge" if isinstance(parent[key], int | float) and not isinstance(parent[key], bool):
            parent[key] = dice.choice([-parent[key], parent[key] * 1e6, parent[key] + 1, parent[key] / 3, 0])
            return data, f"{where} := {_words(parent[key])}"
        case "rename" if isinstance(parent, dict):
            parent[dice.choice(["", "x", key + "s", key.upper(), "\ud800"])] = parent.pop(key)
            return data, f"key {where} renamed"
        case "add" if isinstance(parent, dict):
            parent[dice.choice(["", "x", "schema_version", "name", "é"])] = value(dice)
            return data, f"a key beside {where}"
        case "repeat" if isinstance(parent, list):
            parent.insert(dice.randrange(len(parent) + 1), copy.deepcopy(parent[key]))
            return data, f"{where} twice"
        case "swap":
            other, name, other_path = dice.choice(places)
            if path[: len(other_path)] != other_path and other_path[: len(path)] != path:
                parent[key], other[name] = other[name], parent[key]
            return data, f"{where} and {''.join(f'[{each!r}]' for each in other_path)[:120]} swapped"
    del parent[key]
    return data, f"{where} dropped"


def _places(data: Any, path: tuple[str | int, ...]) -> Any:
    """All places in a document: the mapping or list, the key in it, and the path of keys."""
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, each in inner:
        yield data, key, (*path, key)
        yield from _places(each, (*path, key))


def _words(given: Any) -> str:
    return repr(given)[:60]


def damage_bytes(dice: random.Random, data: bytes) -> Change:
    """Change bytes or lines of a file."""
    place = dice.randrange(len(data) + 1)
    match dice.choice(["flip", "cut", "insert", "delete", "line", "line", "all"]):
        case "flip" if data:
            changed = bytearray(data)
            places = [dice.randrange(len(data)) for _ in range(dice.choice([1, 1, 2, 20]))]
            for each in places:
                changed[each] ^= 1 << dice.randrange(8)
            return bytes(changed), f"bits of bytes {places[:5]} flipped"
        case "cut":
            return data[:place], f"cut after byte {place}"
        case "insert":
            token = dice.choice([b"\0", b"\xff", b"\n", b"\r", b"{", b"]", b'"', b",", b"1e999", b"\x1b[2J", b"NaN"])
            token = token * dice.choice([1, 1, 1, 1000])
            return data[:place] + token + data[place:], f"{token[:8]!r} x {len(token)} put at byte {place}"
        case "delete":
            size = dice.choice([1, 3, 40, 1000])
            return data[:place] + data[place + size :], f"{size} bytes from byte {place} on dropped"
        case "line":
            return damage_lines(dice, data)
    whole: list[tuple[bytes, str]] = [
        (b"", "empty"),
        (b"\n", "a line break"),
        (b"\0" * max(1, len(data)), "zeros"),
        (dice.randbytes(max(1, min(len(data), 4096))), "random bytes"),
        (b"\xef\xbb\xbf" + data, "a byte order mark before it"),
        (data.replace(b"\n", b"\r\n"), "line breaks of Windows"),
        (data.decode(errors="replace").encode("utf-16"), "UTF-16"),
        (b"[" * 100_000, "100,000 brackets"),
        (data + data, "all twice"),
        (b" " + data, "a space before it"),
        (_digits(data), "digits of another script"),
    ]
    return dice.choice(whole)


def _digits(data: bytes) -> bytes:
    """Text with its first number in Arabic digits."""
    return re.sub(
        r"[0-9]+",
        lambda found: "".join(chr(0x0660 + int(digit)) for digit in found[0]),
        data.decode(errors="replace"),
        count=3,
    ).encode()


def damage_lines(dice: random.Random, data: bytes) -> Change:
    """Repeat, drop, swap, cut or mix lines of a file."""
    lines = data.splitlines(keepends=True)
    if not lines:
        return b"\n", "a line break"
    first, second = dice.randrange(len(lines)), dice.randrange(len(lines))
    match dice.choice(["repeat", "drop", "swap", "cut", "join", "move", "empty", "shuffle"]):
        case "repeat":
            lines.insert(second, lines[first])
            return b"".join(lines), f"line {first + 1} again before line {second + 1}"
        case "drop":
            del lines[first]
            return b"".join(lines), f"line {first + 1} dropped"
        case "swap":
            lines[first], lines[second] = lines[second], lines[first]
            return b"".join(lines), f"lines {first + 1} and {second + 1} swapped"
        case "cut":
            lines[first] = lines[first][: dice.randrange(len(lines[first]))] + b"\n"
            return b"".join(lines), f"line {first + 1} cut"
        case "join":
            lines[first] = lines[first].rstrip(b"\r\n")
            return b"".join(lines), f"line {first + 1} joined with the next"
        case "move":
            lines.insert(second, lines.pop(first))
            return b"".join(lines), f"line {first + 1} moved to {second + 1}"
        case "empty":
            lines.insert(first, b"\n")
            return b"".join(lines), f"an empty line before line {first + 1}"
    dice.shuffle(lines)
    return b"".join(lines), "lines shuffled"


def damage_json_lines(dice: random.Random, data: bytes) -> Change:
    """Change a value in one line of JSON."""
    lines = data.splitlines(keepends=True)
    number = dice.randrange(len(lines))
    changed, what = damage_json(dice, json.loads(lines[number]))
    lines[number] = dumped(changed).encode(errors="surrogatepass") + b"\n"
    return b"".join(lines), f"line {number + 1}: {what}"


def damage_cells(dice: random.Random, data: bytes, separator: str) -> Change:
    """Change a cell of a table."""
    lines = data.decode().splitlines(keepends=True)
    number = dice.randrange(len(lines))
    cells = lines[number].rstrip("\n").split(separator)
    place = dice.randrange(len(cells))
    match dice.choice(["replace"] * 6 + ["drop", "repeat", "quote", "swap"]):
        case "drop":
            del cells[place]
            what = "dropped"
        case "repeat":
            cells.insert(place, cells[place])
            what = "twice"
        case "quote":
            cells[place] = '"' + cells[place]
            what = "with a quotation mark"
        case "swap":
            other = dice.randrange(len(cells))
            cells[place], cells[other] = cells[other], cells[place]
            what = f"swapped with {other + 1}"
        case _:
            cells[place] = dice.choice(CELLS)
            what = f":= {cells[place][:40]!r}"
    lines[number] = separator.join(cells) + "\n"
    return "".join(lines).encode(errors="surrogatepass"), f"line {number + 1} cell {place + 1} {what}"


CELLS = (
    *("", " ", "0", "-0", "-1", "1", "2", "1.5", "1e3", "1e15", "999999999999999", "1e308", "1e999", "nan", "inf"),
    *("1_000", "0x10", "٣", "9" * 5000, "1e-300", "x", "x" * 5000, "é", "a b", '"', "'", "\0", "\x1b[2J", "\ud800"),
    *("1000 x 0.25; 500 x 0.4", "1 x 1e-300", "999999999 x 1e-9", "1e15 x 1", "x x x", "1 x 1 / 0", "; ; ;"),
    *("2017-10-09 07:00:10", "0001-01-01 00:00:00", "9999-12-31 23:59:59", "2017-13-45 99:99:99", "=1+1", "true"),
)
"""Cells in place of others."""


def damage_place(dice: random.Random, path: Path, is_named: bool = False) -> str:
    """Replace a file by something else, or take away the right to read it; returns the damage in words.

    Args:
        is_named: Whether the user names the file. If so, a pipe may come from a shell (`<(...)`), and commands wait.
    """
    ways: list[tuple[str, Callable[[], None]]] = [
        ("gone", lambda: None),
        ("a folder", path.mkdir),
        ("a FIFO", lambda: os.mkfifo(path)),
        ("a socket", lambda: _socket(path)),
        ("a link that leads nowhere", lambda: path.symlink_to("nowhere")),
        ("a link to itself", lambda: path.symlink_to(path.name)),
        ("a link to a folder", lambda: path.symlink_to("/")),
        ("a link to /dev/null", lambda: path.symlink_to("/dev/null")),
        ("a link to /dev/zero", lambda: path.symlink_to("/dev/zero")),
        ("a file without permissions", lambda: path.touch(mode=0)),
    ]
    what, make = dice.choice([each for each in ways if not (is_named and each[0] == "a FIFO")])
    path.unlink()
    make()
    return f"{path.name} is {what} now"


def _socket(path: Path) -> None:
    """Make a socket; its path may be too long for an address from the root."""
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)
