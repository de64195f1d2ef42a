"""Options as dataclasses: each field carries its help and its form on the command line.

A class of options is the one place where an option stands. The command line, the request of the Python API, the
documents that keep options for another session, and the table in the docs are made from its fields::

    @request_class
    class RunOptions:
        lanes: int | None = option("Lanes of each device.", default=None)      `--lanes N` │ run(lanes=2) │ {"lanes": 2}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, dataclass_transform

from ecoshare.errors import did_you_mean

_Request = TypeVar("_Request")
_KEY = "option"


@dataclass(frozen=True, slots=True)
class Option:
    """Form of a field on the command line.

    Attributes:
        help: Help, with the unit of a number and the meaning of the default.
        form: Words for the value, such as `ray|slurm`; empty for a word by the type.
        flag: The option, such as `--no-profiles`; empty for the name of the field.
        choices: Name of the function in `cli/completion.py` that completes values; empty for none.
        parse: Function that makes the value from the words of the user; None if typer does.
        is_path: Whether the value is a path, which is kept as an absolute one.
        given_none: Whether the command line gives None for an option that is not given, whatever the default is.
    """

    help: str
    form: str = ""
    flag: str = ""
    choices: str = ""
    parse: Callable[[Any], Any] | None = None
    is_path: bool = False
    given_none: bool = False


def option(help: str, *, default: Any = MISSING, default_factory: Any = MISSING, **form: Any) -> Any:
    """Field of a class of options.

    Args:
        help: Help of the option.
        default: The default; see `dataclasses.field`.
        default_factory: Function that makes the default, in its place.
        form: Other fields of `Option`.
    """
    metadata = {_KEY: Option(help, **form)}
    return field(default=default, default_factory=default_factory, metadata=metadata)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(option, field))
def request_class(made: type[_Request]) -> type[_Request]:
    """Decorator: a frozen dataclass of named fields. A wrong name is a `TypeError` that says which was meant."""
    made = dataclass(frozen=True, kw_only=True)(made)
    begin, known = made.__init__, [each.name for each in fields(made)]  # type: ignore[arg-type]

    @wraps(begin)
    def checked(self: _Request, /, **given: Any) -> None:
        for name in given:
            if name not in known:
                hint = did_you_mean(name, known)
                raise TypeError(f"{made.__name__} has no field {name!r}" + (f": {hint}" if hint else ""))
        begin(self, **given)

    made.__init__ = checked  # type: ignore[method-assign,assignment]
    return made


def with_fields(request: _Request, fields: Mapping[str, Any]) -> _Request:
    """Copy of a request with some fields replaced.

    Raises:
        TypeError: The request has no such field.
    """
    return replace(request, **fields) if fields else request  # type: ignore[type-var]


def options_of(kind: type[Any]) -> dict[str, Field[Any]]:
    """Fields of a class that are options, by name: those of the class itself come before those of its bases."""
    found = {each.name: each for each in fields(kind) if _KEY in each.metadata}
    order = [name for each in kind.__mro__ for name in vars(each).get("__annotations__", {})]
    return {name: found[name] for name in dict.fromkeys(order) if name in found}


def form_of(each: Field[Any]) -> Option:
    """Form of a field on the command line."""
    form: Option = each.metadata[_KEY]
    return form


def flag_of(each: Field[Any]) -> str:
    """Option of the command line for a field, such as `--jobs-per-lane`."""
    return form_of(each).flag or f"--{each.name.replace('_', '-')}"


def default_of(each: Field[Any]) -> Any:
    """Default of a field."""
    return each.default if each.default_factory is MISSING else each.default_factory()


def kept(options: Any, kind: type[Any]) -> dict[str, Any]:
    """Values of options as JSON has them. Paths are absolute: another session may begin in another folder.

    Args:
        options: Value of a class of options.
        kind: The class of options that are kept: that of the value, or a base of it.
    """
    found: dict[str, Any] = {}
    for name, each in options_of(kind).items():
        value = getattr(options, name)
        if isinstance(value, Mapping):
            value = dict(value)
        elif value is not None and form_of(each).is_path:
            value = str(Path(value).absolute())
        found[name] = value
    return found
