"""Turns summary values into the objects of `summary.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

_KEY = "key"


def named(key: str) -> Mapping[str, str]:
    """Metadata of a dataclass field that has another name in JSON, such as `class`."""
    return MappingProxyType({_KEY: key})


def as_plain(value: Any) -> Any:
    """The value as JSON has it: a dataclass becomes an object with its fields in order, a tuple becomes a list.

    A dataclass with a method `as_dict` is what that returns.
    """
    if is_dataclass(value):
        kind: Any = type(value)
        if (own := getattr(value, "as_dict", None)) is not None:
            return own()
        return {key: as_plain(getattr(value, name)) for name, key in _names(kind)}
    if isinstance(value, tuple | list):
        return [as_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: as_plain(each) for key, each in value.items()}
    return value


@cache
def _names(kind: type[Any]) -> list[tuple[str, str]]:
    return [(each.name, each.metadata.get(_KEY, each.name)) for each in fields(kind)]
